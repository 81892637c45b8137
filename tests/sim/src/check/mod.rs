//! The oracle: checks a recorded history of operations, watches and informers against the guarantees of a Kubernetes API server.
//!
//! The input is a [`History`], which a recorder of a simulation or of real processes writes; the output of [`check`] is
//! [`Statistics`] or the first [`Violation`]. [`shrink_violation`] makes the history smaller, and [`render()`] shows it with the violation.
//! The code is pure: times are numbers, and nothing is read or written.
//!
//! # How it works
//!
//! Revisions (resourceVersions) are one sequence of the storage, and responses have them. So the order of nearly all writes is known, and
//! the check needs a search only for writes with unknown outcomes, unlike porcupine, which etcd's robustness tests use:
//!
//! 1. `gather` collects the versions of each key from responses, events, notifications and the final state. A state that was
//!    seen proves that its write happened, at that revision, even if the outcome of the write is unknown.
//! 2. `order` derives when each revision can have begun. All constraints of writes and consistent reads on the order of revisions are
//!    bounds, so a pass over the revisions decides whether moments exist that satisfy them.
//! 3. `reads` compares lists and gets with the state of the model at their revision.
//! 4. `search` decides what has several explanations, per key: failures, writes with unknown outcomes that no client saw, and deletes whose
//!    responses have no revision. It backtracks only if such writes exist, and gives up with [`Violation::Inconclusive`]. A watch of
//!    all keys without a selector of labels excludes nearly all of them: what it does not show did not happen.
//! 5. `watch` derives from the model which events a watch must have received, and compares them.
//! 6. `informer` does the same for the handlers and stores of informers.
//!
//! # Guarantees of writes and reads
//!
//! | violation | guarantee |
//! |---|---|
//! | [`Malformed`](Violation::Malformed) | of the recorder: the history is possible |
//! | [`RevisionReused`](Violation::RevisionReused) | different writes have different revisions (the changes of a transaction have one) |
//! | [`WrongContent`](Violation::WrongContent) | a key has one content at a revision |
//! | [`NeverWritten`](Violation::NeverWritten) | each state was written, and each write has one revision |
//! | [`FailedWriteHappened`](Violation::FailedWriteHappened) | a write that failed has no effect |
//! | [`LostWrite`](Violation::LostWrite) | the final state has every acknowledged write |
//! | [`RevisionWentBack`](Violation::RevisionWentBack) | a write has a higher revision than all that were acknowledged before it began |
//! | [`FutureRevision`](Violation::FutureRevision) | no client sees a revision before its write began |
//! | [`StaleRead`](Violation::StaleRead) | a consistent read shows all that was acknowledged or seen before it began |
//! | [`WrongState`](Violation::WrongState) | a list, or its page, is the state at its revision |
//! | [`PageSkew`](Violation::PageSkew) | all pages of a list have one revision |
//! | [`WrongRevision`](Violation::WrongRevision) | a list with `resourceVersionMatch=Exact` has this revision |
//! | [`TooOld`](Violation::TooOld) | a read with a minimum is not older |
//! | [`SessionWentBack`](Violation::SessionWentBack) | reads of one client from the cache of one server are not older than its earlier lists of that resource from the cache. Kubernetes guarantees nothing across servers, nor that a client reads its own writes from the cache |
//! | [`PreconditionIgnored`](Violation::PreconditionIgnored) | a write succeeds only if its precondition holds: no update is lost |
//! | [`UnjustifiedFailure`](Violation::UnjustifiedFailure) | NotFound, AlreadyExists and Conflict are right at a moment of the request |
//! | [`UnjustifiedExpiry`](Violation::UnjustifiedExpiry) | 410 is right only for a revision that is too old; the recorder knows which is |
//! | [`NotLinearizable`](Violation::NotLinearizable) | the operations on a key have an order |
//!
//! # Guarantees of watches
//!
//! The names are those of `tests/robustness/validate/watch.go` of etcd and of etcd's
//! [API guarantees](https://etcd.io/docs/v3.6/learning/api_guarantees/).
//!
//! | violation | guarantee |
//! |---|---|
//! | [`Ordered`](Violation::Ordered) | events after the initial ones are in the order of revisions |
//! | [`Unique`](Violation::Unique) | no event is sent twice |
//! | [`Atomic`](Violation::Atomic) | the events of one revision are sent together: the events of a later one and bookmarks follow all of them, and a client that resumes after a revision had all its events. Kubernetes sends events one by one, so a watch may end between them if no client resumes it |
//! | [`Reliable`](Violation::Reliable), [`ReliableDelete`](Violation::ReliableDelete) | between two events none is missing; nor, in a watch with [`WatchLog::is_drained`], before the final state |
//! | [`Resumable`](Violation::Resumable) | the first event of a watch that begins at a revision is the first change after it |
//! | [`Bookmarkable`](Violation::Bookmarkable) | all events up to the revision of a bookmark precede it, and no other, and bookmarks do not go back |
//! | [`Filter`](Violation::Filter) | an event is of an object that the selector selects, or selected before |
//! | [`PrevKV`](Violation::PrevKV) | a DELETED event has the content before the change, with the revision of the change |
//! | [`IsCreate`](Violation::IsCreate) | ADDED is an object that begins to exist or to match, MODIFIED one that matched before |
//! | [`EventType`](Violation::EventType) | DELETED is an object that ceases to exist or to match |
//! | [`InitialState`](Violation::InitialState) | the initial events are the state at one revision, at which the other events continue |
//! | [`EventAfterError`](Violation::EventAfterError) | an ERROR is the last event |
//!
//! A watch that begins with a state also has the freshness of a read: see `StaleRead` and `TooOld`.
//!
//! # Guarantees of informers
//!
//! | violation | guarantee |
//! |---|---|
//! | [`InformerType`](Violation::InformerType) | OnAdd is of an object that the handler does not have, OnUpdate and OnDelete of one that it has |
//! | [`InformerWentBack`](Violation::InformerWentBack) | the notifications of a key do not go back in resourceVersion |
//! | [`InformerDiverged`](Violation::InformerDiverged) | the store at quiescence is the final state |
//!
//! # Limits
//!
//! The check reports no violation in a correct history, but is lenient where the history does not decide: failures are checked per key, and
//! while a write that no client saw may have happened, its key may be absent, and events of the key after it may have another type.

mod gather;
mod history;
mod informer;
mod initial;
mod live;
mod model;
mod observe;
mod order;
mod reads;
mod render;
mod search;
mod shrink;
#[cfg(test)]
mod tests;
mod violation;
mod watch;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

pub use history::{
    Change, Content, EventKind, Failure, FinalState, History, InformerLog, Labels, Notification,
    NotificationKind, Object, Operation, Outcome, Page, ReadVersion, Request, Selector, Snapshot,
    WatchEvent, WatchLog, WatchStart,
};
pub use render::render;
pub use shrink::{shrink, shrink_violation};
pub use violation::{ChangeId, Source, Violation};

/// What a checked history consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// The operations.
    pub operations: usize,
    /// The operations with an unknown outcome.
    pub unknown: usize,
    /// The writes with an unknown outcome or revision that no state, event or watch decides.
    pub undecided: usize,
    /// The keys.
    pub keys: usize,
    /// The revisions at which keys changed.
    pub revisions: usize,
    /// The watches.
    pub watches: usize,
    /// The events of all watches, with bookmarks and errors.
    pub events: usize,
    /// The notifications of all informers.
    pub notifications: usize,
    /// The branches of the search for an order.
    pub branches: u64,
}

/// Checks a history. Returns the first violation, in the order of the table in the [module documentation](self).
pub fn check(history: &History) -> Result<Statistics, Violation> {
    check_form(history)?;
    let mut model = gather::gather(history)?;
    reads::check_final_state(&model)?;
    let order = order::check_order(&model)?;
    model.decide(&order);
    // Again, because fewer writes are undecided.
    reads::check_final_state(&model)?;
    reads::check_reads(&model, &order)?;
    let branches = search::check_keys(&model, &order)?;
    check_watches(&model, &order)?;
    for log in &history.informers {
        informer::check_informer(&model, log)?;
    }
    let undecided = model.keys.iter().map(|key| key.undecided.len()).sum();
    let unknown = history.operations.iter();
    let unknown = unknown.filter(|operation| operation.outcome == Outcome::Unknown);
    Ok(Statistics {
        operations: history.operations.len(),
        unknown: unknown.count(),
        undecided,
        keys: model.keys.len(),
        revisions: model.steps.len(),
        watches: history.watches.len(),
        events: history.watches.iter().map(|log| log.events.len()).sum(),
        notifications: history
            .informers
            .iter()
            .map(|log| log.notifications.len())
            .sum(),
        branches,
    })
}

fn check_watches(model: &model::Model<'_>, order: &order::Order) -> Result<(), Violation> {
    let mut successors: HashMap<u64, Vec<&WatchLog>> = HashMap::new();
    for log in &model.history.watches {
        if let Some(resumed) = log.resumes {
            successors.entry(resumed).or_default().push(log);
        }
    }
    for log in &model.history.watches {
        let successors = successors.get(&log.id).map_or(&[][..], |logs| &logs[..]);
        watch::check_watch(model, order, log, successors)?;
    }
    Ok(())
}

/// Checks that the history can have been recorded.
fn check_form(history: &History) -> Result<(), Violation> {
    let mut ids = HashMap::new();
    for operation in &history.operations {
        let malformed = |reason: &str| Violation::Malformed {
            at: Source::Operation(operation.id),
            reason: reason.to_owned(),
        };
        if ids.insert(operation.id, ()).is_some() {
            return Err(malformed("its id is not unique"));
        }
        match operation.returned {
            Some(returned) if returned < operation.call => {
                return Err(malformed("it returned before it was called"));
            }
            None if operation.outcome != Outcome::Unknown => {
                return Err(malformed("it has an outcome, but did not return"));
            }
            _ => {}
        }
        if !operation.fits() {
            return Err(malformed("its outcome is that of another kind of request"));
        }
    }
    Ok(())
}

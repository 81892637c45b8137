//! Makes a history with a violation smaller, by delta debugging: removes ever smaller parts while the violation remains. It only
//! removes what a correct history does not need to be correct, so the rest still proves the original violation.

use std::collections::BTreeSet;

use super::check;
use super::history::{EventKind, History, Object, Operation, Outcome, Request};
use super::violation::Violation;

/// Removes what a violation of the same kind as `violation` does not need.
pub fn shrink_violation(history: &History, violation: &Violation) -> History {
    shrink(history, |history| {
        check(history).is_err_and(|found| found.is_same_kind(violation))
    })
}

/// Removes the end of a history, keys, clients, operations, watches, informers and events while `still_fails` returns true.
pub fn shrink(history: &History, mut still_fails: impl FnMut(&History) -> bool) -> History {
    let mut history = history.clone();
    loop {
        let before = size(&history);
        shorten(&mut history, &mut still_fails);
        let parts: [(List, bool); 5] = [
            (keys, true),
            (clients, true),
            (operations, true),
            (logs, true),
            (ends_of_logs, false),
        ];
        for (list, is_repeated) in parts {
            remove(&mut history, list, is_repeated, &mut still_fails);
        }
        if size(&history) == before {
            return history;
        }
    }
}

/// Returns the parts of one kind.
type List = fn(&History) -> Vec<Part>;

/// Something that can be removed from a history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Key(String),
    Client(u32),
    Operation(u64),
    Watch(u64),
    Informer(u64),
    FinalState,
    /// The last event of a watch.
    LastEvent(u64),
    /// The last notification of an informer.
    LastNotification(u64),
}

fn size(history: &History) -> usize {
    let events: usize = history.watches.iter().map(|log| log.events.len() + 1).sum();
    let notifications = history.informers.iter();
    let notifications: usize = notifications.map(|log| log.notifications.len() + 1).sum();
    let state = usize::from(history.final_state.is_some());
    history.operations.len() + events + notifications + state + keys(history).len()
}

/// Cuts off everything after a moment, which is as early as possible.
fn shorten(history: &mut History, still_fails: &mut impl FnMut(&History) -> bool) {
    let times = history.operations.iter().map(|operation| operation.call);
    let events = history.watches.iter().flat_map(|log| &log.events);
    let times: BTreeSet<u64> = times.chain(events.map(|event| event.time)).collect();
    let times: Vec<u64> = times.into_iter().collect();
    let (mut low, mut high) = (0, times.len());
    while low < high {
        let middle = low.midpoint(high);
        let candidate = until(history, times[middle]);
        if still_fails(&candidate) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if let Some(time) = times.get(low) {
        let candidate = until(history, *time);
        if still_fails(&candidate) {
            *history = candidate;
        }
    }
}

fn until(history: &History, time: u64) -> History {
    let mut history = history.clone();
    history
        .operations
        .retain(|operation| operation.call <= time);
    history.watches.retain(|log| log.opened <= time);
    for log in &mut history.watches {
        log.events.retain(|event| event.time <= time);
        log.is_drained = false;
    }
    for log in &mut history.informers {
        log.notifications
            .retain(|notification| notification.time <= time);
        log.store = None;
    }
    history.final_state = None;
    history
}

/// Removes as many parts as possible: half of them, then smaller groups.
fn remove(
    history: &mut History,
    list: List,
    is_repeated: bool,
    still_fails: &mut impl FnMut(&History) -> bool,
) {
    let mut parts = list(history);
    let mut group = parts.len().div_ceil(2);
    while group > 0 {
        let mut index = 0;
        let mut is_smaller = false;
        while index < parts.len() {
            let end = parts.len().min(index + group);
            let removed: BTreeSet<Part> = parts[index..end].iter().cloned().collect();
            let candidate = without(history, &removed);
            if size(&candidate) < size(history) && still_fails(&candidate) {
                *history = candidate;
                parts.drain(index..end);
                is_smaller = true;
            } else {
                index = end;
            }
        }
        group = match group {
            1 if is_repeated && is_smaller => 1,
            1 => 0,
            group => group.div_ceil(2),
        };
    }
}

fn keys(history: &History) -> Vec<Part> {
    let mut keys = BTreeSet::new();
    for operation in &history.operations {
        match &operation.request {
            Request::Get { key, .. } => drop(keys.insert(key)),
            Request::List { .. } => {}
            request => keys.extend(request.keys()),
        }
    }
    keys.extend(history.initial.objects.iter().map(|object| &object.key));
    keys.into_iter().map(|key| Part::Key(key.clone())).collect()
}

fn clients(history: &History) -> Vec<Part> {
    let clients = history.operations.iter().map(|operation| operation.client);
    let clients = clients.chain(history.watches.iter().map(|log| log.client));
    let clients = clients.chain(history.informers.iter().map(|log| log.client));
    let clients: BTreeSet<u32> = clients.collect();
    clients.into_iter().map(Part::Client).collect()
}

/// Returns true if a correct history without this operation is correct too: without a write, what others saw of it would be
/// unexplained. Writes are removed with their keys.
fn is_removable(operation: &Operation) -> bool {
    let is_read = operation.request.keys().is_empty();
    is_read || matches!(operation.outcome, Outcome::Failed(_))
}

fn operations(history: &History) -> Vec<Part> {
    let operations = history
        .operations
        .iter()
        .filter(|operation| is_removable(operation));
    operations
        .map(|operation| Part::Operation(operation.id))
        .collect()
}

fn logs(history: &History) -> Vec<Part> {
    let watches = history.watches.iter().map(|log| Part::Watch(log.id));
    let informers = history.informers.iter().map(|log| Part::Informer(log.id));
    watches.chain(informers).chain([Part::FinalState]).collect()
}

/// Returns the ends of all logs, as often as they have entries.
fn ends_of_logs(history: &History) -> Vec<Part> {
    let watches = history.watches.iter();
    let events =
        watches.flat_map(|log| std::iter::repeat_n(Part::LastEvent(log.id), log.events.len()));
    let informers = history.informers.iter();
    let notifications = informers.flat_map(|log| {
        std::iter::repeat_n(Part::LastNotification(log.id), log.notifications.len())
    });
    events.chain(notifications).collect()
}

fn without(history: &History, removed: &BTreeSet<Part>) -> History {
    let mut history = history.clone();
    let has_client = |client: u32| removed.contains(&Part::Client(client));
    history.operations.retain(|operation| {
        let is_removed =
            has_client(operation.client) || removed.contains(&Part::Operation(operation.id));
        !is_removed || !is_removable(operation)
    });
    history
        .watches
        .retain(|log| !has_client(log.client) && !removed.contains(&Part::Watch(log.id)));
    history
        .informers
        .retain(|log| !has_client(log.client) && !removed.contains(&Part::Informer(log.id)));
    if removed.contains(&Part::FinalState) {
        history.final_state = None;
        history
            .watches
            .iter_mut()
            .for_each(|log| log.is_drained = false);
    }
    for log in &mut history.watches {
        if removed.contains(&Part::LastEvent(log.id)) {
            log.events.pop();
            log.is_drained = false;
        }
    }
    for log in &mut history.informers {
        if removed.contains(&Part::LastNotification(log.id)) {
            log.notifications.pop();
            log.store = None;
        }
    }
    let is_removed = |key: &str| removed.contains(&Part::Key(key.to_owned()));
    if removed.iter().any(|part| matches!(part, Part::Key(_))) {
        remove_keys(&mut history, is_removed);
    }
    remove_orphans(&mut history);
    history
}

/// Removes all traces of keys. A correct history remains correct.
fn remove_keys(history: &mut History, is_removed: impl Fn(&str) -> bool) {
    let is_kept = |object: &Object| !is_removed(&object.key);
    history.initial.objects.retain(is_kept);
    if let Some(state) = &mut history.final_state {
        state.snapshot.objects.retain(is_kept);
    }
    history.operations.retain_mut(|operation| {
        if let Outcome::Listed(page) = &mut operation.outcome {
            page.objects.retain(is_kept);
            page.remaining = None;
        }
        match &mut operation.request {
            Request::Transaction { changes } => {
                changes.retain(|change| !is_removed(&change.key));
                !changes.is_empty()
            }
            Request::Get { key, .. } => !is_removed(key),
            request => !request.keys().into_iter().any(|key| is_removed(key)),
        }
    });
    for log in &mut history.watches {
        log.events.retain(|event| match &event.kind {
            EventKind::Added(object) | EventKind::Modified(object) | EventKind::Deleted(object) => {
                is_kept(object)
            }
            _ => true,
        });
    }
    for log in &mut history.informers {
        log.notifications
            .retain(|notification| is_kept(notification.kind.object()));
        if let Some(store) = &mut log.store {
            store.retain(is_kept);
        }
    }
}

/// Removes later pages of lists of which an earlier page is not in the history.
fn remove_orphans(history: &mut History) {
    loop {
        let ids = history.operations.iter().map(|operation| operation.id);
        let ids: BTreeSet<u64> = ids.collect();
        let before = history.operations.len();
        history
            .operations
            .retain(|operation| match &operation.request {
                Request::List {
                    continues: Some(id),
                    ..
                } => ids.contains(id),
                _ => true,
            });
        if history.operations.len() == before {
            return;
        }
    }
}

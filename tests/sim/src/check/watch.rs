//! The events of a watch against the model: the properties of etcd's robustness tests.

use super::history::{
    Content, EventKind, Object, Outcome, ReadVersion, Selector, WatchLog, WatchStart,
};
use super::initial::find_start;
use super::live::{End, Live};
use super::model::{Key, Model, change_id};
use super::order::Order;
use super::violation::{Source, Violation};

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Added,
    Modified,
    Deleted,
}

impl Type {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    pub(super) fn of(kind: &EventKind) -> Option<(Self, &Object)> {
        match kind {
            EventKind::Added(object) => Some((Self::Added, object)),
            EventKind::Modified(object) => Some((Self::Modified, object)),
            EventKind::Deleted(object) => Some((Self::Deleted, object)),
            EventKind::Bookmark { .. } | EventKind::Error { .. } => None,
        }
    }
}

/// An event that a selector makes of a change.
#[derive(Debug)]
pub(super) struct Expected<'m, 'a> {
    pub(super) revision: u64,
    pub(super) key: &'m Key<'a>,
    pub(super) kind: Type,
    pub(super) previous: Option<&'a Content>,
    pub(super) previous_revision: u64,
    pub(super) origin: Source,
    /// False if writes that are not decided may have changed what preceded the change, and so the type.
    pub(super) is_certain: bool,
    /// True if there is an event of the change in any case.
    pub(super) is_due: bool,
}

/// Returns all events that a selector makes of the changes in the model, in order.
pub(super) fn expected_events<'m, 'a>(
    model: &'m Model<'a>,
    selector: &'a Selector,
) -> Vec<Expected<'m, 'a>> {
    let mut events = Vec::new();
    for key in model.keys_of(selector) {
        let mut previous = None;
        let mut previous_revision = 0;
        for version in &key.versions {
            let precondition = version.owner.map(|owner| model.operation(owner));
            let precondition = precondition.and_then(|owner| owner.request.required_revision());
            let is_hidden = model.may_hide(key, previous_revision, version.revision);
            if precondition == Some(0) {
                // A create: a deletion that no client saw may precede it.
                previous = None;
            }
            let is_pinned = precondition.is_some_and(|p| p == 0 || p == previous_revision);
            let is_certain =
                model.history.initial.revision < version.revision && (!is_hidden || is_pinned);
            let has_matched = previous.is_some_and(|content| selector.matches(key.name, content));
            let content = version.content;
            let matches = content.is_some_and(|content| selector.matches(key.name, content));
            let kind = match (has_matched, matches) {
                (false, true) => Some(Type::Added),
                (true, true) => Some(Type::Modified),
                (true, false) => Some(Type::Deleted),
                (false, false) => (!is_certain).then_some(Type::Deleted),
            };
            events.extend(kind.map(|kind| Expected {
                revision: version.revision,
                key,
                kind,
                previous,
                previous_revision,
                origin: model.origin(version),
                is_certain,
                is_due: is_certain
                    || (matches && model.history.initial.revision < version.revision),
            }));
            previous = content;
            previous_revision = version.revision;
        }
    }
    events.sort_by_key(|event| event.revision);
    events
}

/// Checks one watch.
pub(super) fn check_watch(
    model: &Model<'_>,
    order: &Order,
    log: &WatchLog,
    successors: &[&WatchLog],
) -> Result<(), Violation> {
    check_errors(log)?;
    let expected = expected_events(model, &log.selector);
    let after = match log.start {
        WatchStart::After(revision) => {
            let next = expected.partition_point(|event| event.revision <= revision);
            let live = Live::new(log, &expected, next, 0, revision);
            live.run(model).map_err(|(_, violation)| violation)?
        }
        WatchStart::State(version) => {
            let end = find_start(model, log, &expected)?;
            if let Some(next) = end.first {
                check_freshness(order, model, log, version, expected.get(next))?;
            }
            end
        }
        WatchStart::Now(version) => {
            let first = log.events.iter().find_map(|event| match event.kind {
                EventKind::Error { .. } => None,
                EventKind::Bookmark { revision, .. } => Some(revision + 1),
                _ => event.kind.revision(),
            });
            let first = first.unwrap_or(u64::MAX);
            let next = expected.partition_point(|event| event.revision < first);
            let floor = match version {
                ReadVersion::Consistent => order.steps_before(log.opened),
                _ => 0,
            };
            let floor = floor
                .checked_sub(1)
                .map_or(0, |step| model.steps[step].revision);
            let live = Live::new(log, &expected, next, 0, floor);
            live.run(model).map_err(|(_, violation)| violation)?
        }
    };
    check_end(model, log, &expected, &after, successors)?;
    check_deletes(model, order, log)
}

fn check_errors(log: &WatchLog) -> Result<(), Violation> {
    let mut has_error = false;
    for (index, event) in log.events.iter().enumerate() {
        let at = Source::Event {
            watch: log.id,
            index,
        };
        if has_error {
            return Err(Violation::EventAfterError { event: at });
        }
        if let EventKind::Error { code, is_legal } = event.kind {
            has_error = true;
            if code == 410 && !is_legal {
                return Err(Violation::UnjustifiedExpiry { at });
            }
        }
    }
    Ok(())
}

/// The first change after the initial state must not have happened before what the request demands.
fn check_freshness(
    order: &Order,
    model: &Model<'_>,
    log: &WatchLog,
    version: ReadVersion,
    next: Option<&Expected<'_, '_>>,
) -> Result<(), Violation> {
    let read = Source::Watch(log.id);
    let Some(next) = next else {
        return Ok(());
    };
    match version {
        ReadVersion::NotOlderThan(minimum) if next.revision <= minimum => {
            Err(Violation::TooOld { at: read, minimum })
        }
        ReadVersion::Consistent => {
            let step = model.steps_up_to(next.revision).checked_sub(1);
            match step.map(|step| order.latest[step]) {
                Some(latest) if latest.time < log.opened => Err(Violation::StaleRead {
                    read,
                    newer: latest.source,
                }),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Checks what must have been delivered when a watch ended.
fn check_end(
    model: &Model<'_>,
    log: &WatchLog,
    expected: &[Expected<'_, '_>],
    end: &End,
    successors: &[&WatchLog],
) -> Result<(), Violation> {
    let watch = Source::Watch(log.id);
    let missing = |up_to: u64| {
        let mut missing = end.missing.iter().map(|index| &expected[*index]);
        missing.find(|event| event.is_due && event.revision <= up_to)
    };
    let resumes_last =
        |next: &&WatchLog| end.revision > 0 && next.start == WatchStart::After(end.revision);
    if successors.iter().any(resumes_last)
        && let Some(event) = missing(end.revision)
    {
        let missing = change_id(event.key, event.revision);
        return Err(Violation::Atomic { watch, missing });
    }
    let state = model
        .history
        .final_state
        .as_ref()
        .filter(|_| log.is_drained);
    if let Some(state) = state
        && let Some(event) = missing(state.snapshot.revision)
    {
        return Err(Violation::Reliable {
            watch,
            missing: change_id(event.key, event.revision),
            after: Source::Final,
        });
    }
    Ok(())
}

/// A watch that shows every change while an acknowledged delete must have happened shows it.
fn check_deletes(model: &Model<'_>, order: &Order, log: &WatchLog) -> Result<(), Violation> {
    let Some((start, last)) = super::gather::coverage(model.history, log) else {
        return Ok(());
    };
    for key in model.keys_of(&log.selector) {
        let [delete] = key.undecided[..] else {
            continue;
        };
        let operation = model.operation(delete);
        let is_candidate =
            |version: &super::model::Version<'_>| version.candidates.contains(&delete);
        let Some(returned) = operation.returned else {
            continue;
        };
        if operation.outcome == Outcome::Unknown || key.versions.iter().any(is_candidate) {
            continue;
        }
        let before = order.steps_before(operation.call).checked_sub(1);
        let before = before.map_or(model.history.initial.revision, |step| {
            model.steps[step].revision
        });
        let mut after = model
            .steps
            .get(order.steps_possible_at(returned))
            .map(|step| step.revision - 1);
        let state = model.history.final_state.as_ref();
        if let Some(state) = state.filter(|state| returned < state.call) {
            let revision = state.snapshot.revision;
            after = Some(after.map_or(revision, |after| after.min(revision)));
        }
        let Some(after) = after.filter(|after| start <= before && *after <= last) else {
            continue;
        };
        let is_shown = |event: &super::history::WatchEvent| match &event.kind {
            EventKind::Deleted(object) => {
                object.key == key.name && before < object.revision && object.revision <= after
            }
            _ => false,
        };
        if log.events.iter().any(is_shown) {
            continue;
        }
        let is_unchanged = key
            .next_after(before)
            .is_none_or(|next| after < next.revision);
        let present = key.present_at(before).filter(|_| is_unchanged);
        if present.is_some_and(|(_, content)| log.selector.matches(key.name, content)) {
            return Err(Violation::ReliableDelete {
                watch: Source::Watch(log.id),
                key: key.name.to_owned(),
                delete: model.source(delete),
            });
        }
    }
    Ok(())
}

//! Faults: each changes a correct history as an error of the implementation would.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::check::{
    EventKind, Failure, History, NotificationKind, Object, Operation, Outcome, Page, ReadVersion,
    Request, WatchLog, WatchStart,
};

/// Changes a history, if it has what the fault needs. The first watch shows everything.
pub(super) type Fault = fn(&mut Rng, &mut History) -> Option<()>;

/// All faults: the property that each breaks, and the change.
pub(super) const FAULTS: &[(&str, &str, Fault)] = &[
    ("lost write", "LostWrite", lost_write),
    ("stale get", "StaleRead", stale_get),
    ("stale list", "StaleRead", stale_list),
    ("absent get", "StaleRead", absent_get),
    ("list of two revisions", "WrongState", mixed_list),
    ("page skew", "PageSkew", page_skew),
    ("wrong exact revision", "WrongRevision", wrong_exact),
    ("revision reused", "RevisionReused", revision_reused),
    ("revision went back", "RevisionWentBack", revision_went_back),
    ("reordered event", "Ordered", reordered),
    ("duplicated event", "Unique", duplicated),
    ("missing event", "Reliable", missing),
    ("split revision", "Atomic", split),
    ("created is modified", "IsCreate", wrong_create),
    ("modified is deleted", "EventType", wrong_type),
    ("wrong filter", "Filter", wrong_filter),
    ("wrong previous state", "PrevKV", wrong_previous),
    ("resume that skips", "Resumable", skipping_resume),
    ("bookmark too high", "Bookmarkable", high_bookmark),
    ("incomplete initial state", "InitialState", incomplete_state),
    ("diverged informer", "InformerDiverged", diverged_informer),
    ("informer goes back", "InformerWentBack", informer_back),
];

fn choose<T>(rng: &mut Rng, mut choices: Vec<T>) -> Option<T> {
    let count = choices.len();
    (count > 0).then(|| choices.swap_remove(rng.usize(0..count)))
}

fn revision_of(operation: &Operation) -> Option<u64> {
    match operation.outcome {
        Outcome::Written { revision } => Some(revision),
        Outcome::Deleted { revision } => revision,
        _ => None,
    }
}

/// Returns the acknowledged writes of a history by their revisions.
fn writes(history: &History) -> BTreeMap<u64, &Operation> {
    let operations = history.operations.iter();
    let writes = operations.filter_map(|operation| Some((revision_of(operation)?, operation)));
    writes.collect()
}

/// Returns the states of all keys at a revision.
fn state_at(history: &History, revision: u64) -> BTreeMap<String, Object> {
    let initial = history.initial.objects.iter();
    let mut state: BTreeMap<String, Object> = initial
        .map(|object| (object.key.clone(), object.clone()))
        .collect();
    for event in &history.watches[0].events {
        match &event.kind {
            EventKind::Deleted(object) if object.revision <= revision => {
                state.remove(&object.key);
            }
            EventKind::Added(object) | EventKind::Modified(object)
                if object.revision <= revision =>
            {
                state.insert(object.key.clone(), object.clone());
            }
            _ => {}
        }
    }
    state
}

fn lost_write(rng: &mut Rng, history: &mut History) -> Option<()> {
    let writes = writes(history);
    let objects = &history.final_state.as_ref()?.snapshot.objects;
    let found = (0..objects.len()).filter(|index| writes.contains_key(&objects[*index].revision));
    let found = choose(rng, found.collect())?;
    let objects = &mut history.final_state.as_mut()?.snapshot.objects;
    objects.remove(found);
    Some(())
}

/// Returns a revision before an acknowledged write of a key (or of any) that precedes an operation.
fn before_acknowledged(
    rng: &mut Rng,
    history: &History,
    operation: &Operation,
    key: Option<&str>,
) -> Option<u64> {
    let is_before = |write: &&Operation| {
        let changes_key = |key: &str| write.request.keys().iter().any(|other| *other == key);
        write
            .returned
            .is_some_and(|returned| returned < operation.call)
            && key.is_none_or(changes_key)
    };
    let writes = writes(history);
    let revisions = writes.iter().filter(|(_, write)| is_before(write));
    let revision = choose(rng, revisions.map(|(revision, _)| *revision).collect())?;
    Some(revision - 1)
}

fn stale_get(rng: &mut Rng, history: &mut History) -> Option<()> {
    let mut choices = Vec::new();
    for (index, operation) in history.operations.iter().enumerate() {
        if let Request::Get {
            key,
            version: ReadVersion::Consistent,
        } = &operation.request
            && operation.outcome != Outcome::Unknown
            && let Some(revision) = before_acknowledged(rng, history, operation, Some(key))
            && let Some(object) = state_at(history, revision).remove(key)
        {
            choices.push((index, object));
        }
    }
    let (index, object) = choose(rng, choices)?;
    history.operations[index].outcome = Outcome::Found(object);
    Some(())
}

fn is_conditional(operation: &Operation) -> bool {
    let precondition = match &operation.request {
        Request::Update { precondition, .. } => precondition,
        _ => &None,
    };
    precondition.is_some()
}

fn is_whole_list(operation: &Operation) -> bool {
    let Request::List {
        version,
        limit: None,
        ..
    } = operation.request
    else {
        return false;
    };
    let is_listed = matches!(operation.outcome, Outcome::Listed(_));
    version == ReadVersion::Consistent && is_listed
}

fn lists(history: &History) -> Vec<usize> {
    let operations = history.operations.iter().enumerate();
    let lists = operations.filter(|(_, operation)| is_whole_list(operation));
    lists.map(|(index, _)| index).collect()
}

fn stale_list(rng: &mut Rng, history: &mut History) -> Option<()> {
    let index = choose(rng, lists(history))?;
    let operation = &history.operations[index];
    let revision = before_acknowledged(rng, history, operation, None)?;
    let Request::List { selector, .. } = &operation.request else {
        return None;
    };
    let mut objects: Vec<Object> = state_at(history, revision).into_values().collect();
    objects.retain(|object| selector.matches(&object.key, &object.content));
    history.operations[index].outcome = Outcome::Listed(Page {
        revision,
        objects,
        has_more: false,
        remaining: None,
    });
    (history.initial.revision <= revision).then_some(())
}

fn absent_get(rng: &mut Rng, history: &mut History) -> Option<()> {
    let is_deleted = |key: &str| {
        let mut events = history.watches[0].events.iter();
        events.any(|event| matches!(&event.kind, EventKind::Deleted(object) if object.key == key))
    };
    let initial = &history.initial.objects;
    let operations = history.operations.iter().enumerate();
    let gets = operations.filter(|(_, operation)| match &operation.request {
        Request::Get { key, version } => {
            let is_present = initial.iter().any(|object| object.key == *key);
            *version == ReadVersion::Consistent
                && is_present
                && !is_deleted(key)
                && operation.outcome != Outcome::Unknown
        }
        _ => false,
    });
    let index = choose(rng, gets.map(|(index, _)| index).collect())?;
    history.operations[index].outcome = Outcome::Failed(Failure::NotFound);
    Some(())
}

fn mixed_list(rng: &mut Rng, history: &mut History) -> Option<()> {
    let index = choose(rng, lists(history))?;
    let Outcome::Listed(page) = history.operations[index].outcome.clone() else {
        return None;
    };
    let mut choices = Vec::new();
    for (position, object) in page.objects.iter().enumerate() {
        let older = state_at(history, object.revision - 1).remove(&object.key);
        let older = older.filter(|older| older.revision < object.revision);
        choices.extend(older.map(|older| (position, older)));
    }
    let (position, older) = choose(rng, choices)?;
    if let Outcome::Listed(page) = &mut history.operations[index].outcome {
        page.objects[position] = older;
    }
    Some(())
}

fn page_skew(rng: &mut Rng, history: &mut History) -> Option<()> {
    let mut pages: Vec<&mut Page> = Vec::new();
    for operation in &mut history.operations {
        if let (Request::List { continues, .. }, Outcome::Listed(page)) =
            (&operation.request, &mut operation.outcome)
            && continues.is_some()
        {
            pages.push(page);
        }
    }
    choose(rng, pages)?.revision -= 1;
    Some(())
}

fn wrong_exact(rng: &mut Rng, history: &mut History) -> Option<()> {
    let mut pages: Vec<&mut Page> = Vec::new();
    for operation in &mut history.operations {
        if let (
            Request::List {
                version: ReadVersion::Exact(_),
                continues: None,
                limit: None,
                ..
            },
            Outcome::Listed(page),
        ) = (&operation.request, &mut operation.outcome)
        {
            pages.push(page);
        }
    }
    choose(rng, pages)?.revision -= 1;
    Some(())
}

fn revision_reused(rng: &mut Rng, history: &mut History) -> Option<()> {
    let revisions: Vec<u64> = writes(history).into_keys().collect();
    let other = choose(rng, revisions)?;
    let mut written: Vec<&mut u64> = Vec::new();
    for operation in &mut history.operations {
        let is_conditional = is_conditional(operation);
        if let Outcome::Written { revision } = &mut operation.outcome
            && *revision != other
            && !is_conditional
        {
            written.push(revision);
        }
    }
    *choose(rng, written)? = other;
    Some(())
}

fn revision_went_back(rng: &mut Rng, history: &mut History) -> Option<()> {
    history.watches.clear();
    history.informers.clear();
    history.final_state = None;
    history
        .operations
        .retain(|operation| !operation.request.keys().is_empty());
    let operations = history.operations.iter().enumerate();
    let writes = operations.filter(|(_, operation)| {
        matches!(operation.outcome, Outcome::Written { .. }) && !is_conditional(operation)
    });
    let writes: Vec<(usize, Operation)> = writes.map(|(i, o)| (i, o.clone())).collect();
    let mut pairs = Vec::new();
    for (first, earlier) in &writes {
        for (second, later) in &writes {
            if earlier.returned < Some(later.call) {
                pairs.push((*first, *second));
            }
        }
    }
    let (first, second) = choose(rng, pairs)?;
    let outcome = history.operations[first].outcome.clone();
    let other = std::mem::replace(&mut history.operations[second].outcome, outcome);
    history.operations[first].outcome = other;
    Some(())
}

/// Returns the indices of events of the complete watch whose writes have responses with their revisions, and that are not the
/// first of the watch, nor beside events of the same revision. Objects follow, not bookmarks.
fn certain_events(history: &History) -> Vec<usize> {
    let writes = writes(history);
    let events = &history.watches[0].events;
    let revision = |index: usize| events[index].kind.object().map(|object| object.revision);
    let indices = (1..events.len().saturating_sub(1)).filter(|index| {
        let (before, here) = (revision(*index - 1), revision(*index));
        let after = revision(*index + 1);
        let neighbours = before.is_some() && after.is_some() && before < here && here < after;
        neighbours && here.is_some_and(|here| writes.contains_key(&here))
    });
    indices.collect()
}

fn reordered(rng: &mut Rng, history: &mut History) -> Option<()> {
    let index = choose(rng, certain_events(history))?;
    let events = &mut history.watches[0].events;
    let (first, second) = (events[index].kind.clone(), events[index + 1].kind.clone());
    // Late, so that no event shows a revision from the future.
    events[index].time = events[index + 1].time;
    events[index].kind = second;
    events[index + 1].kind = first;
    Some(())
}

fn duplicated(rng: &mut Rng, history: &mut History) -> Option<()> {
    let index = choose(rng, certain_events(history))?;
    let events = &mut history.watches[0].events;
    let event = events[index].clone();
    events.insert(index + 1, event);
    Some(())
}

fn missing(rng: &mut Rng, history: &mut History) -> Option<()> {
    let index = choose(rng, certain_events(history))?;
    history.watches[0].events.remove(index);
    Some(())
}

fn split(rng: &mut Rng, history: &mut History) -> Option<()> {
    let writes = writes(history);
    let events = &history.watches[0].events;
    let revision = |index: usize| events[index].kind.object().map(|object| object.revision);
    let pairs = (1..events.len()).filter(|index| {
        let here = revision(*index);
        here.is_some_and(|here| writes.contains_key(&here)) && here == revision(*index - 1)
    });
    let index = choose(rng, pairs.collect())?;
    history.watches[0].events.truncate(index);
    history.watches[0].is_drained = false;
    let first = history.watches[0].clone();
    history.watches.push(WatchLog {
        id: 2,
        start: WatchStart::After(first.events.last()?.kind.revision()?),
        resumes: Some(first.id),
        events: Vec::new(),
        ..first
    });
    Some(())
}

fn wrong_create(rng: &mut Rng, history: &mut History) -> Option<()> {
    let index = choose(rng, certain_events(history))?;
    let event = &mut history.watches[0].events[index];
    event.kind = match &event.kind {
        EventKind::Added(object) => EventKind::Modified(object.clone()),
        EventKind::Modified(object) => EventKind::Added(object.clone()),
        _ => return None,
    };
    Some(())
}

fn wrong_type(rng: &mut Rng, history: &mut History) -> Option<()> {
    let index = choose(rng, certain_events(history))?;
    let event = &mut history.watches[0].events[index];
    let EventKind::Modified(object) = &event.kind else {
        return None;
    };
    event.kind = EventKind::Deleted(object.clone());
    Some(())
}

fn wrong_filter(rng: &mut Rng, history: &mut History) -> Option<()> {
    let all = history.watches[0].events.clone();
    let mut choices = Vec::new();
    for log in &history.watches[1..] {
        for event in &all {
            if let EventKind::Added(object) | EventKind::Modified(object) = &event.kind
                && !log.selector.matches(&object.key, &object.content)
            {
                choices.push((log.id, event.clone()));
            }
        }
    }
    let (id, mut event) = choose(rng, choices)?;
    let log = history.watches.iter_mut().find(|log| log.id == id)?;
    let is_state = matches!(log.start, WatchStart::State(_));
    event.time = event.time.max(log.events.last()?.time);
    log.events.push(event);
    (!is_state).then_some(())
}

fn wrong_previous(rng: &mut Rng, history: &mut History) -> Option<()> {
    let mut choices: Vec<&mut Object> = Vec::new();
    for event in &mut history.watches[0].events {
        if let EventKind::Deleted(object) = &mut event.kind {
            choices.push(object);
        }
    }
    choose(rng, choices)?.content.value += 1;
    Some(())
}

fn skipping_resume(rng: &mut Rng, history: &mut History) -> Option<()> {
    let writes = writes(history);
    let logs = (1..history.watches.len()).filter(|index| {
        let log = &history.watches[*index];
        let revision = |index: usize| {
            let event = log.events.get(index)?;
            event.kind.object().map(|object| object.revision)
        };
        let is_certain = revision(0).is_some_and(|revision| writes.contains_key(&revision));
        let starts = matches!(log.start, WatchStart::After(_));
        starts && is_certain && revision(1) > revision(0)
    });
    let index = choose(rng, logs.collect())?;
    history.watches[index].events.remove(0);
    Some(())
}

fn high_bookmark(rng: &mut Rng, history: &mut History) -> Option<()> {
    let writes = writes(history);
    let events = &history.watches[0].events;
    let mut choices = Vec::new();
    for index in 1..events.len() {
        let revision = events[index].kind.object().map(|object| object.revision);
        let is_bookmark = matches!(events[index - 1].kind, EventKind::Bookmark { .. });
        if let Some(revision) = revision.filter(|revision| writes.contains_key(revision))
            && is_bookmark
        {
            choices.push((index - 1, revision, events[index].time));
        }
    }
    let (index, revision, time) = choose(rng, choices)?;
    let event = &mut history.watches[0].events[index];
    event.time = time;
    event.kind = EventKind::Bookmark {
        revision,
        ends_initial_events: false,
    };
    Some(())
}

fn incomplete_state(rng: &mut Rng, history: &mut History) -> Option<()> {
    let is_end = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::Bookmark {
                ends_initial_events: true,
                ..
            }
        )
    };
    let logs = history.watches.iter_mut();
    let logs = logs.filter_map(|log| {
        let end = log.events.iter().position(|event| is_end(&event.kind))?;
        (end > 0).then_some((log, end))
    });
    let (log, end) = choose(rng, logs.collect())?;
    log.events.remove(rng.usize(0..end));
    Some(())
}

fn diverged_informer(rng: &mut Rng, history: &mut History) -> Option<()> {
    let stores = history
        .informers
        .iter_mut()
        .filter_map(|log| log.store.as_mut());
    let store = choose(rng, stores.filter(|store| !store.is_empty()).collect())?;
    store.remove(rng.usize(0..store.len()));
    Some(())
}

fn informer_back(rng: &mut Rng, history: &mut History) -> Option<()> {
    let log = choose(rng, history.informers.iter_mut().collect())?;
    let mut pairs = Vec::new();
    for (index, later) in log.notifications.iter().enumerate() {
        let before = &log.notifications[..index];
        let same = |object: &Object| object.key == later.kind.object().key;
        let last = before
            .iter()
            .rev()
            .find(|earlier| same(earlier.kind.object()));
        if let NotificationKind::Updated(_) = later.kind
            && let Some(last) = last
        {
            pairs.push((index, last.kind.object().clone()));
        }
    }
    let (index, object) = choose(rng, pairs)?;
    let mut again = log.notifications[index].clone();
    again.kind = NotificationKind::Updated(object);
    log.notifications.insert(index + 1, again);
    Some(())
}

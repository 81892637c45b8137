//! The initial events of a watch: which of its first events are the state that it begins with, and at which revision.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

use super::history::{EventKind, Object, WatchLog};
use super::live::{End, Live};
use super::model::{Model, change_id};
use super::violation::{Source, Violation};
use super::watch::{Expected, Type};

/// Sums of the hashes of the objects of a state, whatever their order. Keys of which writes are undecided are left out: they may be
/// absent where the model has them.
struct Hashes<'m, 'a> {
    state: RandomState,
    model: &'m Model<'a>,
}

impl Hashes<'_, '_> {
    fn hash(&self, key: &str, revision: u64) -> u64 {
        let found = self.model.key(key);
        if found.is_some_and(|key| !key.undecided.is_empty()) {
            return 0;
        }
        let mut hasher = self.state.build_hasher();
        hasher.write(key.as_bytes());
        hasher.write_u64(revision);
        hasher.finish()
    }

    /// Returns the numbers of expected events after which a state has a sum.
    fn of_states(&self, expected: &[Expected<'_, '_>]) -> HashMap<u64, Vec<usize>> {
        let mut states: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut present: HashSet<(&str, u64)> = HashSet::new();
        let mut sum = 0_u64;
        states.entry(sum).or_default().push(0);
        for (index, event) in expected.iter().enumerate() {
            let name = event.key.name;
            if present.remove(&(name, event.previous_revision)) {
                sum = sum.wrapping_sub(self.hash(name, event.previous_revision));
            }
            if event.kind != Type::Deleted {
                present.insert((name, event.revision));
                sum = sum.wrapping_add(self.hash(name, event.revision));
            }
            let is_last = expected
                .get(index + 1)
                .is_none_or(|next| next.revision != event.revision);
            if is_last {
                states.entry(sum).or_default().push(index + 1);
            }
        }
        states
    }

    /// Returns the sums of the first events, as long as they are ADDED events of different keys.
    fn of_events(&self, log: &WatchLog) -> Vec<u64> {
        let mut sums = vec![0_u64];
        let mut keys = HashSet::new();
        for event in &log.events {
            let EventKind::Added(object) = &event.kind else {
                break;
            };
            if !keys.insert(&object.key) {
                break;
            }
            let before = sums.last().copied().unwrap_or_default();
            sums.push(before.wrapping_add(self.hash(&object.key, object.revision)));
        }
        sums
    }
}

/// Finds the state that a watch began with, and checks all events.
pub(super) fn find_start(
    model: &Model<'_>,
    log: &WatchLog,
    expected: &[Expected<'_, '_>],
) -> Result<End, Violation> {
    let hashes = Hashes {
        state: RandomState::new(),
        model,
    };
    let states = hashes.of_states(expected);
    let sums = hashes.of_events(log);
    let has_only_errors = log
        .events
        .iter()
        .all(|event| matches!(event.kind, EventKind::Error { .. }));
    if has_only_errors && !log.is_drained {
        // It failed, or its connection broke, before it had shown anything. That is not an empty state.
        return Ok(End {
            first: None,
            missing: Vec::new(),
            revision: 0,
        });
    }
    let end = log.events.iter().find_map(|event| match event.kind {
        EventKind::Bookmark {
            ends_initial_events: true,
            revision,
        } => Some(revision),
        _ => None,
    });
    // The state is not older than the initial one of the history.
    let oldest = model.history.initial.revision;
    let oldest = expected.partition_point(|event| event.revision <= oldest);
    let mut furthest: Option<(usize, usize, Violation)> = None;
    for (count, sum) in sums.iter().enumerate().rev() {
        let newest = objects(log, count).map(|object| object.revision).max();
        for &first in states.get(sum).into_iter().flatten().rev() {
            // The initial events are not newer than the first change after them.
            let next = expected.get(first).map(|next| next.revision);
            if first < oldest || next.is_some_and(|next| newest >= Some(next)) {
                continue;
            }
            let floor = first
                .checked_sub(1)
                .map_or(0, |last| expected[last].revision);
            // Nor is the state newer than the bookmark that ends them.
            if end.is_some_and(|end| end < floor) {
                continue;
            }
            match Live::new(log, expected, first, count, floor).run(model) {
                Ok(end) => return Ok(end),
                Err((index, violation)) => {
                    let is_further = furthest.as_ref().is_none_or(|(other, ..)| *other < index);
                    if is_further {
                        furthest = Some((index, count, violation));
                    }
                }
            }
        }
    }
    let run = sums.len() - 1;
    if run == log.events.len() && is_part_of_state(model, log) {
        // The watch ended within its initial events.
        return Ok(End {
            first: None,
            missing: Vec::new(),
            revision: 0,
        });
    }
    if let Some(repeated) = repeated(log, run) {
        return Err(repeated);
    }
    let ends_at_run = log.events.get(run).is_some_and(|event| {
        matches!(
            event.kind,
            EventKind::Bookmark {
                ends_initial_events: true,
                ..
            }
        )
    });
    match furthest {
        Some((index, count, violation)) if index > run || (count > 0 && !ends_at_run) => {
            Err(violation)
        }
        _ => Err(Violation::InitialState {
            watch: Source::Watch(log.id),
            reason: difference(model, log, run),
        }),
    }
}

fn objects(log: &WatchLog, count: usize) -> impl Iterator<Item = &Object> {
    log.events[..count]
        .iter()
        .filter_map(|event| event.kind.object())
}

/// Returns true if all objects existed at one revision.
fn is_part_of_state(model: &Model<'_>, log: &WatchLog) -> bool {
    let revisions = objects(log, log.events.len()).map(|object| object.revision);
    let newest = revisions.max().unwrap_or_default();
    objects(log, log.events.len()).all(|object| {
        let next = model
            .key(&object.key)
            .and_then(|key| key.next_after(object.revision));
        let is_selected = log.selector.matches(&object.key, &object.content);
        is_selected && next.is_none_or(|next| newest < next.revision)
    })
}

/// Returns a violation if the event after the initial run repeats one of it.
fn repeated(log: &WatchLog, run: usize) -> Option<Violation> {
    let next = log.events.get(run)?.kind.object()?;
    let is_same = |object: &Object| object.key == next.key && object.revision == next.revision;
    let first = objects(log, run).position(is_same)?;
    let at = |index: usize| Source::Event {
        watch: log.id,
        index,
    };
    Some(Violation::Unique {
        event: at(run),
        first: at(first),
    })
}

/// Describes how the initial events differ from the state at the bookmark that ends them, or at their newest revision.
fn difference(model: &Model<'_>, log: &WatchLog, run: usize) -> String {
    let newest = objects(log, run).map(|object| object.revision).max();
    let revision = match log.events.get(run).map(|event| &event.kind) {
        Some(EventKind::Bookmark { revision, .. }) => *revision,
        _ => newest.unwrap_or(model.history.initial.revision),
    };
    for object in objects(log, run) {
        let current = model
            .key(&object.key)
            .and_then(|key| key.present_at(revision));
        let found = current.map(|(version, _)| version.revision);
        if !log.selector.matches(&object.key, &object.content) {
            return format!("the selector excludes {}", object.key);
        }
        if found != Some(object.revision) {
            let change = format!("{} at {}", object.key, object.revision);
            return format!("{change} is not in the state at revision {revision}");
        }
    }
    let has = |name: &str| objects(log, run).any(|object| object.key == name);
    for key in model.keys_of(&log.selector) {
        if let Some((version, content)) = key.present_at(revision)
            && log.selector.matches(key.name, content)
            && !has(key.name)
            && key.undecided.is_empty()
        {
            let change = change_id(key, version.revision);
            return format!("{change} is missing in the state at revision {revision}");
        }
    }
    format!("they differ from the state at revision {revision} by later events")
}

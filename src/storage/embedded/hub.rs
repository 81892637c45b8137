//! The meeting place of the writer and the watches: the newest changes, in memory and bounded, and
//! which watch has something to read. It reads no table and sends nothing: a watch is a cursor
//! that comes for its changes when it is woken, so a slow one costs a slot and no memory.
//!
//! # Definitions
//!
//! - *Published*: the last revision that watches know of. The writer publishes after its commit, so
//!   it is never ahead of what can be read.
//! - *Tail*: the changes up to the published revision, without a hole, as far back as it reaches: to
//!   the first that somebody has not taken, within limits. What all have taken is let go with the next
//!   publication; a watch that begins in the past reads the log.
//! - *Pending*: a slot's first published revision that concerns its prefix and was not taken.
//!
//! # Invariant
//!
//! A slot without pending has been given every published change of its prefix.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::snapshot::event_bytes;
use crate::api::StorageKey;
use crate::storage::StorageEvent;

/// How much of the newest history is kept in memory: a live watch reads here and never touches the
/// tables. It covers a watch's delay of a second at some thousand writes a second, and with
/// [`TAIL_BYTES_MAX`] stays small against the process.
const TAIL_EVENTS_MAX: usize = 8192;
const TAIL_BYTES_MAX: usize = 8 << 20;

/// How many changes a watch takes at once: the lock is held while they are cloned.
const TAKE_EVENTS_MAX: usize = 1024;

/// Names a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SlotId(u64);

/// What a watch should do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Deliver these: all changes of the prefix up to and including `to`.
    Deliver {
        /// In order; may be empty.
        events: Vec<StorageEvent>,
        /// The position afterwards.
        to: u64,
    },
    /// The tail no longer reaches back to `from`: read the log up to `to`, then `advance`.
    ReadLog {
        /// The first revision to read.
        from: u64,
        /// The last.
        to: u64,
    },
    /// There is nothing; all was delivered up to `at`, the published revision.
    Idle {
        /// The position.
        at: u64,
    },
    /// The watch was ended.
    Ended,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hub(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    published: u64,
    tail: VecDeque<StorageEvent>,
    tail_bytes: usize,
    slots: HashMap<SlotId, Slot>,
    by_prefix: HashMap<Box<str>, Vec<SlotId>>,
    next_slot: u64,
    /// Watches that wait for a revision that was read but is not published yet.
    waiting: Vec<(u64, Arc<Notify>)>,
    closed: bool,
}

#[derive(Debug)]
struct Slot {
    pending: Option<u64>,
    wake: Arc<Notify>,
}

impl Hub {
    /// A hub of a store that is at `revision`.
    pub(super) fn new(revision: u64) -> Self {
        Self(Mutex::new(State {
            published: revision,
            ..State::default()
        }))
    }

    /// Makes `events`, which follow the published revision, known. Called by the writer only.
    pub(super) fn publish(&self, events: Vec<StorageEvent>) {
        let mut wake = Vec::new();
        let mut state = self.0.lock();
        for event in events {
            state.append(event, &mut wake);
        }
        state.trim();
        let published = state.published;
        state.waiting.retain(|(revision, waiter)| {
            let wait = *revision > published;
            if !wait {
                wake.push(waiter.clone());
            }
            wait
        });
        drop(state);
        wake_all(wake);
    }

    /// Adds a watch of `prefix` after revision `after`, which `wake` wakes.
    pub(super) fn add(&self, prefix: &StorageKey, after: u64, wake: Arc<Notify>) -> SlotId {
        let mut state = self.0.lock();
        let id = SlotId(state.next_slot);
        state.next_slot += 1;
        let pending = (after < state.published).then_some(after + 1);
        state.slots.insert(id, Slot { pending, wake });
        let ids = state.by_prefix.entry(prefix.as_str().into()).or_default();
        ids.push(id);
        id
    }

    /// The last revision that watches know of.
    pub(super) fn published(&self) -> u64 {
        self.0.lock().published
    }

    /// Takes a watch out.
    pub(super) fn remove(&self, id: SlotId, prefix: &StorageKey) {
        let mut state = self.0.lock();
        state.slots.remove(&id);
        if let Some(ids) = state.by_prefix.get_mut(prefix.as_str()) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                state.by_prefix.remove(prefix.as_str());
            }
        }
    }

    /// What the watch in slot `id`, which was given everything up to `position`, should do.
    pub(super) fn step(&self, id: SlotId, prefix: &StorageKey, position: u64) -> Step {
        let mut state = self.0.lock();
        let published = state.published;
        let Some(slot) = state.slots.get(&id).filter(|_| !state.closed) else {
            return Step::Ended;
        };
        // A watch that was opened between a commit and its publication is ahead of what is pending.
        let Some(from) = slot.pending.map(|from| from.max(position + 1)) else {
            return Step::Idle { at: published };
        };
        let first = published + 1 - state.tail.len() as u64;
        if from < first {
            return Step::ReadLog {
                from,
                to: published,
            };
        }
        let (mut events, mut to) = (Vec::new(), from - 1);
        for event in state.tail.iter().skip((from - first) as usize) {
            to = event.revision.get();
            if prefix.covers(event.key.as_str()) {
                events.push(event.clone());
            }
            if events.len() == TAKE_EVENTS_MAX {
                break;
            }
        }
        state.advance(id, to);
        Step::Deliver { events, to }
    }

    /// Notes that the watch in slot `id` has read the log up to `to`.
    pub(super) fn advance(&self, id: SlotId, to: u64) {
        self.0.lock().advance(id, to);
    }

    /// Whether `revision` is published; when it is not, `wake` is woken once it is.
    pub(super) fn published_or_wake(&self, revision: u64, wake: &Arc<Notify>) -> bool {
        let mut state = self.0.lock();
        let published = state.published >= revision;
        if !published {
            // A watch that comes again before its revision did must not wait twice.
            state
                .waiting
                .retain(|(_, waiter)| !Arc::ptr_eq(waiter, wake));
            state.waiting.push((revision, wake.clone()));
        }
        published
    }

    /// Ends every watch, and lets no other begin.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let ended = state.end_watches();
        drop(state);
        wake_all(ended);
    }

    /// Ends every watch and begins anew at `revision`: what was published last is lost.
    pub(super) fn restart(&self, revision: u64) {
        let mut state = self.0.lock();
        let ended = state.end_watches();
        state.published = revision;
        state.tail.clear();
        state.tail_bytes = 0;
        drop(state);
        wake_all(ended);
    }
}

fn wake_all(watches: Vec<Arc<Notify>>) {
    for watch in watches {
        watch.notify_one();
    }
}

impl State {
    /// Takes every watch out, and returns who is to be woken to see that.
    fn end_watches(&mut self) -> Vec<Arc<Notify>> {
        self.by_prefix.clear();
        self.waiting.clear();
        self.slots.drain().map(|(_, slot)| slot.wake).collect()
    }

    fn append(&mut self, event: StorageEvent, wake: &mut Vec<Arc<Notify>>) {
        let revision = event.revision.get();
        assert_eq!(revision, self.published + 1, "revisions are dense");
        self.published = revision;
        for prefix in prefixes(event.key.as_str()) {
            for id in self.by_prefix.get(prefix).into_iter().flatten() {
                let slot = self.slots.get_mut(id);
                let slot = slot.expect("a slot is in both maps or in none");
                if slot.pending.is_none() {
                    slot.pending = Some(revision);
                    wake.push(slot.wake.clone());
                }
            }
        }
        self.tail_bytes += event_bytes(&event);
        self.tail.push_back(event);
    }

    /// Lets go of what everybody has taken, and of what is too much. There is a slot for each cache,
    /// not for each client, so to look at all of them costs little beside a commit.
    fn trim(&mut self) {
        let pending = self.slots.values().filter_map(|slot| slot.pending);
        let wanted = pending.min().unwrap_or(u64::MAX);
        while let Some(oldest) = self.tail.front()
            && (oldest.revision.get() < wanted
                || self.tail.len() > TAIL_EVENTS_MAX
                || self.tail_bytes > TAIL_BYTES_MAX)
        {
            self.tail_bytes -= event_bytes(oldest);
            self.tail.pop_front();
        }
    }

    fn advance(&mut self, id: SlotId, to: u64) {
        let published = self.published;
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.pending = (to < published).then_some(to + 1);
        }
    }
}

/// The watchable prefixes of `key`, and the key itself: `/a/`, `/a/b/` and `/a/b/c`.
fn prefixes(key: &str) -> impl Iterator<Item = &str> {
    let ends = key.match_indices('/').map(|(at, _)| at).skip(1);
    ends.map(|at| &key[..=at]).chain([key])
}

#[cfg(test)]
mod tests;

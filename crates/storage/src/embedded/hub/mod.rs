//! The hub between the writer and the watches: a bounded tail of the newest changes in memory, and
//! which watches have events to read. A watch is a cursor that reads when it is woken, so a slow
//! one takes a slot and no further memory.
//!
//! # Definitions
//!
//! - *Published*: the last revision visible to watches. The writer publishes after its commit, so
//!   that every published revision can be read.
//! - *Tail*: the changes up to the published revision without holes, back to the first that a watch
//!   has not read, within limits. Each publication drops the changes that all watches have read; a
//!   watch from an earlier revision reads the log.
//! - *Pending*: the first published revision that a slot's watch has yet to read.
//!
//! # Invariant
//!
//! A slot without a pending revision has received every published change of its prefix.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::snapshot::event_bytes;
use crate::StorageEvent;
use watchet_api::StorageKey;

/// Limits of the tail: a live watch reads it instead of the tables. It covers a delay of a second
/// at some thousand writes per second; [`TAIL_BYTES_MAX`] bounds its memory.
const TAIL_EVENTS_MAX: usize = 8192;
const TAIL_BYTES_MAX: usize = 8 << 20;

/// Maximum number of changes that a watch reads at a time: the lock is held while they are cloned.
const TAKE_EVENTS_MAX: usize = 1024;

/// Identifies a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SlotId(u64);

/// The next step of a watch.
#[derive(Debug)]
pub(super) enum Step {
    /// Deliver these events: all changes of the prefix up to and including `to`.
    Deliver {
        /// In order; may be empty.
        events: Vec<StorageEvent>,
        /// The position after delivery.
        to: u64,
    },
    /// The tail does not reach back to `from`: read the log up to `to`, then call `advance`.
    ReadLog {
        /// The first revision to read.
        from: u64,
        /// The last revision to read.
        to: u64,
    },
    /// No events: everything up to `at`, the published revision, was delivered.
    Idle {
        /// The position.
        at: u64,
    },
    /// The watch has ended.
    Ended,
}

/// See the module documentation.
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
    /// Watches that wait for the publication of a committed revision.
    waiting: Vec<(u64, Arc<Notify>)>,
    closed: bool,
}

#[derive(Debug)]
struct Slot {
    pending: Option<u64>,
    wake: Arc<Notify>,
}

impl Hub {
    /// Returns the hub of a store at `revision`.
    pub(super) fn new(revision: u64) -> Self {
        Self(Mutex::new(State {
            published: revision,
            ..State::default()
        }))
    }

    /// Publishes `events`, which follow the published revision. Only the writer calls it.
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

    /// Adds a watch of `prefix` after revision `after`; `wake` is notified of events.
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

    /// Returns the published revision.
    pub(super) fn published(&self) -> u64 {
        self.0.lock().published
    }

    /// Removes a watch.
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

    /// Returns the next step of the watch in slot `id`, which has received everything up to
    /// `position`.
    pub(super) fn step(&self, id: SlotId, prefix: &StorageKey, position: u64) -> Step {
        let mut state = self.0.lock();
        let published = state.published;
        let Some(slot) = state.slots.get(&id).filter(|_| !state.closed) else {
            return Step::Ended;
        };
        // A watch opened between a commit and its publication is ahead of what is pending.
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

    /// Records that the watch in slot `id` has read the log up to `to`.
    pub(super) fn advance(&self, id: SlotId, to: u64) {
        self.0.lock().advance(id, to);
    }

    /// Returns true if `revision` is published; otherwise `wake` is notified once it is.
    pub(super) fn published_or_wake(&self, revision: u64, wake: &Arc<Notify>) -> bool {
        let mut state = self.0.lock();
        let published = state.published >= revision;
        if !published {
            // A watch that calls again before the publication must not wait twice.
            state
                .waiting
                .retain(|(_, waiter)| !Arc::ptr_eq(waiter, wake));
            state.waiting.push((revision, wake.clone()));
        }
        published
    }

    /// Ends every watch and rejects new ones.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let ended = state.end_watches();
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
    /// Removes every watch and returns their wakers.
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

    /// Drops changes that all watches have read and changes over the limits. There is a slot per
    /// cache, not per client, so examining all slots is cheap compared with a commit.
    fn trim(&mut self) {
        let pending = self.slots.values().filter_map(|slot| slot.pending);
        let first_unread = pending.min().unwrap_or(u64::MAX);
        while let Some(oldest) = self.tail.front()
            && (oldest.revision.get() < first_unread
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

/// Returns the watchable prefixes of `key` and the key itself: `/a/`, `/a/b/` and `/a/b/c`.
fn prefixes(key: &str) -> impl Iterator<Item = &str> {
    let ends = key.match_indices('/').map(|(at, _)| at).skip(1);
    ends.map(|at| &key[..=at]).chain([key])
}

#[cfg(test)]
mod tests;

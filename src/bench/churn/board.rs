//! The board of a churn: what its workers wrote, so that its watchers can be held to it. It decides
//! nothing.
//!
//! # Definitions
//!
//! An object is written a first, a second, a third time; after a write it may be deleted, and the next
//! write creates it again. Write `w` of object `o`, of `n` objects, is marked as event `w * n + o`. Who
//! is told of an object knows by its mark which write that is; that of a deletion is the last write's.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::mix::Verb;
use crate::bench::latency::SharedLatencies;

/// One write of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WriteId {
    pub object: u32,
    pub write: u32,
}

/// What happened to an object at one point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    /// Whether it created the object.
    pub creates: bool,
    pub sent: Instant,
    pub acknowledged: bool,
    /// The deletion that came next, if one did.
    pub deletion: Option<Deletion>,
}

/// A deletion that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deletion {
    pub sent: Instant,
    pub acknowledged: bool,
}

#[derive(Debug)]
pub(super) struct Board {
    /// The writes of each object, by their numbers. Each is written by the one worker that owns the
    /// object, and read by all watchers.
    objects: Vec<Mutex<Vec<Write>>>,
    /// Writes and deletions that are acknowledged: what each watcher is to be told of.
    pub changes: AtomicU64,
    /// Of those, how often a watcher was told.
    pub delivered: AtomicU64,
    /// Requests that were answered.
    pub operations: AtomicU64,
    /// Watchers whose first watch is open.
    pub opened: AtomicU32,
    /// Watchers whose watch ended before it should.
    pub ended: AtomicU32,
    /// Watches that were opened again where the one before had been left.
    pub resumed: AtomicU64,
    by_verb: [SharedLatencies; Verb::ALL.len()],
    /// From sending a write to each watcher.
    pub to_each: SharedLatencies,
}

impl Board {
    pub(super) fn new(objects: u32) -> Self {
        Self {
            objects: (0..objects).map(|_| Mutex::default()).collect(),
            changes: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            opened: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            resumed: AtomicU64::new(0),
            by_verb: Default::default(),
            to_each: SharedLatencies::default(),
        }
    }

    /// How many objects there are.
    pub(super) fn objects(&self) -> u32 {
        self.objects.len() as u32
    }

    /// The event that a write is marked as.
    pub(super) fn event(&self, id: WriteId) -> u32 {
        id.write * self.objects() + id.object
    }

    /// The write that is marked as that event.
    pub(super) fn write_of(&self, event: u32) -> WriteId {
        WriteId {
            object: event % self.objects(),
            write: event / self.objects(),
        }
    }

    /// Notes that an object is about to be written again.
    pub(super) fn sending(&self, object: u32, creates: bool) -> WriteId {
        let mut writes = self.objects[object as usize].lock();
        let write = writes.len() as u32;
        writes.push(Write {
            creates,
            sent: Instant::now(),
            acknowledged: false,
            deletion: None,
        });
        WriteId { object, write }
    }

    /// Notes that what a write made is about to be deleted.
    pub(super) fn deleting(&self, id: WriteId) {
        self.change(id, |write| {
            write.deletion = Some(Deletion {
                sent: Instant::now(),
                acknowledged: false,
            });
        });
    }

    /// Notes that the last that was sent of an object, a write or its deletion, has happened.
    pub(super) fn acknowledged(&self, id: WriteId) {
        self.change(id, |write| match &mut write.deletion {
            Some(deletion) => deletion.acknowledged = true,
            None => write.acknowledged = true,
        });
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn change(&self, id: WriteId, change: impl FnOnce(&mut Write)) {
        change(&mut self.objects[id.object as usize].lock()[id.write as usize]);
    }

    /// What is known of a write; `None` when nobody sent it.
    pub(super) fn look(&self, id: WriteId) -> Option<Write> {
        let writes = self.objects.get(id.object as usize)?.lock();
        writes.get(id.write as usize).copied()
    }

    /// All writes.
    pub(super) fn writes(&self) -> impl Iterator<Item = (WriteId, Write)> {
        (0..).zip(&self.objects).flat_map(|(object, writes)| {
            let writes = writes.lock().clone();
            let id = move |write| WriteId { object, write };
            (0..)
                .zip(writes)
                .map(move |(write, found)| (id(write), found))
        })
    }

    /// The latencies of a verb.
    pub(super) fn latencies(&self, verb: Verb) -> &SharedLatencies {
        &self.by_verb[verb as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_writes_and_back() {
        let board = Board::new(7);
        let id = WriteId {
            object: 3,
            write: 2,
        };
        assert_eq!(board.event(id), 17);
        assert_eq!(board.write_of(17), id);
    }

    #[test]
    fn the_last_that_was_sent_is_acknowledged() {
        let board = Board::new(2);
        let first = board.sending(1, true);
        assert!(!board.look(first).unwrap().acknowledged);
        board.acknowledged(first);
        board.deleting(first);
        let found = board.look(first).unwrap();
        assert!(found.creates && found.acknowledged);
        assert!(!found.deletion.unwrap().acknowledged);
        board.acknowledged(first);
        assert!(board.look(first).unwrap().deletion.unwrap().acknowledged);
        let second = board.sending(1, true);
        assert_eq!((second.object, second.write), (1, 1));
        assert_eq!(board.changes.load(Ordering::Relaxed), 2);
        let ids: Vec<_> = board.writes().map(|(id, _)| id).collect();
        assert_eq!(ids, [first, second]);
        let never = WriteId {
            object: 0,
            write: 0,
        };
        assert!(board.look(never).is_none());
    }
}

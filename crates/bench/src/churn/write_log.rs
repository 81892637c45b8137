//! The log of the writes of a churn, against which its watchers are checked.
//!
//! # Definitions
//!
//! The writes of an object are numbered; after a write the object may be deleted, and the next
//! write creates it again. Write `w` of object `o`, of `n` objects, has the event number `w * n +
//! o`, which the mark of the object contains, so that a watcher knows which write it received. A
//! deleted object has the mark of its last write.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::mix::Verb;
use crate::latency::SharedLatencies;

/// Identifies a write of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WriteId {
    pub object: u32,
    pub write: u32,
}

/// A write that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    /// Whether it creates the object.
    pub creates: bool,
    pub sent: Instant,
    pub acknowledged: bool,
    /// The deletion that followed, if any.
    pub deletion: Option<Deletion>,
}

/// A deletion that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deletion {
    pub sent: Instant,
    pub acknowledged: bool,
}

#[derive(Debug)]
pub(super) struct WriteLog {
    /// The writes of each object by number, written by the worker that owns the object and read by
    /// all watchers.
    objects: Vec<Mutex<Vec<Write>>>,
    /// Acknowledged writes and deletions: what each watcher must receive.
    pub changes: AtomicU64,
    /// How many of them all watchers received in total.
    pub delivered: AtomicU64,
    /// Requests that got a response.
    pub operations: AtomicU64,
    /// Watchers whose first watch is open.
    pub opened: AtomicU32,
    /// Watchers whose watch ended early.
    pub ended: AtomicU32,
    /// Watches that resumed a previous one.
    pub resumed: AtomicU64,
    by_verb: [SharedLatencies; Verb::ALL.len()],
    /// Latencies from sending a write to its receipt by each watcher.
    pub to_each: SharedLatencies,
}

impl WriteLog {
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

    /// Returns the number of objects.
    pub(super) fn objects(&self) -> u32 {
        self.objects.len() as u32
    }

    /// Returns the event number of a write.
    pub(super) fn event(&self, id: WriteId) -> u32 {
        id.write * self.objects() + id.object
    }

    /// Returns the write with that event number.
    pub(super) fn write_of(&self, event: u32) -> WriteId {
        WriteId {
            object: event % self.objects(),
            write: event / self.objects(),
        }
    }

    /// Records that a write of the object is about to be sent.
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

    /// Records that a deletion after this write is about to be sent.
    pub(super) fn deleting(&self, id: WriteId) {
        self.change(id, |write| {
            write.deletion = Some(Deletion {
                sent: Instant::now(),
                acknowledged: false,
            });
        });
    }

    /// Records the acknowledgement of the object's last request, a write or its deletion.
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

    /// Returns a write; `None` if it was never sent.
    pub(super) fn get(&self, id: WriteId) -> Option<Write> {
        let writes = self.objects.get(id.object as usize)?.lock();
        writes.get(id.write as usize).copied()
    }

    /// Returns all writes.
    pub(super) fn writes(&self) -> impl Iterator<Item = (WriteId, Write)> {
        (0..).zip(&self.objects).flat_map(|(object, writes)| {
            let writes = writes.lock().clone();
            let id = move |write| WriteId { object, write };
            (0..)
                .zip(writes)
                .map(move |(write, found)| (id(write), found))
        })
    }

    /// Returns the latencies of a verb.
    pub(super) fn latencies(&self, verb: Verb) -> &SharedLatencies {
        &self.by_verb[verb as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_writes_and_back() {
        let log = WriteLog::new(7);
        let id = WriteId {
            object: 3,
            write: 2,
        };
        assert_eq!(log.event(id), 17);
        assert_eq!(log.write_of(17), id);
    }

    #[test]
    fn the_last_request_is_acknowledged() {
        let log = WriteLog::new(2);
        let first = log.sending(1, true);
        assert!(!log.get(first).unwrap().acknowledged);
        log.acknowledged(first);
        log.deleting(first);
        let found = log.get(first).unwrap();
        assert!(found.creates && found.acknowledged);
        assert!(!found.deletion.unwrap().acknowledged);
        log.acknowledged(first);
        assert!(log.get(first).unwrap().deletion.unwrap().acknowledged);
        let second = log.sending(1, true);
        assert_eq!((second.object, second.write), (1, 1));
        assert_eq!(log.changes.load(Ordering::Relaxed), 2);
        let ids: Vec<_> = log.writes().map(|(id, _)| id).collect();
        assert_eq!(ids, [first, second]);
        let never = WriteId {
            object: 0,
            write: 0,
        };
        assert!(log.get(never).is_none());
    }
}

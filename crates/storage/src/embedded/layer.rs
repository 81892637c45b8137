//! A layer: the changes of consecutive revisions in memory, over those of the tables. It is
//! persistent: a clone is a snapshot that costs two pointers.

use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use imbl::OrdMap;

use super::codec::{Head, Record};
use super::error::Fault;
use super::wal::Frame;
use watchet_api::StorageKey;

/// The approximate memory use of a head: its entry in the map and its key.
const HEAD_BYTES: usize = 128;

/// A point in the sequence of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// The last revision.
    pub(super) revision: u64,
    /// The compacted revision: later events, and the state at it, can be read.
    pub(super) compacted: u64,
    /// The sequence of the last frame. See `wal`.
    pub(super) sequence: u64,
}

/// Changes that the tables do not contain yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer {
    /// The keys that changed, with their last records in this layer.
    heads: OrdMap<StorageKey, Head>,
    /// The frames with records, by their first revisions.
    frames: OrdMap<u64, Arc<Frame>>,
    bytes: usize,
}

/// A layer that no longer changes: the tables are to receive it.
#[derive(Debug, Clone)]
pub(super) struct FrozenLayer {
    pub(super) layer: Layer,
    /// The position after its last frame.
    pub(super) end: Position,
}

impl Layer {
    /// Returns the approximate memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the last record of `key` if it is in this layer.
    pub(super) fn head(&self, key: &str) -> Option<Head> {
        self.heads.get(key).copied()
    }

    /// Returns the changed keys from `start` on, in order.
    pub(super) fn heads_from(&self, start: &str) -> impl Iterator<Item = (&StorageKey, &Head)> {
        self.heads.range::<_, str>((Included(start), Unbounded))
    }

    /// Returns all changed keys, in order.
    pub(super) fn heads(&self) -> impl Iterator<Item = (&StorageKey, &Head)> {
        self.heads.iter()
    }

    /// Returns all records with their revisions, in order.
    pub(super) fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.frames.values().flat_map(|frame| frame.records())
    }

    /// Returns the record of `revision` if it is in this layer.
    pub(super) fn record(&self, revision: u64) -> Option<&[u8]> {
        let (_, frame) = self.frames.get_prev(&revision)?;
        frame.record(revision)
    }

    /// Changes the last record of `key`. Its frame follows.
    pub(super) fn set_head(&mut self, key: StorageKey, head: Head) {
        if self.heads.insert(key, head).is_none() {
            self.bytes += HEAD_BYTES;
        }
    }

    /// Adds a sealed frame, whose heads are set.
    pub(super) fn push(&mut self, frame: Frame) {
        self.bytes += frame.memory();
        if frame.records().next().is_some() {
            self.frames.insert(frame.first(), Arc::new(frame));
        }
    }

    /// Adds a frame that was read from the log.
    pub(super) fn replay(&mut self, frame: Frame) -> Result<(), Fault> {
        for (revision, bytes) in frame.records() {
            let record = Record::decode(revision, bytes)?;
            let key =
                StorageKey::new(record.key).map_err(|error| Fault::Damaged(error.to_string()))?;
            self.set_head(key, record.head(revision));
        }
        self.push(frame);
        Ok(())
    }
}

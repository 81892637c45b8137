//! A batch: operations of the writer on a snapshot, whose changes become one frame of the log.

use bytes::Bytes;

use super::codec::{Head, RECORD_FIXED_LEN, Record};
use super::deadlines::Deadlines;
use super::error::Fault;
use super::layer::{Layer, Position};
use super::snapshot::Snapshot;
use super::space::AllowedWrites;
use super::tables::EXPIRE_KEYS_MAX;
use super::wal::Frame;
use crate::{Expect, KeyValue, Outcome, Put, StorageError, StorageEvent};
use watchet_api::{ResourceVersion, StorageKey};

/// The number of bytes by which a value may grow when the disk is nearly full: for a time of deletion
/// and its grace period.
const GROWTH_MAX: usize = 512;

/// Operations in progress.
pub(super) struct Batch<'a> {
    /// The state before, except that its active layer has the heads of this batch.
    snapshot: Snapshot,
    frame: Frame,
    position: Position,
    deadlines: &'a mut Deadlines,
    events: Vec<StorageEvent>,
    allowed: AllowedWrites,
}

/// The changes of a batch.
pub(super) struct Changes {
    /// The active layer with the heads of the batch, but without its frame.
    pub(super) layer: Layer,
    pub(super) frame: Frame,
    /// The position after the batch.
    pub(super) position: Position,
    /// The changes, ordered by revision.
    pub(super) events: Vec<StorageEvent>,
}

impl<'a> Batch<'a> {
    /// Begins a batch of `operations` with values of `bytes` in total.
    pub(super) fn begin(
        snapshot: Snapshot,
        deadlines: &'a mut Deadlines,
        operations: usize,
        bytes: usize,
    ) -> Self {
        const KEY_BYTES: usize = 100;
        let position = snapshot.position;
        let capacity = bytes + operations * (RECORD_FIXED_LEN + KEY_BYTES);
        Self {
            frame: Frame::begin(position.revision + 1, capacity),
            position,
            deadlines,
            events: Vec::with_capacity(operations),
            snapshot,
            allowed: AllowedWrites::All,
        }
    }

    /// Sets what the disk has space for.
    pub(super) fn allow(&mut self, allowed: AllowedWrites) {
        self.allowed = allowed;
    }

    /// Returns the changes; `None` if there are none.
    pub(super) fn finish(mut self) -> Option<Changes> {
        if self.position == self.snapshot.position {
            return None;
        }
        self.position.sequence += 1;
        self.frame
            .seal(self.position.sequence, self.position.compacted);
        Some(Changes {
            layer: self.snapshot.active,
            frame: self.frame,
            position: self.position,
            events: self.events,
        })
    }

    /// Writes a value if the key meets the expectation. `expires_ms` is its deadline, 0 for none.
    pub(super) fn put(&mut self, put: Put, expires_ms: u64) -> Result<Outcome, Fault> {
        let head = self.snapshot.head(put.key.as_str())?;
        let live = head.filter(|head| head.live);
        match (put.expect, live) {
            (Expect::Absent, None) => {}
            (Expect::Absent, Some(_)) => return Ok(Outcome::Refused(None)),
            (Expect::At(revision), Some(head)) if head.modified == revision.get() => {}
            (Expect::At(_), None) => return Ok(Outcome::Refused(None)),
            (Expect::At(_), Some(head)) => return self.refuse(put.key, head),
        }
        self.check_space(&put, live)?;
        self.write(put.key, Some(put.value), expires_ms, head)
            .map(Outcome::Done)
    }

    /// Returns an error if the disk has no space for a value. `live` is the head of the present one.
    fn check_space(&self, put: &Put, live: Option<Head>) -> Result<(), Fault> {
        let free = match (self.allowed, live) {
            (AllowedWrites::All, _) => return Ok(()),
            (AllowedWrites::DeletionsAndSmallUpdates(free), Some(head)) => {
                let present = self.value_at(&put.key, head.modified)?;
                if put.value.len() <= present.len() + GROWTH_MAX {
                    return Ok(());
                }
                free
            }
            (AllowedWrites::DeletionsAndSmallUpdates(free) | AllowedWrites::Deletions(free), _) => {
                free
            }
        };
        Err(Fault::Storage(StorageError::Failed(format!(
            "the disk of the store is almost full ({free} bytes free): {} was not written; free disk \
             space or delete objects, deletions are accepted",
            put.key
        ))))
    }

    /// Deletes `key` if its last write was at `expect`.
    pub(super) fn delete(
        &mut self,
        key: StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, Fault> {
        match self.snapshot.head(key.as_str())? {
            Some(head) if head.live && head.modified == expect.get() => {
                self.write(key, None, 0, Some(head)).map(Outcome::Done)
            }
            Some(head) if head.live => self.refuse(key, head),
            _ => Ok(Outcome::Refused(None)),
        }
    }

    /// Compacts history before `at`. The checkpointer deletes the records later.
    pub(super) fn compact(&mut self, at: ResourceVersion) -> Result<(), Fault> {
        let (requested, position) = (at, &mut self.position);
        if at.get() > position.revision {
            return Err(Fault::Storage(StorageError::Future {
                requested,
                current: ResourceVersion::new(position.revision),
            }));
        }
        if at.get() < position.compacted {
            return Err(Fault::Storage(StorageError::Compacted {
                requested,
                compacted: ResourceVersion::new(position.compacted),
            }));
        }
        position.compacted = at.get();
        Ok(())
    }

    /// Deletes keys with a deadline of at most `now_ms`, up to a limit, and returns their number.
    pub(super) fn expire(&mut self, now_ms: u64) -> Result<usize, Fault> {
        let due = self.deadlines.due(now_ms, EXPIRE_KEYS_MAX);
        for (deadline, revision) in &due {
            let key = self.key_at(*revision)?;
            match self.snapshot.head(key.as_str())? {
                Some(head) if head.live && head.modified == *revision => {
                    self.write(key, None, 0, Some(head))?;
                }
                _ => {
                    return Err(Fault::Damaged(format!(
                        "deadline {deadline} is for revision {revision}, which {key} is not at"
                    )));
                }
            }
        }
        Ok(due.len())
    }

    /// Returns the first deadline; `u64::MAX` if there is none.
    pub(super) fn next_deadline_ms(&self) -> u64 {
        self.deadlines.first_ms()
    }

    /// Calls `read` with the record of `revision`, which is in this batch or before it.
    fn record<T>(
        &self,
        revision: u64,
        read: impl FnOnce(&[u8]) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if let Some(bytes) = self.frame.record(revision) {
            return read(bytes);
        }
        match self.snapshot.record(revision)? {
            Some(bytes) => read(bytes.get()),
            None => Err(Fault::Damaged(format!(
                "record of revision {revision} is missing"
            ))),
        }
    }

    fn key_at(&self, revision: u64) -> Result<StorageKey, Fault> {
        self.record(revision, |bytes| {
            let record = Record::decode(revision, bytes)?;
            StorageKey::new(record.key).map_err(|error| Fault::Damaged(error.to_string()))
        })
    }

    fn value_at(&self, key: &StorageKey, revision: u64) -> Result<Bytes, Fault> {
        self.record(revision, |bytes| {
            let record = Record::decode(revision, bytes)?;
            match record.value {
                Some(value) if record.key == key.as_str() => Ok(Bytes::copy_from_slice(value)),
                _ => Err(Fault::Damaged(format!(
                    "the value of {key} at {revision} is missing"
                ))),
            }
        })
    }

    fn refuse(&self, key: StorageKey, head: Head) -> Result<Outcome, Fault> {
        Ok(Outcome::Refused(Some(KeyValue {
            value: self.value_at(&key, head.modified)?,
            key,
            create_revision: ResourceVersion::new(head.created),
            mod_revision: ResourceVersion::new(head.modified),
            is_stale: false,
        })))
    }

    /// Writes the next revision. It reads everything that may be damaged before it writes, so that
    /// a failed operation changes nothing.
    fn write(
        &mut self,
        key: StorageKey,
        value: Option<Bytes>,
        expires_ms: u64,
        head: Option<Head>,
    ) -> Result<ResourceVersion, Fault> {
        let live = head.filter(|head| head.live);
        let previous = live
            .map(|head| self.value_at(&key, head.modified))
            .transpose()?;
        let revision = self.position.revision + 1;
        let record = Record {
            key: key.as_str(),
            value: value.as_deref(),
            created: live.map_or(revision, |head| head.created),
            previous: head.map_or(0, |head| head.modified),
            expires_ms,
        };
        self.frame.push(|bytes| record.encode(revision, bytes));
        let head = record.head(revision);
        self.snapshot.active.set_head(key.clone(), head);
        if let Some(old) = live {
            self.deadlines.remove(old.expires_ms, old.modified);
        }
        self.deadlines.insert(expires_ms, revision);
        self.position.revision = revision;
        let revision = ResourceVersion::new(revision);
        self.events.push(StorageEvent {
            key,
            revision,
            value,
            previous,
        });
        Ok(revision)
    }
}

//! Writing: the tables, and what one write transaction does to them. It neither commits nor
//! answers anybody; the writer thread does.
//!
//! # Layout
//!
//! - `log`: revision to record. Every revision above the collected one and the first is there.
//! - `current`: key to head, the last record's revision. A deleted key stays, as a tombstone, until
//!   it is collected, so that a list at an old revision finds the key and walks back from its head.
//! - `expiry`: (deadline, revision) of each value that has one, so that the next is the first.
//! - `meta`: the format, the last revision, the compacted one, the collected one and the ceiling.
//!
//! # Invariants
//!
//! 1. collected <= compacted <= revision.
//! 2. A record with a revision of at most the collected one is the value that its key had at that
//!    revision and still had at the collected one; everything else down there is gone.
//! 3. No revision above the larger of the revision and the ceiling on disk was ever told to anybody.
//!    A store that does not wait for its disk raises the ceiling in time, and lowers it to the revision
//!    as the last thing it does: one that opens below its ceiling has lost revisions that somebody may
//!    have seen, and must not give them to other changes.

use std::ops::Bound::{Excluded, Included};

use bytes::Bytes;
use redb::{ReadableTable as _, Table, TableDefinition, WriteTransaction};

use super::codec::{Head, Record, decode_number, encode_number};
use super::error::Fault;
use super::writer::BATCH_OPS_MAX;
use crate::api::{ResourceVersion, StorageKey};
use crate::storage::{Expect, KeyValue, Outcome, Put, StorageError, StorageEvent};

pub(super) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
pub(super) const CURRENT: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("current");
pub(super) const EXPIRY: TableDefinition<'static, (u64, u64), ()> = TableDefinition::new("expiry");
pub(super) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

/// Name of the layout's number in `meta`.
pub(super) const FORMAT: &str = "format";
/// Name of the last revision in `meta`.
pub(super) const REVISION: &str = "revision";
/// Name of the compacted revision in `meta`.
pub(super) const COMPACTED: &str = "compacted";
/// Name of the ceiling in `meta`; missing in a store that never had one.
pub(super) const CEILING: &str = "ceiling";
/// Name of the revision up to which what compaction forgot is deleted, in `meta`.
pub(super) const COLLECTED: &str = "collected";

/// The layout above.
pub(super) const FORMAT_VERSION: u64 = 1;
/// Of a new store, as etcd's: a list of an empty store has a version, and it is not "any". No
/// record is at it.
pub(super) const FIRST_REVISION: u64 = 1;

/// How far above the revision the ceiling is raised: what a store without durability makes in the minute
/// between two flushes at the most. A crash costs as many numbers, of which there are enough.
const CEILING_AHEAD: u64 = 1 << 22;
/// How near to the ceiling a transaction may begin without raising it: it makes no more revisions.
const TRANSACTION_REVISIONS_MAX: u64 = (BATCH_OPS_MAX * EXPIRE_KEYS_MAX) as u64;
const _: () = assert!(TRANSACTION_REVISIONS_MAX < CEILING_AHEAD / 2);

/// How many records a transaction collects at most: a few milliseconds, for which writers wait.
const COLLECT_RECORDS_MAX: usize = 512;
/// How many keys a transaction expires at most, for the same reason.
const EXPIRE_KEYS_MAX: usize = 256;

/// The tables in a write transaction, and what it has done so far.
pub(super) struct Tables<'txn> {
    log: Table<'txn, u64, &'static [u8]>,
    current: Table<'txn, &'static str, &'static [u8]>,
    expiry: Table<'txn, (u64, u64), ()>,
    meta: Table<'txn, &'static str, &'static [u8]>,
    numbers: Numbers,
    at_start: Numbers,
    /// The changes made, in order of revision.
    pub(super) events: Vec<StorageEvent>,
}

/// The numbers of `meta` that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The last revision made.
    pub(super) revision: u64,
    /// The compacted revision.
    pub(super) compacted: u64,
    /// How far the compacted history is deleted.
    pub(super) collected: u64,
    /// Nobody was told a revision above it, unless it is below the revision.
    pub(super) ceiling: u64,
}

impl Numbers {
    /// Of a store that has just been made.
    pub(super) const NEW: Self = Self {
        revision: FIRST_REVISION,
        compacted: 0,
        collected: 0,
        ceiling: 0,
    };
}

/// Whether a transaction after `revision` could come above the ceiling.
pub(super) fn is_near_ceiling(revision: u64, ceiling: u64) -> bool {
    revision + TRANSACTION_REVISIONS_MAX > ceiling
}

/// Makes the tables of a new store.
pub(super) fn create(txn: &WriteTransaction) -> Result<(), Fault> {
    txn.open_table(LOG)?;
    txn.open_table(CURRENT)?;
    txn.open_table(EXPIRY)?;
    let mut meta = txn.open_table(META)?;
    let numbers = [
        (FORMAT, FORMAT_VERSION),
        (REVISION, Numbers::NEW.revision),
        (COMPACTED, Numbers::NEW.compacted),
        (COLLECTED, Numbers::NEW.collected),
    ];
    for (name, value) in numbers {
        meta.insert(name, &*encode_number(name, value))?;
    }
    Ok(())
}

impl<'txn> Tables<'txn> {
    /// Opens the tables of a store that has them.
    pub(super) fn open(txn: &'txn WriteTransaction) -> Result<Self, Fault> {
        let meta = txn.open_table(META)?;
        let number = |name: &str| -> Result<u64, Fault> {
            meta.get(name)?
                .and_then(|bytes| decode_number(name, bytes.value()))
                .ok_or_else(|| Fault::Damaged(format!("the store's {name} is missing or damaged")))
        };
        let numbers = Numbers {
            revision: number(REVISION)?,
            compacted: number(COMPACTED)?,
            collected: number(COLLECTED)?,
            ceiling: match meta.get(CEILING)? {
                Some(_) => number(CEILING)?,
                None => 0,
            },
        };
        Ok(Self {
            log: txn.open_table(LOG)?,
            current: txn.open_table(CURRENT)?,
            expiry: txn.open_table(EXPIRY)?,
            meta,
            numbers,
            at_start: numbers,
            events: Vec::new(),
        })
    }

    /// Writes the numbers that changed; the last call before the commit. Returns them, and whether
    /// there is anything to commit.
    pub(super) fn finish(mut self) -> Result<(Numbers, Vec<StorageEvent>, bool), Fault> {
        let (now, start) = (self.numbers, self.at_start);
        let changes = [
            (REVISION, start.revision, now.revision),
            (COMPACTED, start.compacted, now.compacted),
            (COLLECTED, start.collected, now.collected),
            (CEILING, start.ceiling, now.ceiling),
        ];
        for (name, before, after) in changes {
            if before != after {
                self.meta.insert(name, &*encode_number(name, after))?;
            }
        }
        Ok((now, self.events, now != start))
    }

    /// Writes a value if the key is as expected. `expires_ms` is its deadline, 0 for none.
    pub(super) fn put(&mut self, put: Put, expires_ms: u64) -> Result<Outcome, Fault> {
        let head = self.head(&put.key)?;
        let live = head.filter(|head| head.live);
        match (put.expect, live) {
            (Expect::Absent, None) => {}
            (Expect::Absent, Some(_)) => return Ok(Outcome::Refused(None)),
            (Expect::At(revision), Some(head)) if head.modified == revision.get() => {}
            (Expect::At(_), None) => return Ok(Outcome::Refused(None)),
            (Expect::At(_), Some(head)) => return self.refuse(put.key, head),
        }
        self.write(put.key, Some(put.value), expires_ms, head)
            .map(Outcome::Done)
    }

    /// Deletes `key` if it was last written at `expect`.
    pub(super) fn delete(
        &mut self,
        key: StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, Fault> {
        match self.head(&key)? {
            Some(head) if head.live && head.modified == expect.get() => {
                self.write(key, None, 0, Some(head)).map(Outcome::Done)
            }
            Some(head) if head.live => self.refuse(key, head),
            _ => Ok(Outcome::Refused(None)),
        }
    }

    /// Forgets history before `at`. What is forgotten is deleted by [`Self::collect`], later.
    pub(super) fn compact(&mut self, at: ResourceVersion) -> Result<(), Fault> {
        let (requested, numbers) = (at, &mut self.numbers);
        if at.get() > numbers.revision {
            return Err(Fault::Told(StorageError::Future {
                requested,
                current: ResourceVersion::new(numbers.revision),
            }));
        }
        if at.get() < numbers.compacted {
            return Err(Fault::Told(StorageError::Compacted {
                requested,
                compacted: ResourceVersion::new(numbers.compacted),
            }));
        }
        numbers.compacted = at.get();
        Ok(())
    }

    /// Deletes some of what compaction forgot: each record of a compacted revision makes the one
    /// before it unreachable, and a tombstone is itself no part of the state.
    pub(super) fn collect(&mut self) -> Result<(), Fault> {
        let Numbers {
            collected,
            compacted,
            ..
        } = self.numbers;
        if collected == compacted {
            return Ok(());
        }
        let mut found = Vec::new();
        let range = (Excluded(collected), Included(compacted));
        for entry in self.log.range(range)?.take(COLLECT_RECORDS_MAX) {
            let (revision, bytes) = entry?;
            let revision = revision.value();
            let record = Record::decode(revision, bytes.value())?;
            let tombstone = record.value.is_none().then(|| record.key.to_owned());
            found.push((revision, record.previous, tombstone));
        }
        let all = found.len() < COLLECT_RECORDS_MAX;
        let last = found.last().map(|(revision, ..)| *revision);
        for (revision, previous, tombstone) in found {
            if previous != 0 {
                self.log.remove(previous)?;
            }
            let Some(key) = tombstone else { continue };
            self.log.remove(revision)?;
            let head = self
                .current
                .get(&*key)?
                .map(|b| Head::decode(&key, b.value()));
            if head
                .transpose()?
                .is_some_and(|head| head.modified == revision)
            {
                self.current.remove(&*key)?;
            }
        }
        self.numbers.collected = if all {
            compacted
        } else {
            last.unwrap_or(compacted)
        };
        Ok(())
    }

    /// Makes room for revisions that need not be on disk when they are told.
    pub(super) fn raise_ceiling(&mut self) {
        self.numbers.ceiling = self.numbers.revision + CEILING_AHEAD;
    }

    /// Takes that back: all that was told is on disk.
    pub(super) fn lower_ceiling(&mut self) {
        self.numbers.ceiling = self.numbers.revision;
    }

    /// Goes on above the ceiling, if that is ahead: revisions up to it may have been told, and are
    /// lost. The state is that of the last revision there is; history has a hole, so none is kept.
    /// Returns the revision before, if there was a leap.
    pub(super) fn leap(&mut self) -> Result<Option<u64>, Fault> {
        let found = self.numbers.revision;
        if self.numbers.ceiling <= found {
            return Ok(None);
        }
        self.numbers.revision = self.numbers.ceiling;
        self.numbers.compacted = self.numbers.ceiling;
        while self.numbers.collected < self.numbers.compacted {
            self.collect()?;
        }
        Ok(Some(found))
    }

    /// Deletes keys whose deadline is `now_ms` or before, some at a time, and returns how many.
    pub(super) fn expire(&mut self, now_ms: u64) -> Result<usize, Fault> {
        let mut due = Vec::new();
        for entry in self
            .expiry
            .range(..=(now_ms, u64::MAX))?
            .take(EXPIRE_KEYS_MAX)
        {
            due.push(entry?.0.value());
        }
        for (deadline, revision) in &due {
            let key = self.key_at(*revision)?;
            match self.head(&key)? {
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

    /// The first deadline; `u64::MAX` when there is none.
    pub(super) fn next_deadline_ms(&self) -> Result<u64, Fault> {
        let first = self.expiry.first()?;
        Ok(first.map_or(u64::MAX, |(at, _)| at.value().0))
    }

    fn head(&self, key: &StorageKey) -> Result<Option<Head>, Fault> {
        let bytes = self.current.get(key.as_str())?;
        bytes
            .map(|bytes| Head::decode(key.as_str(), bytes.value()))
            .transpose()
    }

    fn key_at(&self, revision: u64) -> Result<StorageKey, Fault> {
        let bytes = self.log.get(revision)?;
        let bytes = bytes
            .ok_or_else(|| Fault::Damaged(format!("record of revision {revision} is missing")))?;
        let record = Record::decode(revision, bytes.value())?;
        StorageKey::new(record.key).map_err(|error| Fault::Damaged(error.to_string()))
    }

    fn value_at(&self, key: &StorageKey, revision: u64) -> Result<Bytes, Fault> {
        let damaged = || Fault::Damaged(format!("the value of {key} at {revision} is missing"));
        let bytes = self.log.get(revision)?.ok_or_else(damaged)?;
        let record = Record::decode(revision, bytes.value())?;
        match record.value {
            Some(value) if record.key == key.as_str() => Ok(Bytes::copy_from_slice(value)),
            _ => Err(damaged()),
        }
    }

    fn refuse(&self, key: StorageKey, head: Head) -> Result<Outcome, Fault> {
        Ok(Outcome::Refused(Some(KeyValue {
            value: self.value_at(&key, head.modified)?,
            key,
            create_revision: ResourceVersion::new(head.created),
            mod_revision: ResourceVersion::new(head.modified),
        })))
    }

    /// Makes the next revision. Everything that can turn out damaged is read before anything is
    /// written, so that a failed operation leaves nothing behind for the others of its transaction.
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
        let revision = self.numbers.revision + 1;
        let created = live.map_or(revision, |head| head.created);
        let record = Record {
            key: key.as_str(),
            value: value.as_deref(),
            created,
            previous: head.map_or(0, |head| head.modified),
            expires_ms,
        };
        let new_head = Head {
            modified: revision,
            created,
            expires_ms,
            live: value.is_some(),
        };
        self.log.insert(revision, &*record.encode(revision))?;
        self.current
            .insert(key.as_str(), &*new_head.encode(key.as_str()))?;
        if let Some(old) = live.filter(|head| head.expires_ms != 0) {
            self.expiry.remove((old.expires_ms, old.modified))?;
        }
        if expires_ms != 0 {
            self.expiry.insert((expires_ms, revision), ())?;
        }
        self.numbers.revision = revision;
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

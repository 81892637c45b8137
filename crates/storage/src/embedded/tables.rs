//! The tables, and the changes that one write transaction makes to them. The writer thread commits
//! and responds.
//!
//! # Layout
//!
//! - `log`: revision to record. It has every revision above the collected one, except the first.
//! - `current`: key to head (the revision of the last record). A deleted key remains, as a
//!   tombstone, until it is collected, so that a list at an old revision finds the key and follows
//!   its chain.
//! - `expiry`: (deadline, revision) of each value with a deadline, ordered by deadline.
//! - `meta`: the format and the last, compacted, collected and ceiling revisions.
//!
//! # Invariants
//!
//! 1. collected <= compacted <= revision.
//! 2. A record at or below the collected revision is a value that its key had at its own revision
//!    and still had at the collected one; all other records below are deleted.
//! 3. No client has seen a revision above the larger of the last revision and the ceiling on disk.
//!    A store without durability raises the ceiling in advance and lowers it to the last revision at
//!    shutdown: a store that opens below its ceiling has lost revisions that clients may have seen,
//!    and must not reuse them.

use std::ops::Bound::{Excluded, Included};

use bytes::Bytes;
use redb::{ReadableTable as _, Table, TableDefinition, WriteTransaction};

use super::codec::{Head, Record, decode_number, encode_number};
use super::error::Fault;
use crate::{Expect, KeyValue, Outcome, Put, StorageError, StorageEvent};
use watchet_api::{ResourceVersion, StorageKey};

pub(super) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
pub(super) const CURRENT: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("current");
pub(super) const EXPIRY: TableDefinition<'static, (u64, u64), ()> = TableDefinition::new("expiry");
pub(super) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

/// The name of the layout version in `meta`.
pub(super) const FORMAT: &str = "format";
/// The name of the last revision in `meta`.
pub(super) const REVISION: &str = "revision";
/// The name of the compacted revision in `meta`.
pub(super) const COMPACTED: &str = "compacted";
/// The name of the ceiling in `meta`; absent in a store that never had one.
pub(super) const CEILING: &str = "ceiling";
/// The name of the collected revision in `meta`: compacted records up to it are deleted.
pub(super) const COLLECTED: &str = "collected";

/// The version of the layout above.
pub(super) const FORMAT_VERSION: u64 = 1;
/// The revision of a new store, as in etcd: a list of an empty store has a nonzero version. No
/// record has it.
pub(super) const FIRST_REVISION: u64 = 1;

/// Maximum number of operations per transaction: many share the cost of a sync, and the first does
/// not wait long.
pub(super) const BATCH_OPS_MAX: usize = 256;
/// The distance by which the ceiling is raised: more revisions than a store without durability
/// makes between two flushes. After a crash this many revisions are skipped.
const CEILING_AHEAD: u64 = 1 << 22;
/// A transaction that begins closer to the ceiling raises it; it makes at most this many revisions.
const TRANSACTION_REVISIONS_MAX: u64 = (BATCH_OPS_MAX * EXPIRE_KEYS_MAX) as u64;
const _: () = assert!(TRANSACTION_REVISIONS_MAX < CEILING_AHEAD / 2);

/// Maximum number of records that a transaction collects: a few milliseconds, during which writers
/// wait.
const COLLECT_RECORDS_MAX: usize = 512;
/// Maximum number of keys that a transaction expires, for the same reason.
const EXPIRE_KEYS_MAX: usize = 256;

/// The tables in a write transaction, and its changes so far.
pub(super) struct Tables<'txn> {
    log: Table<'txn, u64, &'static [u8]>,
    current: Table<'txn, &'static str, &'static [u8]>,
    expiry: Table<'txn, (u64, u64), ()>,
    meta: Table<'txn, &'static str, &'static [u8]>,
    numbers: Numbers,
    at_start: Numbers,
    /// The changes, ordered by revision.
    pub(super) events: Vec<StorageEvent>,
}

/// The numbers in `meta` that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The last revision.
    pub(super) revision: u64,
    /// The compacted revision.
    pub(super) compacted: u64,
    /// The collected revision.
    pub(super) collected: u64,
    /// No client has seen a higher revision, unless the last revision is higher.
    pub(super) ceiling: u64,
}

impl Numbers {
    /// The numbers of a new store.
    pub(super) const NEW: Self = Self {
        revision: FIRST_REVISION,
        compacted: 0,
        collected: 0,
        ceiling: 0,
    };
}

/// Returns true if a transaction after `revision` could exceed the ceiling.
pub(super) fn is_near_ceiling(revision: u64, ceiling: u64) -> bool {
    revision + TRANSACTION_REVISIONS_MAX > ceiling
}

/// Creates the tables of a new store.
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
    /// Opens the tables of an existing store.
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

    /// Writes the changed numbers; the last call before the commit. Returns the numbers, the
    /// events, and true if there is anything to commit.
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

    /// Writes a value if the key meets the expectation. `expires_ms` is its deadline, 0 for none.
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

    /// Deletes `key` if its last write was at `expect`.
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

    /// Compacts history before `at`. [`Self::collect`] deletes the records later.
    pub(super) fn compact(&mut self, at: ResourceVersion) -> Result<(), Fault> {
        let (requested, numbers) = (at, &mut self.numbers);
        if at.get() > numbers.revision {
            return Err(Fault::Storage(StorageError::Future {
                requested,
                current: ResourceVersion::new(numbers.revision),
            }));
        }
        if at.get() < numbers.compacted {
            return Err(Fault::Storage(StorageError::Compacted {
                requested,
                compacted: ResourceVersion::new(numbers.compacted),
            }));
        }
        numbers.compacted = at.get();
        Ok(())
    }

    /// Deletes some compacted records: each record at a compacted revision makes its predecessor
    /// unreachable, and a tombstone is not part of the state.
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

    /// Raises the ceiling, so that clients may see revisions that are not on disk yet.
    pub(super) fn raise_ceiling(&mut self) {
        self.numbers.ceiling = self.numbers.revision + CEILING_AHEAD;
    }

    /// Lowers the ceiling: all revisions that clients have seen are on disk.
    pub(super) fn lower_ceiling(&mut self) {
        self.numbers.ceiling = self.numbers.revision;
    }

    /// Continues above the ceiling if it is higher than the last revision: clients may have seen
    /// revisions up to it, which are lost. The state is that of the last revision; history has a
    /// hole, so none is retained. Returns the previous revision if the revision was changed.
    pub(super) fn skip_lost_revisions(&mut self) -> Result<Option<u64>, Fault> {
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

    /// Deletes keys with a deadline of at most `now_ms`, up to a limit, and returns their number.
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

    /// Returns the first deadline; `u64::MAX` if there is none.
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
            is_stale: false,
        })))
    }

    /// Writes the next revision. It reads everything that may be damaged before it writes, so that
    /// a failed operation does not affect others in its transaction.
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

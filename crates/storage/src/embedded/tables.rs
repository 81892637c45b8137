//! The tables, and the changes that one write transaction makes to them. Only the checkpointer
//! writes them, in the background; the newest changes are in the log and in the layers.
//!
//! # Layout
//!
//! - `log`: revision to record. It has every revision above the collected one, except the first.
//! - `current`: key to head (the revision of the last record). A deleted key remains, as a
//!   tombstone, until it is collected, so that a list at an old revision finds the key and follows
//!   its chain.
//! - `expiry`: (deadline, revision) of each value with a deadline, ordered by deadline.
//! - `meta`: the format, the last, compacted, collected and ceiling revisions, and the sequence of
//!   the last frame of the log whose changes the tables contain.
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

use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};

use super::codec::{Head, Record, decode_number, encode_number};
use super::error::Fault;
use super::layer::{FrozenLayer, Position};

pub(super) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
pub(super) const CURRENT: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("current");
pub(super) const EXPIRY: TableDefinition<'static, (u64, u64), ()> = TableDefinition::new("expiry");
pub(super) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

/// The name of the layout version in `meta`.
pub(super) const FORMAT: &str = "format";
/// The name of the last revision in `meta`.
const REVISION: &str = "revision";
/// The name of the compacted revision in `meta`.
const COMPACTED: &str = "compacted";
/// The name of the ceiling in `meta`; absent in a store that never had one.
const CEILING: &str = "ceiling";
/// The name of the collected revision in `meta`: compacted records up to it are deleted.
const COLLECTED: &str = "collected";
/// The name of the sequence in `meta`; absent in a store that never had a frame.
const SEQUENCE: &str = "sequence";

/// The version of the layout above.
pub(super) const FORMAT_VERSION: u64 = 1;
/// The revision of a new store, as in etcd: a list of an empty store has a nonzero version. No
/// record has it.
pub(super) const FIRST_REVISION: u64 = 1;

/// Maximum number of keys that an operation expires: a few milliseconds, during which writers wait.
pub(super) const EXPIRE_KEYS_MAX: usize = 256;
/// Maximum number of operations per batch: many share the cost of a sync, and the first does not
/// wait long.
pub(super) const BATCH_OPS_MAX: usize = 256;
/// The distance by which the ceiling is raised: more revisions than a store without durability
/// makes between two flushes. After a crash this many revisions are skipped.
const CEILING_AHEAD: u64 = 1 << 22;
/// The distance by which a store continues above the last revision that is recorded outside of it, if
/// it is older: after a power failure that record may be some seconds old, and without durability the
/// store may have been up to the ceiling.
pub(super) const LAST_REVISION_AHEAD: u64 = CEILING_AHEAD;
/// The ceiling is raised before a batch that begins closer to it; a batch makes at most this many
/// revisions.
const BATCH_REVISIONS_MAX: u64 = (BATCH_OPS_MAX * EXPIRE_KEYS_MAX) as u64;
const _: () = assert!(BATCH_REVISIONS_MAX < CEILING_AHEAD / 2);

/// Maximum number of records that a transaction collects: some milliseconds, during which the next
/// layer waits.
const COLLECT_RECORDS_MAX: usize = 4096;

/// The tables in a write transaction, and its changes so far.
pub(super) struct Tables<'txn> {
    log: Table<'txn, u64, &'static [u8]>,
    current: Table<'txn, &'static str, &'static [u8]>,
    expiry: Table<'txn, (u64, u64), ()>,
    meta: Table<'txn, &'static str, &'static [u8]>,
    numbers: Numbers,
    at_start: Numbers,
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
    /// The sequence of the last frame of the log that the tables contain.
    pub(super) sequence: u64,
}

impl Numbers {
    /// The numbers of a new store.
    pub(super) const NEW: Self = Self {
        revision: FIRST_REVISION,
        compacted: 0,
        collected: 0,
        ceiling: 0,
        sequence: 0,
    };

    /// Reads the numbers.
    pub(super) fn read(
        meta: &impl ReadableTable<&'static str, &'static [u8]>,
    ) -> Result<Self, Fault> {
        let number = |name: &str| -> Result<u64, Fault> {
            meta.get(name)?
                .and_then(|bytes| decode_number(name, bytes.value()))
                .ok_or_else(|| Fault::Damaged(format!("the store's {name} is missing or damaged")))
        };
        let number_or_zero = |name: &str| match meta.get(name)? {
            Some(_) => number(name),
            None => Ok(0),
        };
        Ok(Self {
            revision: number(REVISION)?,
            compacted: number(COMPACTED)?,
            collected: number(COLLECTED)?,
            ceiling: number_or_zero(CEILING)?,
            sequence: number_or_zero(SEQUENCE)?,
        })
    }

    /// Returns the position of the tables.
    pub(super) fn position(&self) -> Position {
        Position {
            revision: self.revision,
            compacted: self.compacted,
            sequence: self.sequence,
        }
    }
}

/// Returns true if a batch after `revision` could exceed the ceiling.
pub(super) fn is_near_ceiling(revision: u64, ceiling: u64) -> bool {
    revision + BATCH_REVISIONS_MAX > ceiling
}

/// Creates the tables of a new store, which is at `revision`, without history before it.
pub(super) fn create(txn: &WriteTransaction, revision: u64) -> Result<(), Fault> {
    txn.open_table(LOG)?;
    txn.open_table(CURRENT)?;
    txn.open_table(EXPIRY)?;
    let mut meta = txn.open_table(META)?;
    let numbers = [
        (FORMAT, FORMAT_VERSION),
        (REVISION, Numbers::NEW.revision),
        (COMPACTED, Numbers::NEW.compacted),
        (COLLECTED, Numbers::NEW.collected),
        (SEQUENCE, Numbers::NEW.sequence),
    ];
    for (name, value) in numbers {
        meta.insert(name, &*encode_number(name, value))?;
    }
    drop(meta);
    if revision > FIRST_REVISION {
        let mut tables = Tables::open(txn)?;
        tables.set_revision(revision);
        tables.finish()?;
    }
    Ok(())
}

impl<'txn> Tables<'txn> {
    /// Opens the tables of an existing store.
    pub(super) fn open(txn: &'txn WriteTransaction) -> Result<Self, Fault> {
        let meta = txn.open_table(META)?;
        let numbers = Numbers::read(&meta)?;
        Ok(Self {
            log: txn.open_table(LOG)?,
            current: txn.open_table(CURRENT)?,
            expiry: txn.open_table(EXPIRY)?,
            meta,
            numbers,
            at_start: numbers,
        })
    }

    /// Writes the changed numbers; the last call before the commit. Returns true if there is anything
    /// to commit.
    pub(super) fn finish(mut self) -> Result<bool, Fault> {
        let (now, start) = (self.numbers, self.at_start);
        let changes = [
            (REVISION, start.revision, now.revision),
            (COMPACTED, start.compacted, now.compacted),
            (COLLECTED, start.collected, now.collected),
            (CEILING, start.ceiling, now.ceiling),
            (SEQUENCE, start.sequence, now.sequence),
        ];
        for (name, before, after) in changes {
            if before != after {
                self.meta.insert(name, &*encode_number(name, after))?;
            }
        }
        Ok(now != start)
    }

    /// Adds the changes of `layer`, which follow those in the tables.
    pub(super) fn apply(&mut self, layer: &FrozenLayer) -> Result<(), Fault> {
        for (revision, record) in layer.layer.records() {
            self.log.insert(revision, record)?;
        }
        for (key, head) in layer.layer.heads() {
            let key = key.as_str();
            let before = self.current.insert(key, &*head.encode(key))?;
            let before = before.map(|before| Head::decode(key, before.value()));
            if let Some(before) = before.transpose()?.filter(Head::expires) {
                self.expiry.remove((before.expires_ms, before.modified))?;
            }
            if head.expires() {
                self.expiry.insert((head.expires_ms, head.modified), ())?;
            }
        }
        let end = layer.end;
        self.numbers.revision = end.revision;
        self.numbers.compacted = end.compacted;
        self.numbers.sequence = end.sequence;
        Ok(())
    }

    /// Adds the value that `record`, at `revision`, has of its key. For a new store, in which
    /// [`Self::set_revision`] follows.
    pub(super) fn insert_value(&mut self, revision: u64, record: &[u8]) -> Result<(), Fault> {
        self.log.insert(revision, record)?;
        let record = Record::decode(revision, record)?;
        let head = record.head(revision);
        self.current.insert(record.key, &*head.encode(record.key))?;
        if head.expires() {
            self.expiry.insert((head.expires_ms, head.modified), ())?;
        }
        Ok(())
    }

    /// Sets the last revision of a store without history.
    pub(super) fn set_revision(&mut self, revision: u64) {
        let revision = revision.max(FIRST_REVISION);
        self.numbers.revision = revision;
        self.numbers.compacted = revision;
        self.numbers.collected = revision;
    }

    /// Returns true if compacted records wait to be deleted.
    pub(super) fn is_collecting(&self) -> bool {
        self.numbers.collected < self.numbers.compacted
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

    /// Continues above the ceiling and `seen_max` if one of them is higher than the last revision:
    /// clients may have seen revisions up to it, which are lost. The state is that of the last
    /// revision; history has a hole, so none is retained. Returns the previous revision if the
    /// revision was changed.
    pub(super) fn skip_lost_revisions(&mut self, seen_max: u64) -> Result<Option<u64>, Fault> {
        let found = self.numbers.revision;
        let lost = self.numbers.ceiling.max(seen_max);
        if lost <= found {
            return Ok(None);
        }
        self.numbers.revision = lost;
        self.numbers.compacted = lost;
        while self.is_collecting() {
            self.collect()?;
        }
        Ok(Some(found))
    }
}

//! Reads of the store in one read transaction: gets, lists at a revision, and history.

use std::collections::BTreeSet;
use std::iter;
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use bytes::Bytes;
use redb::{AccessGuard, Database, ReadOnlyTable, ReadableDatabase as _};

use super::codec::{Head, Record};
use super::error::Fault;
use super::layer::{FrozenLayer, Layer, Position};
use super::tables::{CURRENT, EXPIRY, FIRST_REVISION, LOG, META, Numbers};
use crate::{KeyValue, ListPage, ListRequest, StorageError, StorageEvent};
use watchet_api::{ResourceVersion, StorageKey};

/// Limits of one part of history: examined records, events, or bytes of events. They bound the
/// memory and the blocking time of a watch that catches up.
const HISTORY_RECORDS_MAX: usize = 8192;
const HISTORY_EVENTS_MAX: usize = 1024;
const HISTORY_BYTES_MAX: usize = 4 << 20;

/// Shorter ranges of the log are scanned; longer ones are searched by key.
const SCAN_MAX: u64 = 1024;
/// Maximum number of keys of a prefix to search by key.
const FEW_KEYS_MAX: usize = 256;

/// An entry of the table of keys.
type TableEntry<'a> = Result<
    (
        AccessGuard<'a, &'static str>,
        AccessGuard<'a, &'static [u8]>,
    ),
    redb::StorageError,
>;

/// The tables at one commit.
pub(super) struct Base {
    pub(super) log: ReadOnlyTable<u64, &'static [u8]>,
    pub(super) current: ReadOnlyTable<&'static str, &'static [u8]>,
    expiry: ReadOnlyTable<(u64, u64), ()>,
    pub(super) numbers: Numbers,
}

impl Base {
    /// Opens the tables of the last commit.
    pub(super) fn open(db: &Database) -> Result<Self, Fault> {
        let txn = db.begin_read()?;
        Ok(Self {
            numbers: Numbers::read(&txn.open_table(META)?)?,
            log: txn.open_table(LOG)?,
            current: txn.open_table(CURRENT)?,
            expiry: txn.open_table(EXPIRY)?,
        })
    }

    /// Returns the last record of `key` in the tables.
    pub(super) fn head(&self, key: &str) -> Result<Option<Head>, Fault> {
        let bytes = self.current.get(key)?;
        bytes
            .map(|bytes| Head::decode(key, bytes.value()))
            .transpose()
    }

    /// Returns the deadlines in the tables.
    pub(super) fn deadlines(&self) -> Result<BTreeSet<(u64, u64)>, Fault> {
        let mut deadlines = BTreeSet::new();
        for entry in self.expiry.range::<(u64, u64)>(..)? {
            deadlines.insert(entry?.0.value());
        }
        Ok(deadlines)
    }

    /// Checks that the newest record has the last revision; a cheap check when a store is opened.
    pub(super) fn check_newest(&self) -> Result<(), Fault> {
        let Numbers {
            collected,
            compacted,
            revision,
            ..
        } = self.numbers;
        if collected > compacted || compacted > revision {
            return Err(Fault::Damaged(format!(
                "revision {revision}, compacted {compacted} and collected {collected} contradict \
                 each other"
            )));
        }
        let newest = self.log.range(collected + 1..)?.next_back().transpose()?;
        let none = collected.max(FIRST_REVISION);
        let newest = newest.map_or(none, |(revision, _)| revision.value());
        if newest != revision {
            return Err(Fault::Damaged(format!(
                "the last record is of revision {newest} but the store is at {revision}"
            )));
        }
        Ok(())
    }
}

/// The store at one revision: the tables, and over them the layers with the changes that the tables
/// do not contain yet. All revisions of a layer are greater than those below it.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) base: Arc<Base>,
    pub(super) frozen: Option<Arc<FrozenLayer>>,
    pub(super) active: Layer,
    /// The last revision and the compacted one.
    pub(super) position: Position,
}

/// A record in a layer or in the tables.
pub(super) enum RecordBytes<'a> {
    InLayer(&'a [u8]),
    InTable(AccessGuard<'a, &'static [u8]>),
}

impl RecordBytes<'_> {
    /// Returns the encoded record.
    pub(super) fn get(&self) -> &[u8] {
        match self {
            Self::InLayer(bytes) => bytes,
            Self::InTable(bytes) => bytes.value(),
        }
    }
}

impl Snapshot {
    /// Returns the layers, the newest first.
    pub(super) fn layers(&self) -> impl Iterator<Item = &Layer> {
        iter::once(&self.active).chain(self.frozen.as_deref().map(|frozen| &frozen.layer))
    }

    /// Returns the last record of `key`.
    pub(super) fn head(&self, key: &str) -> Result<Option<Head>, Fault> {
        match self.layers().find_map(|layer| layer.head(key)) {
            Some(head) => Ok(Some(head)),
            None => self.base.head(key),
        }
    }

    /// Returns the keys from `start` on, in order, with their last records.
    pub(super) fn heads_from(
        &self,
        start: &str,
    ) -> Result<impl Iterator<Item = Result<(StorageKey, Head), Fault>>, Fault> {
        let range = (Included(start), Unbounded);
        let decode = |entry: TableEntry<'_>| {
            let (key, head) = entry?;
            let head = Head::decode(key.value(), head.value())?;
            let key = StorageKey::new(key.value());
            Ok((
                key.map_err(|error| Fault::Damaged(error.to_string()))?,
                head,
            ))
        };
        let mut table = self
            .base
            .current
            .range::<&str>(range)?
            .map(decode)
            .peekable();
        let frozen = self.frozen.iter().map(|frozen| &frozen.layer);
        let mut frozen = frozen.flat_map(|layer| layer.heads_from(start)).peekable();
        let mut active = self.active.heads_from(start).peekable();
        Ok(iter::from_fn(move || {
            let in_table = match table.peek() {
                Some(Ok((key, _))) => Some(key),
                Some(Err(_)) => return table.next(),
                None => None,
            };
            let in_layers = frozen.peek().into_iter().chain(active.peek());
            let keys = in_layers.map(|(key, _)| *key).chain(in_table);
            let least = keys.min()?.clone();
            // Each of them advances if it has the key; the newest one is correct.
            let in_table = table.next_if(|entry| matches!(entry, Ok((key, _)) if *key == least));
            let in_frozen = frozen.next_if(|(key, _)| **key == least);
            let in_active = active.next_if(|(key, _)| **key == least);
            let in_layers = in_active.or(in_frozen);
            in_layers.map(|(_, head)| Ok((least, *head))).or(in_table)
        }))
    }

    /// Returns the record of `revision`; `None` if it was collected.
    pub(super) fn record(&self, revision: u64) -> Result<Option<RecordBytes<'_>>, Fault> {
        if revision > self.base.numbers.revision {
            let found = self.layers().find_map(|layer| layer.record(revision));
            return Ok(found.map(RecordBytes::InLayer));
        }
        let found = self.base.log.get(revision)?;
        Ok(found.map(RecordBytes::InTable))
    }

    /// Returns the records of the revisions from `from` to `to`, in order; those that exist.
    pub(super) fn records(
        &self,
        from: u64,
        to: u64,
    ) -> Result<impl Iterator<Item = Result<(u64, RecordBytes<'_>), Fault>>, Fault> {
        let in_tables = self.base.numbers.revision.min(to);
        // An empty range must not be inverted.
        let table = self
            .base
            .log
            .range(from.min(in_tables + 1)..in_tables + 1)?;
        let table = table.map(|entry| {
            let (revision, bytes) = entry?;
            Ok((revision.value(), RecordBytes::InTable(bytes)))
        });
        let layers = (from.max(in_tables + 1)..=to).filter_map(|revision| {
            let found = self.record(revision).transpose()?;
            Some(found.map(|bytes| (revision, bytes)))
        });
        Ok(table.chain(layers))
    }

    /// Returns the latest value of `key`.
    pub(super) fn get(&self, key: &StorageKey) -> Result<Option<KeyValue>, Fault> {
        match self.head(key.as_str())? {
            Some(head) if head.live => self.value_of(key.clone(), head.modified).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns part of a list, at the latest revision or an older one.
    pub(super) fn list(&self, request: &ListRequest) -> Result<ListPage, Fault> {
        let newest = self.position.revision;
        let at = request.at.map_or(newest, ResourceVersion::get);
        self.exists(at)?;
        let prefix = request.prefix.as_str();
        let start = format!("{prefix}{}", request.start);
        let (mut found, mut remaining) = (Vec::new(), 0);
        for entry in self.heads_from(&start)? {
            let (key, head) = entry?;
            if !request.prefix.covers(key.as_str()) {
                break;
            }
            let Some(modified) = self.modified_at(key.as_str(), head, at)? else {
                continue;
            };
            if request.limit != 0 && found.len() == request.limit {
                remaining += 1;
                match request.count {
                    true => continue,
                    false => break,
                }
            }
            found.push((key, modified));
        }
        Ok(ListPage {
            items: self.values_of(found)?,
            revision: ResourceVersion::new(at),
            more: remaining > 0,
            remaining: request.count.then_some(remaining),
        })
    }

    /// Returns the values of keys at revisions, in key order. Reads them in the order of the log,
    /// where neighbours share pages, because the page cache is far smaller than a large list.
    fn values_of(&self, mut keys: Vec<(StorageKey, u64)>) -> Result<Vec<KeyValue>, Fault> {
        keys.sort_unstable_by_key(|(_, modified)| *modified);
        let mut items = keys
            .into_iter()
            .map(|(key, modified)| self.value_of(key, modified))
            .collect::<Result<Vec<_>, _>>()?;
        items.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(items)
    }

    /// Returns the events of `prefix` from revision `from` to at most `to`, and the last examined
    /// revision.
    pub(super) fn history(
        &self,
        prefix: &StorageKey,
        from: u64,
        to: u64,
    ) -> Result<(Vec<StorageEvent>, u64), Fault> {
        self.readable(from - 1)?;
        if to.saturating_sub(from) >= SCAN_MAX
            && let Some(revisions) = self.revisions_of_few(prefix, from, to)?
        {
            return self.events_at(&revisions, to);
        }
        self.history_of(|key| prefix.covers(key), from, to)
    }

    /// Returns the revisions of `prefix` from `from` to `to`, found from its keys instead of a scan
    /// of all records; `None` if the prefix has many keys or revisions. The result is at most one
    /// part of history, because its records are read again.
    pub(super) fn revisions_of_few(
        &self,
        prefix: &StorageKey,
        from: u64,
        to: u64,
    ) -> Result<Option<Vec<u64>>, Fault> {
        let (mut revisions, mut records, mut bytes_read) = (Vec::new(), 0, 0);
        for (number, entry) in self.heads_from(prefix.as_str())?.enumerate() {
            let (key, head) = entry?;
            let key = key.as_str();
            if !prefix.covers(key) {
                break;
            }
            if number == FEW_KEYS_MAX {
                return Ok(None);
            }
            let mut revision = head.modified;
            // Older records of the chain may have been collected.
            while revision >= from {
                if records == HISTORY_EVENTS_MAX || bytes_read > HISTORY_BYTES_MAX {
                    return Ok(None);
                }
                records += 1;
                if revision <= to {
                    revisions.push(revision);
                }
                let bytes = self.record(revision)?;
                let bytes = bytes.ok_or_else(|| missing(key, revision))?;
                bytes_read += bytes.get().len();
                let record = Record::decode(revision, bytes.get())?;
                if record.key != key {
                    return Err(misplaced(key, revision));
                }
                revision = record.previous;
            }
        }
        revisions.sort_unstable();
        Ok(Some(revisions))
    }

    /// Returns the events of `revisions`, which are all up to `to`, and the last revision included.
    fn events_at(&self, revisions: &[u64], to: u64) -> Result<(Vec<StorageEvent>, u64), Fault> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        for revision in revisions.iter().copied() {
            if bytes >= HISTORY_BYTES_MAX {
                return Ok((events, revision - 1));
            }
            let damaged = || Fault::Damaged(format!("record of revision {revision} is missing"));
            let record = self.record(revision)?.ok_or_else(damaged)?;
            let event = self.event(revision, &Record::decode(revision, record.get())?)?;
            bytes += event_bytes(&event);
            events.push(event);
        }
        Ok((events, to))
    }

    /// Returns the history of the keys for which `covers` is true by a scan of the log.
    pub(super) fn history_of(
        &self,
        covers: impl Fn(&str) -> bool,
        from: u64,
        to: u64,
    ) -> Result<(Vec<StorageEvent>, u64), Fault> {
        self.readable(from - 1)?;
        let from = from.max(FIRST_REVISION + 1);
        let (mut events, mut bytes, mut read) = (Vec::new(), 0, from - 1);
        if from > to {
            return Ok((events, to));
        }
        for entry in self.records(from, to)?.take(HISTORY_RECORDS_MAX) {
            let (revision, record) = entry?;
            if revision != read + 1 {
                break;
            }
            read = revision;
            let record = Record::decode(revision, record.get())?;
            if !covers(record.key) {
                continue;
            }
            let event = self.event(revision, &record)?;
            bytes += event_bytes(&event);
            events.push(event);
            if events.len() == HISTORY_EVENTS_MAX || bytes >= HISTORY_BYTES_MAX {
                return Ok((events, read));
            }
        }
        // Revisions are dense: a scan that ends before a limit has found a missing record.
        let limited = read - (from - 1) == HISTORY_RECORDS_MAX as u64;
        if read != to && !limited {
            return Err(Fault::Damaged(format!(
                "record of revision {} is missing",
                read + 1
            )));
        }
        Ok((events, read))
    }

    /// Returns an error unless revision `at` exists and is not compacted.
    pub(super) fn exists(&self, at: u64) -> Result<(), Fault> {
        if at > self.position.revision {
            return Err(Fault::Storage(StorageError::Future {
                requested: ResourceVersion::new(at),
                current: ResourceVersion::new(self.position.revision),
            }));
        }
        self.readable(at)
    }

    /// Returns an error if revision `at` is compacted.
    pub(super) fn readable(&self, at: u64) -> Result<(), Fault> {
        if at < self.position.compacted {
            return Err(Fault::Storage(StorageError::Compacted {
                requested: ResourceVersion::new(at),
                compacted: ResourceVersion::new(self.position.compacted),
            }));
        }
        Ok(())
    }

    /// Returns the revision of the value that `key` had at revision `at`; `None` if it did not
    /// exist.
    pub(super) fn modified_at(&self, key: &str, head: Head, at: u64) -> Result<Option<u64>, Fault> {
        if head.modified <= at {
            return Ok(head.live.then_some(head.modified));
        }
        let mut revision = head.modified;
        loop {
            let Some(bytes) = self.record(revision)? else {
                return Err(missing(key, revision));
            };
            let record = Record::decode(revision, bytes.get())?;
            if record.key != key {
                return Err(misplaced(key, revision));
            }
            if revision <= at {
                return Ok(record.value.is_some().then_some(revision));
            }
            // The key did not exist before its first record, or before it was created again after
            // `at`, if the tombstone in between has been collected.
            let first = record.previous == 0;
            let reborn = record.is_create(revision) && record.previous <= self.position.compacted;
            if first || (reborn && self.record(record.previous)?.is_none()) {
                return Ok(None);
            }
            revision = record.previous;
        }
    }

    fn value_of(&self, key: StorageKey, modified: u64) -> Result<KeyValue, Fault> {
        let bytes = self.record(modified)?;
        let bytes = bytes.ok_or_else(|| missing(key.as_str(), modified))?;
        let record = Record::decode(modified, bytes.get())?;
        match record.value {
            Some(value) if record.key == key.as_str() => Ok(KeyValue {
                value: Bytes::copy_from_slice(value),
                create_revision: ResourceVersion::new(record.created),
                mod_revision: ResourceVersion::new(modified),
                is_stale: false,
                key,
            }),
            _ => Err(misplaced(key.as_str(), modified)),
        }
    }

    fn event(&self, revision: u64, record: &Record<'_>) -> Result<StorageEvent, Fault> {
        let key = StorageKey::new(record.key).map_err(|e| Fault::Damaged(e.to_string()))?;
        let previous = if record.is_create(revision) {
            None
        } else {
            Some(self.value_of(key.clone(), record.previous)?.value)
        };
        Ok(StorageEvent {
            key,
            revision: ResourceVersion::new(revision),
            value: record.value.map(Bytes::copy_from_slice),
            previous,
        })
    }
}

/// Returns the approximate memory use of an event.
pub(super) fn event_bytes(event: &StorageEvent) -> usize {
    let value = event.value.as_ref().map_or(0, Bytes::len);
    let previous = event.previous.as_ref().map_or(0, Bytes::len);
    size_of::<StorageEvent>() + event.key.as_str().len() + value + previous
}

pub(super) fn missing(key: &str, revision: u64) -> Fault {
    Fault::Damaged(format!("record of {key} at revision {revision} is missing"))
}

pub(super) fn misplaced(key: &str, revision: u64) -> Fault {
    Fault::Damaged(format!(
        "record of revision {revision} is not a value of {key}"
    ))
}

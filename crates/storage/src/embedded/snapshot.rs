//! Reads of the store in one read transaction: gets, lists at a revision, and history.

use std::ops::Bound::{Included, Unbounded};

use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase as _};

use super::codec::{Head, Record, decode_number};
use super::error::Fault;
use super::tables::{COLLECTED, COMPACTED, CURRENT, FIRST_REVISION, LOG, META, REVISION};
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

/// The store at one revision.
pub(super) struct Snapshot {
    pub(super) log: ReadOnlyTable<u64, &'static [u8]>,
    pub(super) current: ReadOnlyTable<&'static str, &'static [u8]>,
    /// The last revision.
    pub(super) revision: u64,
    /// The compacted revision: later events, and the state at it, can be read.
    pub(super) compacted: u64,
    /// The collected revision: all later records are in the log.
    pub(super) collected: u64,
}

impl Snapshot {
    /// Opens a snapshot of the current state.
    pub(super) fn take(db: &Database) -> Result<Self, Fault> {
        let txn = db.begin_read()?;
        let meta = txn.open_table(META)?;
        let number = |name: &str| -> Result<u64, Fault> {
            meta.get(name)?
                .and_then(|bytes| decode_number(name, bytes.value()))
                .ok_or_else(|| Fault::Damaged(format!("the store's {name} is missing or damaged")))
        };
        Ok(Self {
            log: txn.open_table(LOG)?,
            current: txn.open_table(CURRENT)?,
            revision: number(REVISION)?,
            compacted: number(COMPACTED)?,
            collected: number(COLLECTED)?,
        })
    }

    /// Returns the latest value of `key`.
    pub(super) fn get(&self, key: &StorageKey) -> Result<Option<KeyValue>, Fault> {
        let Some(head) = self.current.get(key.as_str())? else {
            return Ok(None);
        };
        let head = Head::decode(key.as_str(), head.value())?;
        if !head.live {
            return Ok(None);
        }
        self.value_of(key.clone(), head.modified).map(Some)
    }

    /// Returns part of a list, at the latest revision or an older one.
    pub(super) fn list(&self, request: &ListRequest) -> Result<ListPage, Fault> {
        let at = request.at.map_or(self.revision, ResourceVersion::get);
        self.exists(at)?;
        let prefix = request.prefix.as_str();
        let start = format!("{prefix}{}", request.start);
        let (mut found, mut remaining) = (Vec::new(), 0);
        for entry in self
            .current
            .range::<&str>((Included(start.as_str()), Unbounded))?
        {
            let (key, head) = entry?;
            let key = key.value();
            if !request.prefix.covers(key) {
                break;
            }
            let head = Head::decode(key, head.value())?;
            let Some(modified) = self.modified_at(key, head, at)? else {
                continue;
            };
            if request.limit != 0 && found.len() == request.limit {
                remaining += 1;
                match request.count {
                    true => continue,
                    false => break,
                }
            }
            let key = StorageKey::new(key).map_err(|e| Fault::Damaged(e.to_string()))?;
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
        let keys = (Included(prefix.as_str()), Unbounded);
        for (number, entry) in self.current.range::<&str>(keys)?.enumerate() {
            let (key, head) = entry?;
            let key = key.value();
            if !prefix.covers(key) {
                break;
            }
            if number == FEW_KEYS_MAX {
                return Ok(None);
            }
            let mut revision = Head::decode(key, head.value())?.modified;
            // Older records of the chain may have been collected.
            while revision >= from {
                if records == HISTORY_EVENTS_MAX || bytes_read > HISTORY_BYTES_MAX {
                    return Ok(None);
                }
                records += 1;
                if revision <= to {
                    revisions.push(revision);
                }
                let bytes = self.log.get(revision)?;
                let bytes = bytes.ok_or_else(|| missing(key, revision))?;
                bytes_read += bytes.value().len();
                let record = Record::decode(revision, bytes.value())?;
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
            let record = self.log.get(revision)?.ok_or_else(damaged)?;
            let event = self.event(revision, &Record::decode(revision, record.value())?)?;
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
        for entry in self.log.range(from..=to)?.take(HISTORY_RECORDS_MAX) {
            let (revision, record) = entry?;
            let revision = revision.value();
            if revision != read + 1 {
                break;
            }
            read = revision;
            let record = Record::decode(revision, record.value())?;
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
        if at > self.revision {
            return Err(Fault::Storage(StorageError::Future {
                requested: ResourceVersion::new(at),
                current: ResourceVersion::new(self.revision),
            }));
        }
        self.readable(at)
    }

    /// Returns an error if revision `at` is compacted.
    pub(super) fn readable(&self, at: u64) -> Result<(), Fault> {
        if at < self.compacted {
            return Err(Fault::Storage(StorageError::Compacted {
                requested: ResourceVersion::new(at),
                compacted: ResourceVersion::new(self.compacted),
            }));
        }
        Ok(())
    }

    /// Checks that the newest record has the last revision; a cheap check when a store is opened.
    pub(super) fn check_newest(&self) -> Result<(), Fault> {
        if self.collected > self.compacted || self.compacted > self.revision {
            return Err(Fault::Damaged(format!(
                "revision {}, compacted {} and collected {} contradict each other",
                self.revision, self.compacted, self.collected
            )));
        }
        let newest = self
            .log
            .range(self.collected + 1..)?
            .next_back()
            .transpose()?;
        let none = self.collected.max(FIRST_REVISION);
        let newest = newest.map_or(none, |(revision, _)| revision.value());
        if newest != self.revision {
            return Err(Fault::Damaged(format!(
                "the last record is of revision {newest} but the store is at {}",
                self.revision
            )));
        }
        Ok(())
    }

    /// Returns the revision of the value that `key` had at revision `at`; `None` if it did not
    /// exist.
    fn modified_at(&self, key: &str, head: Head, at: u64) -> Result<Option<u64>, Fault> {
        if head.modified <= at {
            return Ok(head.live.then_some(head.modified));
        }
        let mut revision = head.modified;
        loop {
            let Some(bytes) = self.log.get(revision)? else {
                return Err(missing(key, revision));
            };
            let record = Record::decode(revision, bytes.value())?;
            if record.key != key {
                return Err(misplaced(key, revision));
            }
            if revision <= at {
                return Ok(record.value.is_some().then_some(revision));
            }
            // The key did not exist before its first record, or before it was created again after
            // `at`, if the tombstone in between has been collected.
            let first = record.previous == 0;
            let reborn = record.is_create(revision) && record.previous <= self.compacted;
            if first || (reborn && self.log.get(record.previous)?.is_none()) {
                return Ok(None);
            }
            revision = record.previous;
        }
    }

    fn value_of(&self, key: StorageKey, modified: u64) -> Result<KeyValue, Fault> {
        let bytes = self.log.get(modified)?;
        let bytes = bytes.ok_or_else(|| missing(key.as_str(), modified))?;
        let record = Record::decode(modified, bytes.value())?;
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

fn missing(key: &str, revision: u64) -> Fault {
    Fault::Damaged(format!("record of {key} at revision {revision} is missing"))
}

fn misplaced(key: &str, revision: u64) -> Fault {
    Fault::Damaged(format!(
        "record of revision {revision} is not a value of {key}"
    ))
}

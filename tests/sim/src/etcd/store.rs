//! The key-value state: every version of every key, the changes by revision, and the leases. There is one state for the
//! whole cluster; a member sees it as of its own revision, through a [`View`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use etcd_client::proto::PbKeyValue;

use super::errors::EtcdError;

/// The range of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyRange {
    begin: Vec<u8>,
    /// The exclusive end.
    end: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Returns the range of the fields `key` and `range_end`: no end means the key itself, a zero byte means all keys
    /// from `key` on.
    pub(super) fn new(key: &[u8], range_end: &[u8]) -> Self {
        let begin = key.to_vec();
        let end = match range_end {
            [] => Bound::Included(begin.clone()),
            [0] => Bound::Unbounded,
            end => Bound::Excluded(end.to_vec()),
        };
        Self { begin, end }
    }

    /// Returns true if no key can be in the range.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.end, Bound::Excluded(end) if *end <= self.begin)
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let before_end = match &self.end {
            Bound::Included(end) => key <= end.as_slice(),
            Bound::Excluded(end) => key < end.as_slice(),
            Bound::Unbounded => true,
        };
        key >= self.begin.as_slice() && before_end
    }

    fn bounds(&self) -> (Bound<&Vec<u8>>, Bound<&Vec<u8>>) {
        (Bound::Included(&self.begin), self.end.as_ref())
    }
}

/// A version of a key; `kv` is `None` after a deletion.
#[derive(Debug, Clone)]
struct Version {
    revision: i64,
    kv: Option<Arc<PbKeyValue>>,
}

/// One change of a revision; `kv` is `None` for a deletion.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: i64,
    pub(super) key: Arc<Vec<u8>>,
    pub(super) kv: Option<Arc<PbKeyValue>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Lease {
    pub(super) ttl: i64,
    pub(super) keys: BTreeSet<Vec<u8>>,
}

/// The state after the last committed log entry.
#[derive(Debug, Clone)]
pub(super) struct Store {
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
    changes: BTreeMap<i64, Vec<Change>>,
    pub(super) leases: BTreeMap<i64, Lease>,
    pub(super) revision: i64,
    pub(super) compacted: i64,
    /// The revision below which versions were discarded.
    discarded: i64,
    pub(super) no_space: bool,
    pub(super) corrupt: bool,
    /// Whether the operations of a transaction are checked in their order; otherwise the puts before the ranges.
    pub(super) checks_in_order: bool,
    /// Whether a range of keys only omits the leases of the keys.
    pub(super) keys_only_omits_lease: bool,
}

impl Store {
    /// Returns the state of a new cluster.
    pub(super) fn new() -> Self {
        Self {
            keys: BTreeMap::new(),
            changes: BTreeMap::new(),
            leases: BTreeMap::new(),
            revision: 1,
            compacted: -1,
            discarded: -1,
            no_space: false,
            corrupt: false,
            checks_in_order: true,
            keys_only_omits_lease: false,
        }
    }

    /// Returns the changes of the revisions from `first` to `last`, in order.
    pub(super) fn changes(&self, first: i64, last: i64) -> impl Iterator<Item = &Change> {
        let revisions = (first <= last).then(|| self.changes.range(first..=last));
        revisions
            .into_iter()
            .flatten()
            .flat_map(|(_, changes)| changes)
    }

    /// Returns the bytes of all keys and values.
    pub(super) fn size_bytes(&self) -> i64 {
        let bytes = self.keys.iter().map(|(key, versions)| {
            let values = versions.iter().map(|version| {
                let value = version.kv.as_ref().map_or(0, |kv| kv.value.len());
                key.len() + value + 64
            });
            values.sum::<usize>()
        });
        i64::try_from(bytes.sum::<usize>()).unwrap_or(i64::MAX)
    }

    /// Frees versions that no member can read: those before `revision` that are not the latest at it.
    pub(super) fn discard_below(&mut self, revision: i64) {
        if revision <= self.discarded {
            return;
        }
        self.discarded = revision;
        self.keys.retain(|_, versions| {
            let older = versions.partition_point(|version| version.revision <= revision);
            let keep = older.saturating_sub(1);
            versions.drain(..keep);
            let dead = versions
                .first()
                .is_some_and(|first| first.kv.is_none() && first.revision <= revision);
            if dead {
                versions.remove(0);
            }
            !versions.is_empty()
        });
        self.changes = self.changes.split_off(&revision);
    }

    fn live(&self, key: &[u8], at: i64) -> Option<&Arc<PbKeyValue>> {
        let versions = self.keys.get(key)?;
        let count = versions.partition_point(|version| version.revision <= at);
        versions.get(count.checked_sub(1)?)?.kv.as_ref()
    }
}

/// The state as of a revision.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) store: &'a Store,
    pub(super) revision: i64,
    pub(super) compacted: i64,
}

impl View<'_> {
    /// Returns the key-values of the range at revision `at` (zero: the view's), in the order of keys.
    pub(super) fn range(
        &self,
        range: &KeyRange,
        at: i64,
    ) -> Result<Vec<Arc<PbKeyValue>>, EtcdError> {
        let at = self.check(at)?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let keys = self.store.keys.range::<Vec<u8>, _>(range.bounds());
        let live = keys.filter_map(|(key, _)| self.store.live(key, at));
        Ok(live.cloned().collect())
    }

    /// Returns the key-value of `key` at revision `at`; `None` also if the revision was compacted.
    pub(super) fn get(&self, key: &[u8], at: i64) -> Option<Arc<PbKeyValue>> {
        let at = self.check(at).ok()?;
        self.store.live(key, at).cloned()
    }

    /// Returns the effective revision of a read at `at`.
    pub(super) fn check(&self, at: i64) -> Result<i64, EtcdError> {
        if at > self.revision {
            return Err(EtcdError::FutureRevision);
        }
        let at = if at <= 0 { self.revision } else { at };
        if at < self.compacted {
            return Err(EtcdError::Compacted);
        }
        Ok(at)
    }
}

/// A write transaction: all its changes get the next revision.
pub(super) struct Writer<'a> {
    store: &'a mut Store,
    changes: Vec<Change>,
}

impl<'a> Writer<'a> {
    pub(super) fn begin(store: &'a mut Store) -> Self {
        Self {
            store,
            changes: Vec::new(),
        }
    }

    /// Returns the revision that a read inside the transaction sees.
    pub(super) fn revision(&self) -> i64 {
        self.store.revision + i64::from(!self.changes.is_empty())
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
            store: self.store,
            revision: self.revision(),
            compacted: self.store.compacted,
        }
    }

    /// Puts a value and returns the revision.
    pub(super) fn put(&mut self, key: &[u8], value: Vec<u8>, lease: i64) -> i64 {
        let revision = self.store.revision + 1;
        let previous = self.store.live(key, revision).cloned();
        self.detach(previous.as_deref());
        let kv = Arc::new(PbKeyValue {
            key: key.to_vec(),
            create_revision: previous.as_ref().map_or(revision, |kv| kv.create_revision),
            mod_revision: revision,
            version: previous.as_ref().map_or(1, |kv| kv.version + 1),
            value,
            lease,
        });
        if let Some(lease) = self.store.leases.get_mut(&lease) {
            lease.keys.insert(key.to_vec());
        }
        self.record(key, Some(kv));
        revision
    }

    /// Deletes the keys of the range and returns them.
    pub(super) fn delete(&mut self, range: &KeyRange) -> Vec<Arc<PbKeyValue>> {
        let found = self.view().range(range, 0).unwrap_or_default();
        for kv in &found {
            self.detach(Some(kv));
            self.record(&kv.key, None);
        }
        found
    }

    fn detach(&mut self, kv: Option<&PbKeyValue>) {
        if let Some(kv) = kv
            && let Some(lease) = self.store.leases.get_mut(&kv.lease)
        {
            lease.keys.remove(&kv.key);
        }
    }

    fn record(&mut self, key: &[u8], kv: Option<Arc<PbKeyValue>>) {
        let revision = self.store.revision + 1;
        let versions = self.store.keys.entry(key.to_vec()).or_default();
        // Changes of one transaction share the revision; the last one of a key counts.
        versions.retain(|version| version.revision != revision);
        versions.push(Version {
            revision,
            kv: kv.clone(),
        });
        self.changes.push(Change {
            revision,
            key: Arc::new(key.to_vec()),
            kv,
        });
    }

    /// Ends the transaction and returns the state's revision after it.
    pub(super) fn commit(self) -> i64 {
        if !self.changes.is_empty() {
            self.store.revision += 1;
            self.store.changes.insert(self.store.revision, self.changes);
        }
        self.store.revision
    }
}

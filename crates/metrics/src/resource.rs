//! The metrics of one resource: the counters of its cache and storage, and the state of the cache
//! at scrape time. `table` has the names.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::CacheOutage;
use super::value::{Counter, Gauge, Histogram};

/// Bucket bounds of storage request durations in seconds.
pub(super) const REQUEST_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// Bucket bounds of waits for the cache, which end after 3 s.
const WAIT_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0,
];

/// Bucket bounds of event dispatch durations.
pub(super) const DISPATCH_SECONDS: &[f64] = &[
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
];

/// Bucket bounds of the duration of lists that fill a cache.
const INITIALIZATION_SECONDS: &[f64] = &[
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0,
];

/// A storage request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads one key.
    Get,
    /// Reads a page.
    List,
    /// Creates a key.
    Create,
    /// Updates a key.
    Update,
    /// Deletes a key.
    Delete,
    /// Reads the latest revision.
    CurrentRevision,
}

impl Operation {
    pub(super) const ALL: [(Self, &'static str); 6] = [
        (Self::Get, "get"),
        (Self::List, "list"),
        (Self::Create, "create"),
        (Self::Update, "update"),
        (Self::Delete, "delete"),
        (Self::CurrentRevision, "currentRevision"),
    ];
}

/// The source of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListSource {
    /// The cache.
    Cache,
    /// Storage.
    Storage,
}

impl ListSource {
    pub(super) const ALL: [(Self, &'static str); 2] =
        [(Self::Cache, "watchcache"), (Self::Storage, "etcd")];
}

/// The cost of a list.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListCost {
    /// Examined objects in the cache, or objects read from storage.
    pub fetched: usize,
    /// Decoded and tested objects; zero for a list from the cache.
    pub evaluated: usize,
    /// Returned objects.
    pub returned: usize,
}

/// A stage of event dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// From arrival to publication.
    StorageToCache,
    /// From publication until a watcher reads it.
    CacheToWatcher,
    /// Both stages.
    Total,
}

impl Stage {
    pub(super) const ALL: [(Self, &'static str); 3] = [
        (Self::StorageToCache, "storage_to_cache"),
        (Self::CacheToWatcher, "cache_to_watcher"),
        (Self::Total, "total"),
    ];
}

/// The state of a cache at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The version of its state.
    pub resource_version: u64,
    /// The number of objects.
    pub objects: usize,
    /// The size of their JSON.
    pub objects_bytes: usize,
    /// The number of events in history.
    pub history_events: usize,
    /// Watchers in the live set; the others read history.
    pub live_watchers: usize,
    /// Comparisons of the cache with storage.
    pub consistency_checks: ConsistencyChecks,
}

/// The number of comparisons with storage by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsistencyChecks {
    /// Equal.
    pub success: u64,
    /// Different.
    pub failure: u64,
    /// The comparison failed.
    pub error: u64,
}

/// A cache whose state is read at scrape time.
pub trait CacheState: Send + Sync + std::fmt::Debug {
    /// Returns the current state; `None` before the first list.
    fn stats(&self) -> Option<CacheStats>;
}

/// The cache of the resource.
#[derive(Debug)]
struct Cache {
    state: Mutex<Weak<dyn CacheState>>,
    /// The counters of lists from an index, by index name.
    indexed: Vec<(String, ListCounters)>,
}

#[derive(Debug, Default)]
pub(super) struct ListCounters {
    pub(super) lists: Counter,
    pub(super) fetched: Counter,
    pub(super) evaluated: Counter,
    pub(super) returned: Counter,
}

impl ListCounters {
    fn count(&self, cost: ListCost) {
        self.lists.inc();
        self.fetched.add(cost.fetched);
        self.evaluated.add(cost.evaluated);
        self.returned.add(cost.returned);
    }
}

/// The metrics of one resource.
#[derive(Debug)]
pub struct ResourceMetrics {
    pub(super) group: String,
    pub(super) resource: String,
    cache: OnceLock<Cache>,
    /// The caches of the server that cannot follow storage.
    pub cache_outage: Arc<CacheOutage>,
    /// Counters of lists that use no index.
    lists: [ListCounters; ListSource::ALL.len()],
    pub(super) list_seconds: Histogram,
    pub(super) consistent_reads: [[Counter; 2]; 2],
    pub(super) read_wait_seconds: Histogram,
    pub(super) initialization_seconds: Histogram,
    pub(super) dispatch_seconds: [Histogram; Stage::ALL.len()],
    pub(super) request_seconds: [Histogram; Operation::ALL.len()],
    pub(super) request_errors: [Counter; Operation::ALL.len()],
    /// Lists that failed to fill the cache.
    pub initialization_errors: Counter,
    /// Objects of initial states sent to watchers.
    pub init_events: Counter,
    /// Events that the cache received.
    pub events_received: Counter,
    /// Dispatched events, and progress notifications.
    pub events_dispatched: Counter,
    /// Watchers ended because history was trimmed before they had read it.
    pub terminated_watchers: Counter,
    /// The number of times that live watchers were parked.
    pub times_parked: Counter,
    /// The watchers that are parked.
    pub parked_watchers: Gauge,
    /// Watchers, live or not.
    pub watchers: Gauge,
    /// Watchers with a shard selector.
    pub sharded_watchers: Gauge,
    /// Events not sent to a watcher because of its shard selector.
    pub filtered_events: Counter,
    /// Events received from storage.
    pub storage_events: Counter,
    /// Progress notifications received from storage.
    pub storage_bookmarks: Counter,
    /// Stored values that could not be decoded.
    pub decode_errors: Counter,
}

impl ResourceMetrics {
    /// Returns metrics with the value zero.
    pub(super) fn new(group: &str, resource: &str, cache_outage: Arc<CacheOutage>) -> Self {
        Self {
            cache_outage,
            group: group.to_owned(),
            resource: resource.to_owned(),
            cache: OnceLock::new(),
            lists: Default::default(),
            list_seconds: Histogram::new(REQUEST_SECONDS),
            consistent_reads: Default::default(),
            read_wait_seconds: Histogram::new(WAIT_SECONDS),
            initialization_seconds: Histogram::new(INITIALIZATION_SECONDS),
            dispatch_seconds: Stage::ALL.map(|_| Histogram::new(DISPATCH_SECONDS)),
            request_seconds: Operation::ALL.map(|_| Histogram::new(REQUEST_SECONDS)),
            request_errors: Default::default(),
            initialization_errors: Counter::default(),
            init_events: Counter::default(),
            events_received: Counter::default(),
            events_dispatched: Counter::default(),
            terminated_watchers: Counter::default(),
            times_parked: Counter::default(),
            parked_watchers: Gauge::default(),
            watchers: Gauge::default(),
            sharded_watchers: Gauge::default(),
            filtered_events: Counter::default(),
            storage_events: Counter::default(),
            storage_bookmarks: Counter::default(),
            decode_errors: Counter::default(),
        }
    }

    /// Sets the cache to read at scrape time and the names of its indexes. Keeps a weak reference.
    /// A new cache replaces the previous one, and its counters continue.
    pub fn set_cache(&self, state: Weak<dyn CacheState>, indexes: Vec<String>) {
        let counters = |name| (name, ListCounters::default());
        let cache = self.cache.get_or_init(|| Cache {
            state: Mutex::new(state.clone()),
            indexed: indexes.into_iter().map(counters).collect(),
        });
        *cache.state.lock() = state;
    }

    /// Counts a list from the cache. `index` is the number of the index that the list used.
    pub fn count_cache_list(&self, cost: ListCost, index: Option<usize>) {
        let indexed = index.and_then(|index| self.cache.get()?.indexed.get(index));
        let unindexed = &self.lists[ListSource::Cache as usize];
        indexed.map_or(unindexed, |(_, lists)| lists).count(cost);
    }

    /// Counts a list from storage and its duration.
    pub fn count_storage_list(&self, cost: ListCost, elapsed: Duration) {
        self.lists[ListSource::Storage as usize].count(cost);
        self.list_seconds.observe_duration(elapsed);
    }

    /// Counts a consistent read. `fallback`: the read fell back to storage.
    pub fn read_consistently(&self, success: bool, fallback: bool) {
        self.consistent_reads[usize::from(success)][usize::from(fallback)].inc();
    }

    /// Observes the time that a read waited for the cache.
    pub fn observe_wait(&self, elapsed: Duration) {
        self.read_wait_seconds.observe_duration(elapsed);
    }

    /// Observes the duration of a list that filled the cache.
    pub fn initialized(&self, elapsed: Duration) {
        self.initialization_seconds.observe_duration(elapsed);
    }

    /// Observes the duration of a dispatch stage for a number of events.
    pub fn observe_dispatch(&self, stage: Stage, elapsed: Duration, events: usize) {
        self.dispatch_seconds[stage as usize].observe_many(elapsed.as_secs_f64(), events);
    }

    /// Counts a storage request.
    pub fn requested(&self, operation: Operation, elapsed: Duration, failed: bool) {
        self.request_seconds[operation as usize].observe_duration(elapsed);
        if failed {
            self.request_errors[operation as usize].inc();
        }
    }

    /// Returns `pods` or `deployments.apps`.
    pub fn qualified(&self) -> String {
        match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// Returns the counters of lists from `source` by index; those without an index are first.
    pub(super) fn lists(&self, source: ListSource) -> impl Iterator<Item = (&str, &ListCounters)> {
        let cache = self.cache.get().filter(|_| source == ListSource::Cache);
        let indexed = cache.into_iter().flat_map(|cache| &cache.indexed);
        let indexed = indexed.map(|(name, lists)| (name.as_str(), lists));
        std::iter::once(("", &self.lists[source as usize])).chain(indexed)
    }

    /// Returns the current state of the cache, if it has one.
    pub(super) fn cache_stats(&self) -> Option<CacheStats> {
        let state = self.cache.get()?.state.lock().upgrade();
        state?.stats()
    }
}

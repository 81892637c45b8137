//! The metrics of one resource: what its cache and its storage count, and the state of the cache as
//! it is when somebody looks. Names are not known here; `table` has them.

use std::sync::{OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::value::{Counter, Gauge, Histogram};

/// Upper bounds of what a request to storage takes, in seconds.
pub(super) const REQUEST_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// The same of a wait for the cache, which ends after 3 s.
const WAIT_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0,
];

/// The same of an event's way.
const DISPATCH_SECONDS: &[f64] = &[
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
];

/// The same of a list that fills a cache.
const INITIALIZATION_SECONDS: &[f64] = &[
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0,
];

/// What can be asked of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// One key.
    Get,
    /// A page.
    List,
    /// A new key.
    Create,
    /// A changed key.
    Update,
    /// A key less.
    Delete,
    /// The latest revision.
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

/// Who answered a list.
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

/// What answering one list took.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListCost {
    /// Objects looked at in the cache, or read from storage.
    pub fetched: usize,
    /// Objects decoded for it and tested; none in the cache, whose objects are decoded.
    pub evaluated: usize,
    /// Objects in the answer.
    pub returned: usize,
}

/// A stage of an event's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// From its arrival to its publication.
    StorageToCache,
    /// From there to a watcher that takes it.
    CacheToWatcher,
    /// Both.
    Total,
}

impl Stage {
    pub(super) const ALL: [(Self, &'static str); 3] = [
        (Self::StorageToCache, "storage_to_cache"),
        (Self::CacheToWatcher, "cache_to_watcher"),
        (Self::Total, "total"),
    ];
}

/// What a cache is like at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheLook {
    /// The version of its state.
    pub resource_version: u64,
    /// Objects in its state.
    pub objects: usize,
    /// Their bytes, as JSON.
    pub objects_bytes: usize,
    /// Events that history holds.
    pub history_events: usize,
    /// Watchers that events are dispatched to; the others read history, or nothing at the moment.
    pub live_watchers: usize,
    /// Comparisons of the cache with storage.
    pub consistency_checks: ConsistencyChecks,
}

/// How often the cache was compared with storage, by how that went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsistencyChecks {
    /// They were equal.
    pub success: u64,
    /// They were not.
    pub failure: u64,
    /// They could not be compared.
    pub error: u64,
}

/// A cache that can be looked at.
pub trait CacheState: Send + Sync + std::fmt::Debug {
    /// What it is like now; `None` before it has a state.
    fn look(&self) -> Option<CacheLook>;
}

/// The cache to look at.
#[derive(Debug)]
struct Cache {
    state: Mutex<Weak<dyn CacheState>>,
    /// The lists that it answers from its indexes, by their names.
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

/// The values of one resource.
#[derive(Debug)]
pub struct ResourceMetrics {
    pub(super) group: String,
    pub(super) resource: String,
    cache: OnceLock<Cache>,
    /// Those that are answered from no index.
    lists: [ListCounters; ListSource::ALL.len()],
    pub(super) list_seconds: Histogram,
    pub(super) consistent_reads: [[Counter; 2]; 2],
    pub(super) read_wait_seconds: Histogram,
    pub(super) initialization_seconds: Histogram,
    pub(super) dispatch_seconds: [Histogram; Stage::ALL.len()],
    pub(super) request_seconds: [Histogram; Operation::ALL.len()],
    pub(super) request_errors: [Counter; Operation::ALL.len()],
    /// Lists that could not fill the cache.
    pub initialization_errors: Counter,
    /// Objects of initial states given to watchers.
    pub init_events: Counter,
    /// Events that the cache took in.
    pub events_received: Counter,
    /// Events that were dispatched, and progress that was told without one.
    pub events_dispatched: Counter,
    /// Watchers that read too slowly for history and were ended.
    pub terminated_watchers: Counter,
    /// Times that a live watcher went on from history.
    pub parked_watchers: Counter,
    /// Watchers, live or not.
    pub watchers: Gauge,
    /// Those of one shard.
    pub sharded_watchers: Gauge,
    /// Events that were dispatched, but for its shard, to a watcher.
    pub filtered_events: Counter,
    /// Events that storage sent.
    pub storage_events: Counter,
    /// Times that storage told progress without an event.
    pub storage_bookmarks: Counter,
    /// Stored values that are no objects.
    pub decode_errors: Counter,
}

impl ResourceMetrics {
    /// All zero.
    pub(super) fn new(group: &str, resource: &str) -> Self {
        Self {
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
            parked_watchers: Counter::default(),
            watchers: Gauge::default(),
            sharded_watchers: Gauge::default(),
            filtered_events: Counter::default(),
            storage_events: Counter::default(),
            storage_bookmarks: Counter::default(),
            decode_errors: Counter::default(),
        }
    }

    /// Says which cache is to be looked at, and what its indexes are called. It is not kept alive. One
    /// that comes after another takes its place, and counts on where that one ended.
    pub fn look_at(&self, state: Weak<dyn CacheState>, indexes: Vec<String>) {
        let counters = |name| (name, ListCounters::default());
        let cache = self.cache.get_or_init(|| Cache {
            state: Mutex::new(state.clone()),
            indexed: indexes.into_iter().map(counters).collect(),
        });
        *cache.state.lock() = state;
    }

    /// The cache answered a list, from the index of this number if from any.
    pub fn listed_from_cache(&self, cost: ListCost, index: Option<usize>) {
        let indexed = index.and_then(|index| self.cache.get()?.indexed.get(index));
        let unindexed = &self.lists[ListSource::Cache as usize];
        indexed.map_or(unindexed, |(_, lists)| lists).count(cost);
    }

    /// Storage answered a list, in this time.
    pub fn listed_from_storage(&self, cost: ListCost, elapsed: Duration) {
        self.lists[ListSource::Storage as usize].count(cost);
        self.list_seconds.observe_duration(elapsed);
    }

    /// A consistent read was tried on the cache: whether it was answered, and whether storage had to.
    pub fn read_consistently(&self, success: bool, fallback: bool) {
        self.consistent_reads[usize::from(success)][usize::from(fallback)].inc();
    }

    /// A read waited for the cache so long.
    pub fn waited(&self, elapsed: Duration) {
        self.read_wait_seconds.observe_duration(elapsed);
    }

    /// A list filled the cache, in this time.
    pub fn initialized(&self, elapsed: Duration) {
        self.initialization_seconds.observe_duration(elapsed);
    }

    /// So many events took so long for a stage of their way.
    pub fn dispatched(&self, stage: Stage, elapsed: Duration, events: usize) {
        self.dispatch_seconds[stage as usize].observe_many(elapsed.as_secs_f64(), events);
    }

    /// A request to storage ended.
    pub fn requested(&self, operation: Operation, elapsed: Duration, failed: bool) {
        self.request_seconds[operation as usize].observe_duration(elapsed);
        if failed {
            self.request_errors[operation as usize].inc();
        }
    }

    /// `pods`, `deployments.apps`.
    pub(super) fn qualified(&self) -> String {
        match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// The lists that `source` answered, by index; those from no index first.
    pub(super) fn lists(&self, source: ListSource) -> impl Iterator<Item = (&str, &ListCounters)> {
        let cache = self.cache.get().filter(|_| source == ListSource::Cache);
        let indexed = cache.into_iter().flat_map(|cache| &cache.indexed);
        let indexed = indexed.map(|(name, lists)| (name.as_str(), lists));
        std::iter::once(("", &self.lists[source as usize])).chain(indexed)
    }

    /// What the cache is like now, if there is one and it has a state.
    pub(super) fn look_now(&self) -> Option<CacheLook> {
        let state = self.cache.get()?.state.lock().upgrade();
        state?.look()
    }
}

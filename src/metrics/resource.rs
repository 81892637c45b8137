//! The metrics of one resource: what its cache and its storage count, and the state of the cache as
//! it is when somebody looks. Names are not known here; `table` has them.

use std::sync::{OnceLock, Weak};
use std::time::Duration;

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
pub enum ListSource {
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

#[derive(Debug, Default)]
pub(super) struct ListCounters {
    pub(super) lists: Counter,
    pub(super) fetched: Counter,
    pub(super) evaluated: Counter,
    pub(super) returned: Counter,
}

/// The values of one resource.
#[derive(Debug)]
pub struct ResourceMetrics {
    pub(super) group: String,
    pub(super) resource: String,
    cache: OnceLock<Weak<dyn CacheState>>,
    pub(super) lists: [ListCounters; ListSource::ALL.len()],
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
            storage_events: Counter::default(),
            storage_bookmarks: Counter::default(),
            decode_errors: Counter::default(),
        }
    }

    /// Says which cache is to be looked at. It is not kept alive; the first one counts.
    pub fn look_at(&self, cache: Weak<dyn CacheState>) {
        // A second cache of a resource would be a bug of its owner, and no reason to fail.
        debug_assert!(self.cache.get().is_none());
        self.cache.get_or_init(|| cache);
    }

    /// A list was answered.
    pub fn listed(&self, source: ListSource, cost: ListCost) {
        let counters = &self.lists[source as usize];
        counters.lists.inc();
        counters.fetched.add(cost.fetched);
        counters.evaluated.add(cost.evaluated);
        counters.returned.add(cost.returned);
    }

    /// Storage answered a list, in this time.
    pub fn listed_from_storage(&self, cost: ListCost, elapsed: Duration) {
        self.listed(ListSource::Storage, cost);
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

    /// What the cache is like now, if there is one and it has a state.
    pub(super) fn look_now(&self) -> Option<CacheLook> {
        self.cache.get()?.upgrade()?.look()
    }
}

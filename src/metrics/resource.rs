//! The metrics of one resource: what its cache and its storage count, and the state of the cache as
//! it is when somebody looks. One struct holds the values; one table names them.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::exposition::{Exposition, Family, Kind, Label};
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

/// Upstream tells versions modulo this: Prometheus' numbers are exact only so far.
const VERSION_MODULUS: u64 = 1_000_000_000_000_000;

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
    const ALL: [(Self, &'static str); 6] = [
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
    const ALL: [(Self, &'static str); 2] = [(Self::Cache, "watchcache"), (Self::Storage, "etcd")];
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
    const ALL: [(Self, &'static str); 3] = [
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
struct ListCounters {
    lists: Counter,
    fetched: Counter,
    evaluated: Counter,
    returned: Counter,
}

/// The values of one resource.
#[derive(Debug)]
pub struct ResourceMetrics {
    group: String,
    resource: String,
    cache: OnceLock<Weak<dyn CacheState>>,
    lists: [ListCounters; ListSource::ALL.len()],
    list_seconds: Histogram,
    consistent_reads: [[Counter; 2]; 2],
    read_wait_seconds: Histogram,
    initialization_seconds: Histogram,
    dispatch_seconds: [Histogram; Stage::ALL.len()],
    request_seconds: [Histogram; Operation::ALL.len()],
    request_errors: [Counter; Operation::ALL.len()],
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

    fn look(&self) -> Option<CacheLook> {
        self.cache.get()?.upgrade()?.look()
    }
}

/// A family of which each resource has samples.
pub(super) struct Row {
    pub(super) name: &'static str,
    kind: Kind,
    help: &'static str,
    write: fn(&Seen, &mut Samples<'_, '_>),
}

/// A resource while it is told, looked at once.
pub(super) struct Seen {
    metrics: Arc<ResourceMetrics>,
    look: Option<CacheLook>,
}

/// Where the samples of one resource go.
struct Samples<'a, 'f> {
    family: &'a mut Family<'f>,
    resource: [Label<'a>; 2],
}

impl Samples<'_, '_> {
    fn count(&mut self, counter: &Counter) {
        self.family.value(&[&self.resource], counter.get());
    }

    fn gauge(&mut self, value: u64) {
        self.family.value(&[&self.resource], value);
    }

    /// One of several that are told apart by labels; nothing as long as it is zero.
    fn count_if_any(&mut self, labels: &[Label<'_>], value: u64) {
        if value > 0 {
            self.family.value(&[&self.resource, labels], value);
        }
    }

    fn histogram(&mut self, labels: &[Label<'_>], histogram: &Histogram) {
        self.family.histogram(&[&self.resource, labels], histogram);
    }

    fn of_lists(&mut self, seen: &Seen, counter: fn(&ListCounters) -> &Counter, index: bool) {
        for (source, storage) in ListSource::ALL {
            let counters = &seen.metrics.lists[source as usize];
            let labels = [("storage", storage), ("index", "")];
            if counters.lists.get() > 0 {
                let labels = &labels[..1 + usize::from(index)];
                let value = counter(counters).get();
                self.family.value(&[&self.resource, labels], value);
            }
        }
    }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    write: fn(&Seen, &mut Samples<'_, '_>),
) -> Row {
    let kind = Kind::Counter;
    Row {
        name,
        kind,
        help,
        write,
    }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    write: fn(&Seen, &mut Samples<'_, '_>),
) -> Row {
    let kind = Kind::Gauge;
    Row {
        name,
        kind,
        help,
        write,
    }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    write: fn(&Seen, &mut Samples<'_, '_>),
) -> Row {
    let kind = Kind::Histogram;
    Row {
        name,
        kind,
        help,
        write,
    }
}

/// Every family of this room that each resource has, by name.
#[rustfmt::skip]
pub(super) const TABLE: &[Row] = &[
    counter("apiserver_cache_list_fetched_objects_total",
        "Objects looked at in the cache to answer lists.",
        |r, out| out.family.value(&[&out.resource, &[("index", "")]], r.cache_lists().fetched.get())),
    counter("apiserver_cache_list_returned_objects_total",
        "Objects in lists that the cache answered.",
        |r, out| out.count(&r.cache_lists().returned)),
    counter("apiserver_cache_list_total",
        "Lists that the cache answered.",
        |r, out| out.family.value(&[&out.resource, &[("index", "")]], r.cache_lists().lists.get())),
    counter("apiserver_init_events_total",
        "Objects of the initial states that watchers were given.",
        |r, out| out.count(&r.metrics.init_events)),
    gauge("apiserver_resource_objects",
        "Objects, as the cache has them; -1 before it has a state.",
        |r, out| r.tell(out, |look| look.objects as u64)),
    gauge("apiserver_resource_size_estimate_bytes",
        "Bytes of the objects, as the cache has them; -1 before it has a state.",
        |r, out| r.tell(out, |look| look.objects_bytes as u64)),
    counter("apiserver_storage_consistency_checks_total",
        "Comparisons of the cache with storage.",
        |r, out| {
            let checks = r.look.unwrap_or_default().consistency_checks;
            out.count_if_any(&[("status", "success")], checks.success);
            out.count_if_any(&[("status", "failure")], checks.failure);
            out.count_if_any(&[("status", "error")], checks.error);
        }),
    counter("apiserver_storage_decode_errors_total",
        "Stored values that are no objects, each time one was read.",
        |r, out| out.count(&r.metrics.decode_errors)),
    counter("apiserver_storage_events_received_total",
        "Events that storage sent.",
        |r, out| out.count(&r.metrics.storage_events)),
    histogram("apiserver_storage_list_duration_seconds",
        "What lists took that storage answered.",
        |r, out| out.histogram(&[("streamed", "false")], &r.metrics.list_seconds)),
    counter("apiserver_storage_list_evaluated_objects_total",
        "Objects that were decoded and tested to answer lists.",
        |r, out| out.of_lists(r, |lists| &lists.evaluated, false)),
    counter("apiserver_storage_list_fetched_objects_total",
        "Objects that were read to answer lists.",
        |r, out| out.of_lists(r, |lists| &lists.fetched, true)),
    counter("apiserver_storage_list_returned_objects_total",
        "Objects in the answers to lists.",
        |r, out| out.of_lists(r, |lists| &lists.returned, false)),
    counter("apiserver_storage_list_total",
        "Lists that were answered, by whom.",
        |r, out| out.of_lists(r, |lists| &lists.lists, true)),
    counter("apiserver_terminated_watchers_total",
        "Watchers that history left behind while they did not read.",
        |r, out| out.count(&r.metrics.terminated_watchers)),
    counter("apiserver_watch_cache_consistent_read_total",
        "Consistent gets and lists that the cache was to answer.",
        |r, out| for (success, counters) in BOOLS.iter().zip(&r.metrics.consistent_reads) {
            for (fallback, counter) in BOOLS.iter().zip(counters) {
                out.count_if_any(&[("success", success), ("fallback", fallback)], counter.get());
            }
        }),
    counter("apiserver_watch_cache_events_dispatched_total",
        "Events that were dispatched, and progress that was told without one.",
        |r, out| out.count(&r.metrics.events_dispatched)),
    counter("apiserver_watch_cache_events_received_total",
        "Events that the cache took in.",
        |r, out| out.count(&r.metrics.events_received)),
    histogram("apiserver_watch_cache_initialization_duration_seconds",
        "What lists took that filled the cache, the first one and each relist.",
        |r, out| out.histogram(&[], &r.metrics.initialization_seconds)),
    counter("apiserver_watch_cache_initialization_errors_total",
        "Lists that could not fill the cache.",
        |r, out| out.count(&r.metrics.initialization_errors)),
    counter("apiserver_watch_cache_initializations_total",
        "Lists that filled the cache, the first one and each relist.",
        |r, out| out.gauge(r.metrics.initialization_seconds.count())),
    histogram("apiserver_watch_cache_read_wait_seconds",
        "How long reads waited for the cache to reach a version.",
        |r, out| out.histogram(&[], &r.metrics.read_wait_seconds)),
    gauge("apiserver_watch_cache_resource_version",
        "The version of the cache's state, modulo 10^15.",
        |r, out| if let Some(look) = r.look {
            out.gauge(look.resource_version % VERSION_MODULUS);
        }),
    histogram("apiserver_watch_events_dispatch_duration_seconds",
        "What events took from storage to a watcher that takes them, by stage.",
        |r, out| for (stage, name) in Stage::ALL {
            out.histogram(&[("stage", name)], &r.metrics.dispatch_seconds[stage as usize]);
        }),
    counter("etcd_bookmark_total",
        "Times that storage told progress without an event.",
        |r, out| out.count(&r.metrics.storage_bookmarks)),
    histogram("etcd_request_duration_seconds",
        "What requests to storage took, whichever storage it is.",
        |r, out| for (operation, name) in Operation::ALL {
            let taken = &r.metrics.request_seconds[operation as usize];
            out.histogram(&[("operation", name)], taken);
        }),
    counter("etcd_request_errors_total",
        "Requests to storage that failed; a refused condition is no failure.",
        |r, out| for (operation, name) in Operation::ALL {
            let errors = &r.metrics.request_errors[operation as usize];
            out.count_if_any(&[("operation", name)], errors.get());
        }),
    counter("etcd_requests_total",
        "Requests to storage, whichever storage it is.",
        |r, out| for (operation, name) in Operation::ALL {
            let taken = &r.metrics.request_seconds[operation as usize];
            out.count_if_any(&[("operation", name)], taken.count());
        }),
    gauge("watch_cache_capacity",
        "Events that history holds.",
        |r, out| if let Some(look) = r.look {
            out.gauge(look.history_events as u64);
        }),
    gauge("watchet_live_watchers",
        "Watchers that events are dispatched to; other watchers read history.",
        |r, out| if let Some(look) = r.look {
            out.gauge(look.live_watchers as u64);
        }),
    counter("watchet_parked_watchers_total",
        "Times that a live watcher went on from history: it was too slow, or storage was listed anew.",
        |r, out| out.count(&r.metrics.parked_watchers)),
    gauge("watchet_watchers",
        "Watchers, live or reading history.",
        |r, out| out.family.value(&[&out.resource], r.metrics.watchers.get())),
];

const BOOLS: [&str; 2] = ["false", "true"];

impl Seen {
    pub(super) fn new(metrics: Arc<ResourceMetrics>) -> Self {
        let look = metrics.look();
        Self { metrics, look }
    }

    fn cache_lists(&self) -> &ListCounters {
        &self.metrics.lists[ListSource::Cache as usize]
    }

    /// What the state says, as upstream: -1 when there is none.
    fn tell(&self, out: &mut Samples<'_, '_>, value: impl FnOnce(&CacheLook) -> u64) {
        match &self.look {
            Some(look) => out.gauge(value(look)),
            None => out.family.value(&[&out.resource], -1),
        }
    }
}

/// Writes one family, the samples of each resource.
pub(super) fn write(row: &Row, resources: &[Seen], out: &mut Exposition) {
    let mut family = out.family(row.name, row.kind, row.help);
    for seen in resources {
        let metrics = &seen.metrics;
        let resource = [("group", &*metrics.group), ("resource", &*metrics.resource)];
        let family = &mut family;
        (row.write)(seen, &mut Samples { family, resource });
    }
}

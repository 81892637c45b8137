//! The table of what each resource has: name, kind and help text of each family, and where its
//! samples are found. It counts nothing.

use std::sync::Arc;

use super::exposition::{Exposition, Family, Kind, Label};
use super::resource::{CacheLook, ListCounters, ListSource, Operation, ResourceMetrics, Stage};
use super::value::{Counter, Histogram};

/// Upstream tells versions modulo this: Prometheus' numbers are exact only so far.
const VERSION_MODULUS: u64 = 1_000_000_000_000_000;

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

    /// What all lists have in sum.
    fn of_lists(&mut self, seen: &Seen, counter: fn(&ListCounters) -> &Counter) {
        for (source, storage) in ListSource::ALL {
            if seen.sum(source, |lists| &lists.lists) > 0 {
                let labels = [("storage", storage)];
                let value = seen.sum(source, counter);
                self.family.value(&[&self.resource, &labels], value);
            }
        }
    }

    /// The same, by index.
    fn of_lists_by_index(&mut self, seen: &Seen, counter: fn(&ListCounters) -> &Counter) {
        for (source, storage) in ListSource::ALL {
            let lists = seen.metrics.lists(source);
            for (index, lists) in lists.filter(|(_, lists)| lists.lists.get() > 0) {
                let labels = [("storage", storage), ("index", index)];
                let value = counter(lists).get();
                self.family.value(&[&self.resource, &labels], value);
            }
        }
    }

    /// Those of the cache alone, by index.
    fn of_cache_lists(&mut self, seen: &Seen, counter: fn(&ListCounters) -> &Counter) {
        for (index, lists) in seen.metrics.lists(ListSource::Cache) {
            if index.is_empty() || lists.lists.get() > 0 {
                let value = counter(lists).get();
                self.family
                    .value(&[&self.resource, &[("index", index)]], value);
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
        |r, out| out.of_cache_lists(r, |lists| &lists.fetched)),
    counter("apiserver_cache_list_returned_objects_total",
        "Objects in lists that the cache answered.",
        |r, out| out.gauge(r.sum(ListSource::Cache, |lists| &lists.returned))),
    counter("apiserver_cache_list_total",
        "Lists that the cache answered.",
        |r, out| out.of_cache_lists(r, |lists| &lists.lists)),
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
        |r, out| out.of_lists(r, |lists| &lists.evaluated)),
    counter("apiserver_storage_list_fetched_objects_total",
        "Objects that were read to answer lists.",
        |r, out| out.of_lists_by_index(r, |lists| &lists.fetched)),
    counter("apiserver_storage_list_returned_objects_total",
        "Objects in the answers to lists.",
        |r, out| out.of_lists(r, |lists| &lists.returned)),
    counter("apiserver_storage_list_total",
        "Lists that were answered, by whom.",
        |r, out| out.of_lists_by_index(r, |lists| &lists.lists)),
    gauge("apiserver_storage_objects",
        "Objects, as the cache has them; -1 before it has a state.",
        |r, out| {
            let objects = r.look.map_or(-1, |look| look.objects as i64);
            out.family.value(&[&[("resource", &r.metrics.qualified())]], objects);
        }),
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
    counter("apiserver_watch_filtered_events_total",
        "Events that were dispatched, but for its shard, to a watcher.",
        |r, out| out.count(&r.metrics.filtered_events)),
    gauge("apiserver_watch_shards_total",
        "Watchers of one shard.",
        |r, out| out.family.value(&[&out.resource], r.metrics.sharded_watchers.get())),
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
        let look = metrics.look_now();
        Self { metrics, look }
    }

    fn sum(&self, source: ListSource, counter: fn(&ListCounters) -> &Counter) -> u64 {
        let lists = self.metrics.lists(source);
        lists.map(|(_, lists)| counter(lists).get()).sum()
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

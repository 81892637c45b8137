//! The table of the metrics of a resource: name, type and help text of each family, and the source
//! of its samples.

use std::sync::Arc;

use super::exposition::{Exposition, Family, Kind, Label};
use super::resource::{CacheStats, ListCounters, ListSource, Operation, ResourceMetrics, Stage};
use super::value::{Counter, Histogram};

/// Upstream reports versions modulo this, because Prometheus values are exact only up to 2^53.
const VERSION_MODULUS: u64 = 1_000_000_000_000_000;

/// A family with samples for each resource.
pub(super) struct Row {
    pub(super) name: &'static str,
    kind: Kind,
    help: &'static str,
    write: fn(&ScrapedResource, &mut Samples<'_, '_>),
}

/// A resource during a scrape, with its cache's state read once.
pub(super) struct ScrapedResource {
    metrics: Arc<ResourceMetrics>,
    stats: Option<CacheStats>,
}

/// Writes the samples of one resource.
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

    /// Writes one of several samples that labels distinguish, unless it is zero.
    fn count_if_any(&mut self, labels: &[Label<'_>], value: u64) {
        if value > 0 {
            self.family.value(&[&self.resource, labels], value);
        }
    }

    fn histogram(&mut self, labels: &[Label<'_>], histogram: &Histogram) {
        self.family.histogram(&[&self.resource, labels], histogram);
    }

    /// Writes the sum over all lists.
    fn of_lists(&mut self, resource: &ScrapedResource, counter: fn(&ListCounters) -> &Counter) {
        for (source, storage) in ListSource::ALL {
            if resource.sum(source, |lists| &lists.lists) > 0 {
                let labels = [("storage", storage)];
                let value = resource.sum(source, counter);
                self.family.value(&[&self.resource, &labels], value);
            }
        }
    }

    /// Writes the values of lists by index.
    fn of_lists_by_index(
        &mut self,
        resource: &ScrapedResource,
        counter: fn(&ListCounters) -> &Counter,
    ) {
        for (source, storage) in ListSource::ALL {
            let lists = resource.metrics.lists(source);
            for (index, lists) in lists.filter(|(_, lists)| lists.lists.get() > 0) {
                let labels = [("storage", storage), ("index", index)];
                let value = counter(lists).get();
                self.family.value(&[&self.resource, &labels], value);
            }
        }
    }

    /// Writes the values of lists from the cache by index.
    fn of_cache_lists(
        &mut self,
        resource: &ScrapedResource,
        counter: fn(&ListCounters) -> &Counter,
    ) {
        for (index, lists) in resource.metrics.lists(ListSource::Cache) {
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
    write: fn(&ScrapedResource, &mut Samples<'_, '_>),
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
    write: fn(&ScrapedResource, &mut Samples<'_, '_>),
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
    write: fn(&ScrapedResource, &mut Samples<'_, '_>),
) -> Row {
    let kind = Kind::Histogram;
    Row {
        name,
        kind,
        help,
        write,
    }
}

/// Every family of this module that each resource has, by name.
#[rustfmt::skip]
pub(super) const TABLE: &[Row] = &[
    counter("apiserver_cache_list_fetched_objects_total",
        "Number of objects examined in the cache for lists.",
        |r, out| out.of_cache_lists(r, |lists| &lists.fetched)),
    counter("apiserver_cache_list_returned_objects_total",
        "Number of objects returned by lists from the cache.",
        |r, out| out.gauge(r.sum(ListSource::Cache, |lists| &lists.returned))),
    counter("apiserver_cache_list_total",
        "Number of lists answered by the cache.",
        |r, out| out.of_cache_lists(r, |lists| &lists.lists)),
    counter("apiserver_init_events_total",
        "Number of objects of initial states sent to watchers.",
        |r, out| out.count(&r.metrics.init_events)),
    gauge("apiserver_resource_objects",
        "Number of objects in the cache; -1 before the first list.",
        |r, out| r.write_stats(out, |stats| stats.objects as u64)),
    gauge("apiserver_resource_size_estimate_bytes",
        "Size of the objects in the cache in bytes; -1 before the first list.",
        |r, out| r.write_stats(out, |stats| stats.objects_bytes as u64)),
    counter("apiserver_storage_consistency_checks_total",
        "Number of comparisons of the cache with storage.",
        |r, out| {
            let checks = r.stats.unwrap_or_default().consistency_checks;
            out.count_if_any(&[("status", "success")], checks.success);
            out.count_if_any(&[("status", "failure")], checks.failure);
            out.count_if_any(&[("status", "error")], checks.error);
        }),
    counter("apiserver_storage_decode_errors_total",
        "Number of stored values that could not be decoded.",
        |r, out| out.count(&r.metrics.decode_errors)),
    counter("apiserver_storage_events_received_total",
        "Number of events received from storage.",
        |r, out| out.count(&r.metrics.storage_events)),
    histogram("apiserver_storage_list_duration_seconds",
        "Duration of lists from storage, in seconds.",
        |r, out| out.histogram(&[("streamed", "false")], &r.metrics.list_seconds)),
    counter("apiserver_storage_list_evaluated_objects_total",
        "Number of objects decoded and tested for lists.",
        |r, out| out.of_lists(r, |lists| &lists.evaluated)),
    counter("apiserver_storage_list_fetched_objects_total",
        "Number of objects read for lists.",
        |r, out| out.of_lists_by_index(r, |lists| &lists.fetched)),
    counter("apiserver_storage_list_returned_objects_total",
        "Number of objects returned by lists.",
        |r, out| out.of_lists(r, |lists| &lists.returned)),
    counter("apiserver_storage_list_total",
        "Number of lists by source.",
        |r, out| out.of_lists_by_index(r, |lists| &lists.lists)),
    gauge("apiserver_storage_objects",
        "Number of objects in the cache; -1 before the first list.",
        |r, out| {
            let objects = r.stats.map_or(-1, |stats| stats.objects as i64);
            out.family.value(&[&[("resource", &r.metrics.qualified())]], objects);
        }),
    counter("apiserver_terminated_watchers_total",
        "Number of watchers ended because history was trimmed before they had read it.",
        |r, out| out.count(&r.metrics.terminated_watchers)),
    counter("apiserver_watch_cache_consistent_read_total",
        "Number of consistent gets and lists from the cache.",
        |r, out| for (success, counters) in BOOLS.iter().zip(&r.metrics.consistent_reads) {
            for (fallback, counter) in BOOLS.iter().zip(counters) {
                out.count_if_any(&[("success", success), ("fallback", fallback)], counter.get());
            }
        }),
    counter("apiserver_watch_cache_events_dispatched_total",
        "Number of dispatched events and progress notifications.",
        |r, out| out.count(&r.metrics.events_dispatched)),
    counter("apiserver_watch_cache_events_received_total",
        "Number of events received by the cache.",
        |r, out| out.count(&r.metrics.events_received)),
    histogram("apiserver_watch_cache_initialization_duration_seconds",
        "Duration of lists that filled the cache, including relists, in seconds.",
        |r, out| out.histogram(&[], &r.metrics.initialization_seconds)),
    counter("apiserver_watch_cache_initialization_errors_total",
        "Number of lists that failed to fill the cache.",
        |r, out| out.count(&r.metrics.initialization_errors)),
    counter("apiserver_watch_cache_initializations_total",
        "Number of lists that filled the cache, including relists.",
        |r, out| out.gauge(r.metrics.initialization_seconds.count())),
    histogram("apiserver_watch_cache_read_wait_seconds",
        "Time that reads waited for the cache to reach a version, in seconds.",
        |r, out| out.histogram(&[], &r.metrics.read_wait_seconds)),
    gauge("apiserver_watch_cache_resource_version",
        "Resource version of the cache, modulo 10^15.",
        |r, out| if let Some(stats) = r.stats {
            out.gauge(stats.resource_version % VERSION_MODULUS);
        }),
    histogram("apiserver_watch_events_dispatch_duration_seconds",
        "Duration of event dispatch from storage to a watcher by stage, in seconds.",
        |r, out| for (stage, name) in Stage::ALL {
            out.histogram(&[("stage", name)], &r.metrics.dispatch_seconds[stage as usize]);
        }),
    counter("apiserver_watch_filtered_events_total",
        "Number of events not sent to a watcher because of its shard selector.",
        |r, out| out.count(&r.metrics.filtered_events)),
    gauge("apiserver_watch_shards_total",
        "Number of watchers with a shard selector.",
        |r, out| out.family.value(&[&out.resource], r.metrics.sharded_watchers.get())),
    counter("etcd_bookmark_total",
        "Number of progress notifications received from storage.",
        |r, out| out.count(&r.metrics.storage_bookmarks)),
    histogram("etcd_request_duration_seconds",
        "Duration of storage requests with any back end, in seconds.",
        |r, out| for (operation, name) in Operation::ALL {
            let durations = &r.metrics.request_seconds[operation as usize];
            out.histogram(&[("operation", name)], durations);
        }),
    counter("etcd_request_errors_total",
        "Number of failed storage requests, without failed conditions.",
        |r, out| for (operation, name) in Operation::ALL {
            let errors = &r.metrics.request_errors[operation as usize];
            out.count_if_any(&[("operation", name)], errors.get());
        }),
    counter("etcd_requests_total",
        "Number of storage requests with any back end.",
        |r, out| for (operation, name) in Operation::ALL {
            let durations = &r.metrics.request_seconds[operation as usize];
            out.count_if_any(&[("operation", name)], durations.count());
        }),
    gauge("watch_cache_capacity",
        "Number of events in history.",
        |r, out| if let Some(stats) = r.stats {
            out.gauge(stats.history_events as u64);
        }),
    gauge("watchet_live_watchers",
        "Number of watchers in the live set; other watchers read history.",
        |r, out| if let Some(stats) = r.stats {
            out.gauge(stats.live_watchers as u64);
        }),
    counter("watchet_parked_watchers_total",
        "Number of times that a live watcher was parked, because it was slow or after a relist.",
        |r, out| out.count(&r.metrics.parked_watchers)),
    gauge("watchet_watchers",
        "Number of watchers, live or reading history.",
        |r, out| out.family.value(&[&out.resource], r.metrics.watchers.get())),
];

const BOOLS: [&str; 2] = ["false", "true"];

impl ScrapedResource {
    pub(super) fn new(metrics: Arc<ResourceMetrics>) -> Self {
        let stats = metrics.cache_stats();
        Self { metrics, stats }
    }

    fn sum(&self, source: ListSource, counter: fn(&ListCounters) -> &Counter) -> u64 {
        let lists = self.metrics.lists(source);
        lists.map(|(_, lists)| counter(lists).get()).sum()
    }

    /// Writes a value of the cache's state; -1 if there is none, as upstream.
    fn write_stats(&self, out: &mut Samples<'_, '_>, value: impl FnOnce(&CacheStats) -> u64) {
        match &self.stats {
            Some(stats) => out.gauge(value(stats)),
            None => out.family.value(&[&out.resource], -1),
        }
    }
}

/// Writes one family with the samples of each resource.
pub(super) fn write(row: &Row, resources: &[ScrapedResource], out: &mut Exposition) {
    let mut family = out.family(row.name, row.kind, row.help);
    for resource in resources {
        let metrics = &resource.metrics;
        let labels = [("group", &*metrics.group), ("resource", &*metrics.resource)];
        let family = &mut family;
        let mut samples = Samples {
            family,
            resource: labels,
        };
        (row.write)(resource, &mut samples);
    }
}

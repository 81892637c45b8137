//! The table of the metrics of a resource: name, type and help text of each family, and the source
//! of its samples.

use std::sync::Arc;

use super::exposition::Label;
use super::family::{ItemFamily, MetricItem, Samples};
use super::resource::{CacheStats, ListCounters, ListSource, Operation, ResourceMetrics, Stage};
use super::value::Counter;

/// Upstream reports versions modulo this, because Prometheus values are exact only up to 2^53.
const VERSION_MODULUS: u64 = 1_000_000_000_000_000;

/// A resource during a scrape, with its cache's state read once.
pub(super) struct ScrapedResource {
    metrics: Arc<ResourceMetrics>,
    stats: Option<CacheStats>,
}

/// The families that every resource has, sorted by name.
#[rustfmt::skip]
pub(super) const TABLE: &[ItemFamily<ScrapedResource>] = &[
    ItemFamily::counter("apiserver_cache_list_fetched_objects_total",
        "Number of objects examined in the cache for lists.",
        |r, out| r.write_cache_lists(out, |lists| &lists.fetched)),
    ItemFamily::counter("apiserver_cache_list_returned_objects_total",
        "Number of objects returned by lists from the cache.",
        |r, out| out.value(r.sum(ListSource::Cache, |lists| &lists.returned))),
    ItemFamily::counter("apiserver_cache_list_total",
        "Number of lists answered by the cache.",
        |r, out| r.write_cache_lists(out, |lists| &lists.lists)),
    ItemFamily::counter("apiserver_init_events_total",
        "Number of objects of initial states sent to watchers.",
        |r, out| out.value(r.metrics.init_events.get())),
    ItemFamily::gauge("apiserver_resource_objects",
        "Number of objects in the cache; -1 before the first list.",
        |r, out| r.write_stats(out, |stats| stats.objects as u64)),
    ItemFamily::gauge("apiserver_resource_size_estimate_bytes",
        "Size of the objects in the cache in bytes; -1 before the first list.",
        |r, out| r.write_stats(out, |stats| stats.objects_bytes as u64)),
    ItemFamily::counter("apiserver_storage_consistency_checks_total",
        "Number of comparisons of the cache with storage.",
        |r, out| {
            let checks = r.stats.unwrap_or_default().consistency_checks;
            write_nonzero(out, &[("status", "success")], checks.success);
            write_nonzero(out, &[("status", "failure")], checks.failure);
            write_nonzero(out, &[("status", "error")], checks.error);
        }),
    ItemFamily::counter("apiserver_storage_decode_errors_total",
        "Number of stored values that could not be decoded.",
        |r, out| out.value(r.metrics.decode_errors.get())),
    ItemFamily::counter("apiserver_storage_events_received_total",
        "Number of events received from storage.",
        |r, out| out.value(r.metrics.storage_events.get())),
    ItemFamily::histogram("apiserver_storage_list_duration_seconds",
        "Duration of lists from storage, in seconds.",
        |r, out| out.labelled_histogram(&[("streamed", "false")], &r.metrics.list_seconds)),
    ItemFamily::counter("apiserver_storage_list_evaluated_objects_total",
        "Number of objects decoded and tested for lists.",
        |r, out| r.write_lists(out, |lists| &lists.evaluated)),
    ItemFamily::counter("apiserver_storage_list_fetched_objects_total",
        "Number of objects read for lists.",
        |r, out| r.write_lists_by_index(out, |lists| &lists.fetched)),
    ItemFamily::counter("apiserver_storage_list_returned_objects_total",
        "Number of objects returned by lists.",
        |r, out| r.write_lists(out, |lists| &lists.returned)),
    ItemFamily::counter("apiserver_storage_list_total",
        "Number of lists by source.",
        |r, out| r.write_lists_by_index(out, |lists| &lists.lists)),
    ItemFamily::gauge("apiserver_storage_objects",
        "Number of objects in the cache; -1 before the first list.",
        |r, out| {
            let objects = r.stats.map_or(-1, |stats| stats.objects as i64);
            out.value_with_labels(&[("resource", &r.metrics.qualified())], objects);
        }),
    ItemFamily::counter("apiserver_terminated_watchers_total",
        "Number of watchers ended because history was trimmed before they had read it.",
        |r, out| out.value(r.metrics.terminated_watchers.get())),
    ItemFamily::counter("apiserver_watch_cache_consistent_read_total",
        "Number of consistent gets and lists from the cache.",
        |r, out| for (success, counters) in BOOLS.iter().zip(&r.metrics.consistent_reads) {
            for (fallback, counter) in BOOLS.iter().zip(counters) {
                write_nonzero(out, &[("success", success), ("fallback", fallback)], counter.get());
            }
        }),
    ItemFamily::counter("apiserver_watch_cache_events_dispatched_total",
        "Number of dispatched events and progress notifications.",
        |r, out| out.value(r.metrics.events_dispatched.get())),
    ItemFamily::counter("apiserver_watch_cache_events_received_total",
        "Number of events received by the cache.",
        |r, out| out.value(r.metrics.events_received.get())),
    ItemFamily::histogram("apiserver_watch_cache_initialization_duration_seconds",
        "Duration of lists that filled the cache, including relists, in seconds.",
        |r, out| out.histogram(&r.metrics.initialization_seconds)),
    ItemFamily::counter("apiserver_watch_cache_initialization_errors_total",
        "Number of lists that failed to fill the cache.",
        |r, out| out.value(r.metrics.initialization_errors.get())),
    ItemFamily::counter("apiserver_watch_cache_initializations_total",
        "Number of lists that filled the cache, including relists.",
        |r, out| out.value(r.metrics.initialization_seconds.count())),
    ItemFamily::histogram("apiserver_watch_cache_read_wait_seconds",
        "Time that reads waited for the cache to reach a version, in seconds.",
        |r, out| out.histogram(&r.metrics.read_wait_seconds)),
    ItemFamily::gauge("apiserver_watch_cache_resource_version",
        "Resource version of the cache, modulo 10^15.",
        |r, out| if let Some(stats) = r.stats {
            out.value(stats.resource_version % VERSION_MODULUS);
        }),
    ItemFamily::histogram("apiserver_watch_events_dispatch_duration_seconds",
        "Duration of event dispatch from storage to a watcher by stage, in seconds.",
        |r, out| for (stage, name) in Stage::ALL {
            out.labelled_histogram(&[("stage", name)], &r.metrics.dispatch_seconds[stage as usize]);
        }),
    ItemFamily::counter("apiserver_watch_filtered_events_total",
        "Number of events not sent to a watcher because of its shard selector.",
        |r, out| out.value(r.metrics.filtered_events.get())),
    ItemFamily::gauge("apiserver_watch_shards_total",
        "Number of watchers with a shard selector.",
        |r, out| out.value(r.metrics.sharded_watchers.get())),
    ItemFamily::counter("etcd_bookmark_total",
        "Number of progress notifications received from storage.",
        |r, out| out.value(r.metrics.storage_bookmarks.get())),
    ItemFamily::histogram("etcd_request_duration_seconds",
        "Duration of storage requests with any back end, in seconds.",
        |r, out| for (operation, name) in Operation::ALL {
            let durations = &r.metrics.request_seconds[operation as usize];
            out.labelled_histogram(&[("operation", name)], durations);
        }),
    ItemFamily::counter("etcd_request_errors_total",
        "Number of failed storage requests, without failed conditions.",
        |r, out| for (operation, name) in Operation::ALL {
            let errors = &r.metrics.request_errors[operation as usize];
            write_nonzero(out, &[("operation", name)], errors.get());
        }),
    ItemFamily::counter("etcd_requests_total",
        "Number of storage requests with any back end.",
        |r, out| for (operation, name) in Operation::ALL {
            let durations = &r.metrics.request_seconds[operation as usize];
            write_nonzero(out, &[("operation", name)], durations.count());
        }),
    ItemFamily::gauge("watch_cache_capacity",
        "Number of events in history.",
        |r, out| if let Some(stats) = r.stats {
            out.value(stats.history_events as u64);
        }),
    ItemFamily::gauge("watchet_live_watchers",
        "Number of watchers in the live set; other watchers read history.",
        |r, out| if let Some(stats) = r.stats {
            out.value(stats.live_watchers as u64);
        }),
    ItemFamily::gauge("watchet_parked_watchers",
        "Number of watchers whose clients read too slowly; they read history when their clients read again.",
        |r, out| out.value(r.metrics.parked_watchers.get())),
    ItemFamily::counter("watchet_parked_watchers_total",
        "Number of times that a live watcher was parked, because it was slow or after a relist.",
        |r, out| out.value(r.metrics.times_parked.get())),
    ItemFamily::gauge("watchet_watchers",
        "Number of watchers, live or reading history.",
        |r, out| out.value(r.metrics.watchers.get())),
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
            Some(stats) => out.value(value(stats)),
            None => out.value(-1),
        }
    }

    /// Writes the sum over all lists.
    fn write_lists(&self, out: &mut Samples<'_, '_>, counter: fn(&ListCounters) -> &Counter) {
        for (source, storage) in ListSource::ALL {
            if self.sum(source, |lists| &lists.lists) > 0 {
                out.labelled_value(&[("storage", storage)], self.sum(source, counter));
            }
        }
    }

    /// Writes the values of lists by index.
    fn write_lists_by_index(
        &self,
        out: &mut Samples<'_, '_>,
        counter: fn(&ListCounters) -> &Counter,
    ) {
        for (source, storage) in ListSource::ALL {
            let lists = self.metrics.lists(source);
            for (index, lists) in lists.filter(|(_, lists)| lists.lists.get() > 0) {
                let labels = [("storage", storage), ("index", index)];
                out.labelled_value(&labels, counter(lists).get());
            }
        }
    }

    /// Writes the values of lists from the cache by index.
    fn write_cache_lists(&self, out: &mut Samples<'_, '_>, counter: fn(&ListCounters) -> &Counter) {
        for (index, lists) in self.metrics.lists(ListSource::Cache) {
            if index.is_empty() || lists.lists.get() > 0 {
                out.labelled_value(&[("index", index)], counter(lists).get());
            }
        }
    }
}

impl MetricItem for ScrapedResource {
    fn labels(&self) -> Vec<Label<'_>> {
        let metrics = &self.metrics;
        vec![("group", &metrics.group), ("resource", &metrics.resource)]
    }
}

/// Writes one of several values that labels distinguish, unless it is zero.
fn write_nonzero(out: &mut Samples<'_, '_>, labels: &[Label<'_>], value: u64) {
    if value > 0 {
        out.labelled_value(labels, value);
    }
}

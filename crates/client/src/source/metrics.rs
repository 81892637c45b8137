//! The metrics of lists and watches, with the names of client-go's reflector.
//! [`InformerMetrics`](crate::InformerMetrics) renders them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use watchet_api::ResourceVersion;
use watchet_metrics::{Counter, Histogram};
use watchet_reflector::SHORT_WATCH;

/// Bucket bounds in seconds.
const LIST_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
const WATCH_SECONDS: &[f64] = &[1.0, 10.0, 60.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0];

/// Bucket bounds of numbers of objects.
const ITEMS: &[f64] = &[0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];

/// The metrics of one source.
#[derive(Debug)]
pub struct ReflectorMetrics {
    /// `reflector_lists_total`: complete collections received, by a list or by initial events.
    pub lists: Counter,
    /// `reflector_list_duration_seconds`: the duration of receiving one.
    pub list_seconds: Histogram,
    /// `reflector_items_per_list`: the number of objects in one.
    pub list_items: Histogram,
    /// `reflector_watches_total`: opened watches.
    pub watches: Counter,
    /// `reflector_short_watches_total`: watches that ended immediately without an event.
    pub short_watches: Counter,
    /// `reflector_watch_duration_seconds`: the duration of watches.
    pub watch_seconds: Histogram,
    /// `reflector_items_per_watch`: the number of events of a watch, including bookmarks.
    pub watch_items: Histogram,
    last: AtomicU64,
    receiving: AtomicU64,
}

impl Default for ReflectorMetrics {
    fn default() -> Self {
        Self {
            lists: Counter::default(),
            list_seconds: Histogram::new(LIST_SECONDS),
            list_items: Histogram::new(ITEMS),
            watches: Counter::default(),
            short_watches: Counter::default(),
            watch_seconds: Histogram::new(WATCH_SECONDS),
            watch_items: Histogram::new(ITEMS),
            last: AtomicU64::new(0),
            receiving: AtomicU64::new(0),
        }
    }
}

impl ReflectorMetrics {
    /// Returns `reflector_last_resource_version`: the version up to which everything was passed on;
    /// zero before the first list.
    pub fn last_sync_resource_version(&self) -> ResourceVersion {
        ResourceVersion::new(self.last.load(Ordering::Relaxed))
    }

    /// Returns the number of objects received of the collection in progress, or of the last one.
    pub fn receiving(&self) -> u64 {
        self.receiving.load(Ordering::Relaxed)
    }

    pub(super) fn received(&self, objects: usize) {
        self.receiving.store(objects as u64, Ordering::Relaxed);
    }

    pub(super) fn reached(&self, version: ResourceVersion) {
        self.last.store(version.get(), Ordering::Relaxed);
    }

    /// Records a complete collection of `items` received since `started`.
    pub(super) fn listed(&self, items: usize, started: Instant) {
        self.lists.inc();
        self.list_seconds.observe_duration(started.elapsed());
        self.list_items.observe(items as f64);
    }
}

/// Measures a watch from its opening until this is dropped.
#[derive(Debug)]
pub(super) struct WatchTimer {
    metrics: Arc<ReflectorMetrics>,
    started: Instant,
    items: usize,
}

impl WatchTimer {
    pub(super) fn begin(metrics: &Arc<ReflectorMetrics>) -> Self {
        metrics.watches.inc();
        Self {
            metrics: metrics.clone(),
            started: Instant::now(),
            items: 0,
        }
    }

    pub(super) fn metrics(&self) -> &Arc<ReflectorMetrics> {
        &self.metrics
    }

    /// Counts an event.
    pub(super) fn event(&mut self) {
        self.items += 1;
    }
}

impl Drop for WatchTimer {
    fn drop(&mut self) {
        let lasted = self.started.elapsed();
        if lasted < SHORT_WATCH && self.items == 0 {
            self.metrics.short_watches.inc();
        }
        self.metrics.watch_seconds.observe_duration(lasted);
        self.metrics.watch_items.observe(self.items as f64);
    }
}

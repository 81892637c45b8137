//! What a source counts of its lists and watches, under the names of client-go's reflector. How
//! it is told is not known here; see [`InformerMetrics`](crate::informer::InformerMetrics).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::api::ResourceVersion;
use crate::metrics::{Counter, Histogram};
use crate::reflector::SHORT_WATCH;

/// Upper bounds, in seconds.
const LIST_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
const WATCH_SECONDS: &[f64] = &[1.0, 10.0, 60.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0];

/// Upper bounds of numbers of objects.
const ITEMS: &[f64] = &[0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];

/// The numbers of one source.
#[derive(Debug)]
pub struct ReflectorMetrics {
    /// `reflector_lists_total`: how often the whole collection came, as a list or as a watch's beginning.
    pub lists: Counter,
    /// `reflector_list_duration_seconds`: how long that took.
    pub list_seconds: Histogram,
    /// `reflector_items_per_list`: how many objects there were.
    pub list_items: Histogram,
    /// `reflector_watches_total`: how many watches were opened.
    pub watches: Counter,
    /// `reflector_short_watches_total`: how many of them ended at once and without an event.
    pub short_watches: Counter,
    /// `reflector_watch_duration_seconds`: how long watches lasted.
    pub watch_seconds: Histogram,
    /// `reflector_items_per_watch`: how many events one had, bookmarks included.
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
    /// `reflector_last_resource_version`: up to where everything was handed on. Zero before the first
    /// list.
    pub fn last_sync_resource_version(&self) -> ResourceVersion {
        ResourceVersion::new(self.last.load(Ordering::Relaxed))
    }

    /// How many objects have come of the collection that is being received; of the last one, when none
    /// is.
    pub fn receiving(&self) -> u64 {
        self.receiving.load(Ordering::Relaxed)
    }

    pub(super) fn received(&self, objects: usize) {
        self.receiving.store(objects as u64, Ordering::Relaxed);
    }

    pub(super) fn reached(&self, version: ResourceVersion) {
        self.last.store(version.get(), Ordering::Relaxed);
    }

    /// A whole collection of `items` has come since `begun`.
    pub(super) fn listed(&self, items: usize, begun: Instant) {
        self.lists.inc();
        self.list_seconds.observe_duration(begun.elapsed());
        self.list_items.observe(items as f64);
    }
}

/// Counts a watch, from when it is opened until this is dropped.
#[derive(Debug)]
pub(super) struct Watched {
    metrics: Arc<ReflectorMetrics>,
    begun: Instant,
    items: usize,
}

impl Watched {
    pub(super) fn begin(metrics: &Arc<ReflectorMetrics>) -> Self {
        metrics.watches.inc();
        Self {
            metrics: metrics.clone(),
            begun: Instant::now(),
            items: 0,
        }
    }

    pub(super) fn metrics(&self) -> &Arc<ReflectorMetrics> {
        &self.metrics
    }

    /// One more event.
    pub(super) fn event(&mut self) {
        self.items += 1;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let lasted = self.begun.elapsed();
        if lasted < SHORT_WATCH && self.items == 0 {
            self.metrics.short_watches.inc();
        }
        self.metrics.watch_seconds.observe_duration(lasted);
        self.metrics.watch_items.observe(self.items as f64);
    }
}

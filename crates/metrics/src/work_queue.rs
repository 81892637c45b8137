//! Metrics of controllers' work queues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::exposition::{Exposition, Label};
use super::family::{ItemFamily, MetricItem, write_table};
use super::value::{Counter, Gauge, Histogram};

/// Bucket bounds in seconds: those of controller-runtime.
const SECONDS: &[f64] = &[
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0,
];

/// The metrics of one controller's queue.
#[derive(Debug)]
pub struct WorkQueueMetrics {
    name: &'static str,
    /// Keys waiting to be processed.
    pub depth: Gauge,
    /// Added keys, without those that were waiting already.
    pub adds: Counter,
    /// Keys added again because processing failed or is incomplete.
    pub retries: Counter,
    queue_seconds: Histogram,
    work_seconds: Histogram,
    working: Mutex<InProgress>,
}

/// The keys being processed.
#[derive(Debug, Default)]
struct InProgress {
    since: BTreeSet<Processing>,
    number: u64,
}

/// The processing of a key, which started at this time; the number makes it unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Processing(Instant, u64);

impl WorkQueueMetrics {
    /// Returns metrics without values. [`Metrics::work_queue`](super::Metrics::work_queue) creates
    /// those that are part of scrapes.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            depth: Gauge::default(),
            adds: Counter::default(),
            retries: Counter::default(),
            queue_seconds: Histogram::new(SECONDS),
            work_seconds: Histogram::new(SECONDS),
            working: Mutex::default(),
        }
    }

    /// Returns the queue's name.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Starts the processing of a key that was added at `added`.
    pub fn begin(&self, added: Instant) -> Processing {
        let now = Instant::now();
        self.queue_seconds.observe_duration(now - added);
        let mut working = self.working.lock();
        working.number += 1;
        let work = Processing(now, working.number);
        working.since.insert(work);
        work
    }

    /// Ends the processing of a key.
    pub fn finish(&self, work: Processing) {
        self.working.lock().since.remove(&work);
        self.work_seconds.observe_duration(work.0.elapsed());
    }

    /// Returns the total processing time of unfinished keys, and the longest.
    fn unfinished(&self) -> (Duration, Duration) {
        let (now, working) = (Instant::now(), self.working.lock());
        let each = working
            .since
            .iter()
            .map(|Processing(since, _)| now - *since);
        (each.clone().sum(), each.max().unwrap_or_default())
    }
}

impl MetricItem for Arc<WorkQueueMetrics> {
    fn labels(&self) -> Vec<Label<'_>> {
        vec![("name", self.name)]
    }
}

/// Writes the metrics of all queues.
pub fn write(queues: &[Arc<WorkQueueMetrics>], out: &mut Exposition) {
    write_table(TABLE, queues, out);
}

/// The metrics of each queue, by name.
#[rustfmt::skip]
const TABLE: &[ItemFamily<Arc<WorkQueueMetrics>>] = &[
    ItemFamily::counter("workqueue_adds_total",
        "Number of keys added to a controller's queue.",
        |queue, out| out.value(queue.adds.get())),
    ItemFamily::gauge("workqueue_depth",
        "Number of keys in a controller's queue.",
        |queue, out| out.value(queue.depth.get())),
    ItemFamily::gauge("workqueue_longest_running_processor_seconds",
        "Seconds for which the longest running processing of a key has been running.",
        |queue, out| out.value(queue.unfinished().1.as_secs_f64())),
    ItemFamily::histogram("workqueue_queue_duration_seconds",
        "Time that keys waited in a controller's queue, in seconds.",
        |queue, out| out.histogram(&queue.queue_seconds)),
    ItemFamily::counter("workqueue_retries_total",
        "Number of keys added to a controller's queue again.",
        |queue, out| out.value(queue.retries.get())),
    ItemFamily::gauge("workqueue_unfinished_work_seconds",
        "Total seconds of unfinished processing of keys.",
        |queue, out| out.value(queue.unfinished().0.as_secs_f64())),
    ItemFamily::histogram("workqueue_work_duration_seconds",
        "Duration of the processing of keys, in seconds.",
        |queue, out| out.histogram(&queue.work_seconds)),
];

//! What the queues of controllers are measured by. How a queue works is told by `informer`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::exposition::{Exposition, Kind};
use super::value::{Counter, Gauge, Histogram};

/// Upper bounds, in seconds: those of controller-runtime.
const SECONDS: &[f64] = &[
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0,
];

/// Those of one controller's queue.
#[derive(Debug)]
pub struct WorkQueueMetrics {
    name: &'static str,
    /// Keys that wait to be looked at.
    pub depth: Gauge,
    /// Keys that came, without those that were waiting already.
    pub adds: Counter,
    /// Keys that come again because what was to be done about them failed, or is not over.
    pub retries: Counter,
    waited: Histogram,
    worked: Histogram,
    working: Mutex<Working>,
}

/// The keys that are being looked at.
#[derive(Debug, Default)]
struct Working {
    since: BTreeSet<Work>,
    number: u64,
}

/// One look at a key, which began then; the number tells apart those of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Work(Instant, u64);

impl WorkQueueMetrics {
    /// Nothing counted yet. [`Metrics::work_queue`](super::Metrics::work_queue) makes those that are told.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            depth: Gauge::default(),
            adds: Counter::default(),
            retries: Counter::default(),
            waited: Histogram::new(SECONDS),
            worked: Histogram::new(SECONDS),
            working: Mutex::default(),
        }
    }

    /// The queue's name.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// A key that was added at `added` is looked at from now on.
    pub(crate) fn begin(&self, added: Instant) -> Work {
        let now = Instant::now();
        self.waited.observe_duration(now - added);
        let mut working = self.working.lock();
        working.number += 1;
        let work = Work(now, working.number);
        working.since.insert(work);
        work
    }

    /// That is over.
    pub(crate) fn finish(&self, work: Work) {
        self.working.lock().since.remove(&work);
        self.worked.observe_duration(work.0.elapsed());
    }

    /// For how long all keys together have been looked at that are not done, and the first of them.
    fn unfinished(&self) -> (Duration, Duration) {
        let (now, working) = (Instant::now(), self.working.lock());
        let each = working.since.iter().map(|Work(since, _)| now - *since);
        (each.clone().sum(), each.max().unwrap_or_default())
    }
}

/// Writes those of all queues.
pub(crate) fn write(queues: &[Arc<WorkQueueMetrics>], out: &mut Exposition) {
    type Value = fn(&WorkQueueMetrics) -> f64;
    let families: [(&str, Kind, &str, Value); 5] = [
        (
            "workqueue_adds_total",
            Kind::Counter,
            "Keys that came to a controller's queue.",
            |queue| queue.adds.get() as f64,
        ),
        (
            "workqueue_depth",
            Kind::Gauge,
            "Keys that wait in a controller's queue.",
            |queue| queue.depth.get() as f64,
        ),
        (
            "workqueue_longest_running_processor_seconds",
            Kind::Gauge,
            "Seconds for which a controller has been looking at the key that takes it longest.",
            |queue| queue.unfinished().1.as_secs_f64(),
        ),
        (
            "workqueue_retries_total",
            Kind::Counter,
            "Keys that came to a controller's queue again.",
            |queue| queue.retries.get() as f64,
        ),
        (
            "workqueue_unfinished_work_seconds",
            Kind::Gauge,
            "Seconds for which a controller has been looking at keys that are not done, in sum.",
            |queue| queue.unfinished().0.as_secs_f64(),
        ),
    ];
    for (name, kind, help, value) in families {
        let mut family = out.family(name, kind, help);
        for queue in queues {
            family.value(&[&[("name", queue.name)]], value(queue));
        }
    }
    type Seconds = fn(&WorkQueueMetrics) -> &Histogram;
    let families: [(&str, &str, Seconds); 2] = [
        (
            "workqueue_queue_duration_seconds",
            "How long keys waited in a controller's queue.",
            |queue| &queue.waited,
        ),
        (
            "workqueue_work_duration_seconds",
            "How long a controller looked at keys.",
            |queue| &queue.worked,
        ),
    ];
    for (name, help, seconds) in families {
        let mut family = out.family(name, Kind::Histogram, help);
        for queue in queues {
            family.histogram(&[&[("name", queue.name)]], seconds(queue));
        }
    }
}

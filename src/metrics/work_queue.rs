//! What the queues of controllers are measured by. How a queue works is told by `informer`.

use super::exposition::{Exposition, Kind};
use super::value::{Counter, Gauge};

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
}

impl WorkQueueMetrics {
    /// Nothing counted yet. [`Metrics::work_queue`](super::Metrics::work_queue) makes those that are told.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            depth: Gauge::default(),
            adds: Counter::default(),
            retries: Counter::default(),
        }
    }

    /// The queue's name.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }
}

/// Writes those of all queues.
pub(super) fn write(queues: &[std::sync::Arc<WorkQueueMetrics>], out: &mut Exposition) {
    type Value = fn(&WorkQueueMetrics) -> i64;
    let families: [(&str, Kind, &str, Value); 3] = [
        (
            "workqueue_adds_total",
            Kind::Counter,
            "Keys that came to a controller's queue.",
            |queue| queue.adds.get().cast_signed(),
        ),
        (
            "workqueue_depth",
            Kind::Gauge,
            "Keys that wait in a controller's queue.",
            |queue| queue.depth.get(),
        ),
        (
            "workqueue_retries_total",
            Kind::Counter,
            "Keys that came to a controller's queue again.",
            |queue| queue.retries.get().cast_signed(),
        ),
    ];
    for (name, kind, help, value) in families {
        let mut family = out.family(name, kind, help);
        for queue in queues {
            family.value(&[&[("name", queue.name)]], value(queue));
        }
    }
}

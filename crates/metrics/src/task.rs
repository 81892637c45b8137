//! Metrics of asynchronous tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::exposition::{Exposition, Kind};
use super::value::Histogram;

/// A poll that is shorter than this is not recorded: it delays other tasks little, and most polls take microseconds.
const LONG_POLL_MIN: Duration = Duration::from_millis(10);

/// Bucket bounds in seconds.
const SECONDS: &[f64] = &[0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The metrics of asynchronous tasks.
#[derive(Debug, Default)]
pub struct TaskMetrics {
    /// By the name of the task.
    long_polls: Mutex<BTreeMap<&'static str, Histogram>>,
    /// By the name of the task.
    panics: Mutex<BTreeMap<&'static str, u64>>,
}

impl TaskMetrics {
    /// Records that a poll of `task` occupied its async worker for `elapsed`. Short polls are not recorded.
    pub fn observe_poll(&self, task: &'static str, elapsed: Duration) {
        if elapsed >= LONG_POLL_MIN {
            let mut long_polls = self.long_polls.lock();
            let histogram = long_polls.entry(task);
            histogram
                .or_insert_with(|| Histogram::new(SECONDS))
                .observe_duration(elapsed);
        }
    }

    /// Counts a panic of `task`.
    pub fn count_panic(&self, task: &'static str) {
        *self.panics.lock().entry(task).or_default() += 1;
    }

    /// Writes all metrics.
    pub(super) fn write(&self, out: &mut Exposition) {
        let name = "watchet_task_long_poll_duration_seconds";
        let help =
            "Duration of polls that occupied an async worker for 10 ms or longer, in seconds.";
        let mut family = out.family(name, Kind::Histogram, help);
        for (task, histogram) in &*self.long_polls.lock() {
            family.histogram(&[&[("task", task)]], histogram);
        }
        let help = "Panics by the task that they ended. Each is a bug.";
        let mut family = out.family("watchet_task_panics_total", Kind::Counter, help);
        for (task, count) in &*self.panics.lock() {
            family.value(&[&[("task", task)]], *count);
        }
    }
}

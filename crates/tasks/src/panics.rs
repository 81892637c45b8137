//! Panics: their messages, the log and the metric.

use std::any::Any;

use watchet_metrics::TaskMetrics;

/// Returns the message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}

/// Logs a panic of `task`, and counts it in `metrics`.
pub(super) fn record_panic(
    metrics: Option<&TaskMetrics>,
    task: &'static str,
    panic: &(dyn Any + Send),
) {
    tracing::error!(task, panic = panic_message(panic), "a task panicked");
    if let Some(metrics) = metrics {
        metrics.count_panic(task);
    }
}

//! Metrics of distributed tracing.

use super::exposition::{Exposition, Kind};
use super::value::Counter;

/// The metrics of distributed tracing.
#[derive(Debug, Default)]
pub struct TraceMetrics {
    /// Spans that the collector has accepted.
    pub exported: Counter,
    /// Spans that were dropped because too many waited for their export.
    pub dropped_queue_full: Counter,
    /// Spans that were dropped because their export failed.
    pub dropped_export_failed: Counter,
}

impl TraceMetrics {
    /// Writes all metrics. Those that are zero have no samples, so that they are absent without tracing.
    pub(super) fn write(&self, out: &mut Exposition) {
        let help = "Number of trace spans that were dropped, by reason.";
        let mut family = out.family("watchet_trace_spans_dropped_total", Kind::Counter, help);
        for (reason, dropped) in [
            ("export_failed", &self.dropped_export_failed),
            ("queue_full", &self.dropped_queue_full),
        ] {
            if dropped.get() > 0 {
                family.value(&[&[("reason", reason)]], dropped.get());
            }
        }
        let help = "Number of trace spans that the collector has accepted.";
        let mut family = out.family("watchet_trace_spans_exported_total", Kind::Counter, help);
        if self.exported.get() > 0 {
            family.value(&[], self.exported.get());
        }
    }
}

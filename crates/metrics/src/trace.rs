//! Metrics of distributed tracing.

use super::exposition::{Exposition, Kind};
use super::value::Counter;

/// The metrics of distributed tracing.
#[derive(Debug, Default)]
pub struct TraceMetrics {
    /// Spans that the collector has accepted.
    pub exported: Counter,
    /// Spans that were dropped because the export queue was full.
    pub dropped_queue_full: Counter,
    /// Spans that were dropped because their export failed.
    pub dropped_export_failed: Counter,
}

impl TraceMetrics {
    /// Writes all metrics. A counter that is zero has no sample, so that a server without tracing has none of these.
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

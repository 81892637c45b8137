//! Metrics of audit logging.

use super::exposition::{Exposition, Kind};
use super::value::Counter;

/// The names of the levels, in their order.
const LEVELS: [&str; 4] = ["None", "Metadata", "Request", "RequestResponse"];

/// The metrics of audit logging.
#[derive(Debug, Default)]
pub struct AuditMetrics {
    /// Events that were generated.
    pub events: Counter,
    /// Requests by level: `None`, `Metadata`, `Request`, `RequestResponse`.
    pub levels: [Counter; LEVELS.len()],
    /// Events that could not be written to the log.
    pub log_errors: Counter,
    /// Events that were dropped because too many wait.
    pub dropped: Counter,
}

impl AuditMetrics {
    /// Writes all metrics.
    pub(super) fn write(&self, out: &mut Exposition) {
        let help = "Number of audit events generated.";
        out.family("apiserver_audit_event_total", Kind::Counter, help)
            .value(&[], self.events.get());
        let help = "Number of audit events that were dropped or could not be written.";
        let mut family = out.family("apiserver_audit_error_total", Kind::Counter, help);
        for (plugin, errors) in [("buffered", &self.dropped), ("log", &self.log_errors)] {
            family.value(&[&[("plugin", plugin)]], errors.get());
        }
        let help = "Number of requests by the audit level of the rule that they matched.";
        let mut family = out.family("apiserver_audit_level_total", Kind::Counter, help);
        for (level, requests) in LEVELS.into_iter().zip(&self.levels) {
            family.value(&[&[("level", level)]], requests.get());
        }
    }
}

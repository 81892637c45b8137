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
    /// Events that could not be sent to the webhook.
    pub webhook_errors: Counter,
    /// Events that were larger than the maximum size, also without their objects.
    pub too_large: Counter,
    /// Events that were dropped because too many wait.
    pub dropped: Counter,
    /// Requests that were rejected because their first event could not be written.
    pub rejected: Counter,
}

impl AuditMetrics {
    /// Writes all metrics.
    pub(super) fn write(&self, out: &mut Exposition) {
        let help = "Number of audit events generated.";
        out.family("apiserver_audit_event_total", Kind::Counter, help)
            .value(&[], self.events.get());
        let help = "Number of audit events that were dropped or could not be written.";
        let mut family = out.family("apiserver_audit_error_total", Kind::Counter, help);
        for (plugin, errors) in [
            ("buffered", &self.dropped),
            ("log", &self.log_errors),
            ("truncate", &self.too_large),
            ("webhook", &self.webhook_errors),
        ] {
            family.value(&[&[("plugin", plugin)]], errors.get());
        }
        let help = "Number of requests rejected because an audit event could not be written.";
        let name = "apiserver_audit_requests_rejected_total";
        out.family(name, Kind::Counter, help)
            .value(&[], self.rejected.get());
        let help = "Number of requests by the audit level of the rule that they matched.";
        let mut family = out.family("apiserver_audit_level_total", Kind::Counter, help);
        for (level, requests) in LEVELS.into_iter().zip(&self.levels) {
            family.value(&[&[("level", level)]], requests.get());
        }
    }
}

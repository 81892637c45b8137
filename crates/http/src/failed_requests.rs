//! Limits how often failed requests are logged: while storage is away, all of them fail.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use watchet_api::Status;
use watchet_metrics::LogInterval;

/// The reasons that are logged separately: those with which this server fails. An admission webhook that rejects a request
/// chooses the code and the reason, and the reason can be any text.
const REASONS: [&str; 6] = [
    "InternalError",
    "ServerTimeout",
    "ServiceUnavailable",
    "StorageReadError",
    "Timeout",
    "",
];

/// Any other reason.
const OTHER: &str = "other";

/// The log of the requests that failed because of the server.
#[derive(Debug, Default)]
pub(crate) struct FailedRequests(Mutex<BTreeMap<(u16, &'static str), LogInterval>>);

impl FailedRequests {
    /// Returns the number of failures with the code and reason of `status` that have not been logged since the last
    /// one that was, if this one is to be logged.
    pub(crate) fn next(&self, status: &Status) -> Option<u64> {
        let known = REASONS.into_iter().find(|reason| *reason == status.reason);
        let mut intervals = self.0.lock();
        let interval = intervals
            .entry((status.code, known.unwrap_or(OTHER)))
            .or_insert_with(LogInterval::growing);
        interval.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_kind_of_failure_is_logged_once() {
        let failures = FailedRequests::default();
        let timeout = Status::failure(500, "ServerTimeout", "storage is unavailable".to_owned());
        let bug = Status::failure(500, "InternalError", "a bug".to_owned());
        assert_eq!(failures.next(&timeout), Some(0));
        assert_eq!(failures.next(&timeout), None);
        assert_eq!(failures.next(&bug), Some(0));
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        assert_eq!(failures.next(&timeout), Some(1));
    }

    /// A webhook that chose a new reason for each rejection filled the memory, and the log.
    #[tokio::test(start_paused = true)]
    async fn reasons_that_a_webhook_chooses_are_one_kind() {
        let failures = FailedRequests::default();
        let logged = (0..10_000).filter(|number| {
            let status = Status::failure(500, &format!("Reason{number}"), "rejected");
            failures.next(&status).is_some()
        });
        assert_eq!(logged.count(), 1);
        assert_eq!(failures.0.lock().len(), 1);
    }
}

//! Limits how often failed requests are logged: while storage is away, all of them fail.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use watchet_api::Status;
use watchet_metrics::LogInterval;

/// The log of the requests that failed because of the server.
#[derive(Debug, Default)]
pub(crate) struct FailedRequests(Mutex<BTreeMap<(u16, String), LogInterval>>);

impl FailedRequests {
    /// Returns the number of failures with the code and reason of `status` that have not been logged since the last
    /// one that was, if this one is to be logged.
    pub(crate) fn next(&self, status: &Status) -> Option<u64> {
        let mut intervals = self.0.lock();
        // The number of pairs of codes and reasons is small.
        let interval = intervals
            .entry((status.code, status.reason.clone()))
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
}

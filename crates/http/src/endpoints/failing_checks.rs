//! Logs health checks when they begin to fail, and when they recover.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The names of the checks that failed last time. Only changes are logged, because clients may probe at any rate.
#[derive(Debug, Default)]
pub(crate) struct FailingChecks(Mutex<BTreeSet<String>>);

impl FailingChecks {
    /// Records the result of a check, and logs it if it has changed.
    pub(crate) fn record(&self, name: &str, outcome: &Result<(), String>) {
        let mut names = self.0.lock();
        match outcome {
            Err(reason) if names.insert(name.to_owned()) => {
                tracing::warn!(check = name, reason, "health check failed");
            }
            Ok(()) if names.remove(name) => {
                tracing::info!(check = name, "health check recovered")
            }
            _ => {}
        }
    }
}

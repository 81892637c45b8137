//! The set of definitions whose objects are being deleted.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// The number of concurrent passes. A pass that waits for a webhook takes up to half a minute.
const PASSES_MAX: usize = 64;

/// The definitions whose objects are being deleted.
#[derive(Debug)]
pub(super) struct ActiveCleanups {
    /// The names of the definitions that have a task. The value is true if another cleanup of that name was requested
    /// since the last pass began.
    names: Mutex<BTreeMap<String, bool>>,
    /// Limits concurrent passes.
    pub(super) passes: Semaphore,
}

impl Default for ActiveCleanups {
    fn default() -> Self {
        Self {
            names: Mutex::default(),
            passes: Semaphore::new(PASSES_MAX),
        }
    }
}

impl ActiveCleanups {
    /// Requests a cleanup. Returns true if no task is active for this name.
    pub(super) fn begin(&self, name: &str) -> bool {
        let mut names = self.names.lock();
        names.insert(name.to_owned(), true).is_none()
    }

    /// Begins a pass.
    pub(super) fn begin_pass(&self, name: &str) {
        self.names.lock().insert(name.to_owned(), false);
    }

    /// Ends a pass that found nothing to do. Returns true if no other cleanup was requested since the pass began: a
    /// client may have created and deleted another definition with this name since.
    pub(super) fn end(&self, name: &str) -> bool {
        let mut names = self.names.lock();
        let is_requested = names.get(name).copied().unwrap_or_default();
        if !is_requested {
            names.remove(name);
        }
        !is_requested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A definition with the same name may be created and deleted while a pass ends.
    #[test]
    fn cleanup_that_starts_during_a_pass_runs_another_pass() {
        let cleanups = ActiveCleanups::default();
        assert!(cleanups.begin("a"));
        cleanups.begin_pass("a");
        assert!(!cleanups.begin("a"), "it is active");
        assert!(!cleanups.end("a"), "another pass is needed");
        cleanups.begin_pass("a");
        assert!(cleanups.end("a"));
        assert!(cleanups.begin("a"));
    }
}

//! The clock of a store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The clock for deadlines and the times of revisions, which must survive a restart: the system
/// time at which the store was opened plus Tokio's elapsed time, so that tests can pause it and
/// system clock steps expire nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    opened: Instant,
    opened_ms: u64,
}

impl Clock {
    /// Starts the clock at the system time.
    pub(crate) fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            opened: Instant::now(),
            // A clock before 1970 is invalid; deadlines then count from the epoch.
            opened_ms: since_epoch.map_or(0, saturating_ms),
        }
    }

    /// Returns the time in milliseconds since the epoch.
    pub(crate) fn now_ms(&self) -> u64 {
        self.opened_ms
            .saturating_add(saturating_ms(self.opened.elapsed()))
    }

    /// Returns the time `ttl` from now; never 0 ("no deadline") or `u64::MAX` ("no first
    /// deadline").
    pub(crate) fn after_ms(&self, ttl: Duration) -> u64 {
        let deadline = self.now_ms().saturating_add(saturating_ms(ttl));
        deadline.clamp(1, u64::MAX - 1)
    }
}

/// Returns the milliseconds of `duration`.
pub(crate) fn saturating_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

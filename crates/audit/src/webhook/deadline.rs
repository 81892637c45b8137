//! `ShutdownDeadline`: the time at which the posts of the last events are aborted.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The time for the last events after the stop: less than the time for which the server waits for its tasks.
const SHUTDOWN_MAX: Duration = Duration::from_secs(8);

/// A time after the cancellation of a token.
#[derive(Debug)]
pub(super) struct ShutdownDeadline {
    stop: CancellationToken,
    deadline: OnceLock<Instant>,
}

impl ShutdownDeadline {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            deadline: OnceLock::new(),
        }
    }

    /// Waits until the deadline has passed. Cancel safe.
    pub(super) async fn passed(&self) {
        self.stop.cancelled().await;
        let deadline = self.deadline.get_or_init(|| Instant::now() + SHUTDOWN_MAX);
        tokio::time::sleep_until(*deadline).await;
    }
}

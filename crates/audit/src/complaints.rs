//! `Complaints`: limits the rate of log messages about failures.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The minimum time between two messages.
const PERIOD: Duration = Duration::from_secs(60);

/// The messages about one kind of failure.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<Option<Instant>>);

impl Complaints {
    /// Returns true if a message is due.
    pub(crate) fn is_due(&self) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= PERIOD);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_message_per_period() {
        let complaints = Complaints::default();
        assert!(complaints.is_due() && !complaints.is_due());
        tokio::time::advance(PERIOD).await;
        assert!(complaints.is_due() && !complaints.is_due());
    }
}

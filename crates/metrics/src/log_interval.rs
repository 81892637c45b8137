//! `LogInterval`: limits how often a message is logged, so that a flood of failures is not a flood of log lines.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Limits how often one message is logged.
///
/// ```
/// use std::time::Duration;
/// use watchet_metrics::LogInterval;
///
/// let failures = LogInterval::new(Duration::from_secs(60));
/// assert_eq!(failures.next(), Some(0), "the first message is logged");
/// assert_eq!(failures.next(), None, "less than a minute later");
/// ```
#[derive(Debug)]
pub struct LogInterval {
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    latest: Option<Instant>,
    suppressed: u64,
}

impl LogInterval {
    /// Allows one message per `interval`.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            state: Mutex::default(),
        }
    }

    /// Returns the number of messages suppressed since the last logged one if a message is to be logged now; otherwise
    /// counts it as suppressed.
    pub fn next(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if state.latest.is_some_and(|at| at.elapsed() < self.interval) {
            state.suppressed += 1;
            return None;
        }
        state.latest = Some(Instant::now());
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_message_per_interval() {
        let interval = Duration::from_secs(1);
        let messages = LogInterval::new(interval);
        assert_eq!(
            [messages.next(), messages.next(), messages.next()],
            [Some(0), None, None]
        );
        advance(interval).await;
        assert_eq!([messages.next(), messages.next()], [Some(2), None]);
    }
}

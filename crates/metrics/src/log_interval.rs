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
///
/// With growing intervals a failure that lasts is logged less and less often:
///
/// ```
/// use watchet_metrics::LogInterval;
///
/// let failures = LogInterval::growing();
/// assert_eq!(failures.next(), Some(0), "the next one is logged 10 s later, then after 20 s, 40 s, ...");
/// failures.reset();
/// assert_eq!(failures.next(), Some(0), "it is over: the next one is another");
/// ```
#[derive(Debug)]
pub struct LogInterval {
    initial: Duration,
    max: Duration,
    state: Mutex<State>,
}

/// The first of growing intervals.
const GROWING_INITIAL: Duration = Duration::from_secs(10);

/// The longest of them.
const GROWING_MAX: Duration = Duration::from_secs(600);

/// After this time without a message, growing intervals begin again.
const GROWING_QUIET: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct State {
    interval: Duration,
    /// The last logged message.
    latest: Option<Instant>,
    /// The last message, logged or suppressed.
    occurred: Option<Instant>,
    suppressed: u64,
}

impl State {
    fn new(interval: Duration) -> Self {
        Self {
            interval,
            latest: None,
            occurred: None,
            suppressed: 0,
        }
    }
}

impl LogInterval {
    /// Allows one message per `interval`.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self::between(interval, interval)
    }

    /// Allows a message, and further ones at intervals that double from 10 s to 10 min, until there is
    /// none for a minute.
    #[must_use]
    pub fn growing() -> Self {
        Self::between(GROWING_INITIAL, GROWING_MAX)
    }

    fn between(initial: Duration, max: Duration) -> Self {
        Self {
            initial,
            max,
            state: Mutex::new(State::new(initial)),
        }
    }

    /// Returns the number of messages suppressed since the last logged one if a message is to be logged now; otherwise
    /// counts it as suppressed.
    pub fn next(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let is_growing = self.max > self.initial;
        let before = state.occurred.replace(now);
        if is_growing && before.is_some_and(|at| now - at >= GROWING_QUIET) {
            state.interval = self.initial;
            state.latest = None;
        }
        if let Some(latest) = state.latest {
            if now - latest < state.interval {
                state.suppressed += 1;
                return None;
            }
            state.interval = (state.interval * 2).min(self.max);
        }
        state.latest = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }

    /// Ends a series of messages: the next one is logged. Returns the number of messages suppressed since the last
    /// logged one.
    pub fn reset(&self) -> u64 {
        let mut state = self.state.lock();
        std::mem::replace(&mut *state, State::new(self.initial)).suppressed
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
        advance(interval).await;
        assert_eq!([messages.next(), messages.next()], [Some(1), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn growing_intervals_begin_again_after_a_quiet_minute_or_a_reset() {
        let messages = LogInterval::growing();
        let mut logged = Vec::new();
        for second in 0..200 {
            if messages.next().is_some() {
                logged.push(second);
            }
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [0, 10, 30, 70, 150]);
        assert_eq!(messages.reset(), 49);
        assert_eq!([messages.next(), messages.next()], [Some(0), None]);
        advance(GROWING_QUIET).await;
        assert_eq!([messages.next(), messages.next()], [Some(1), None]);
    }
}

//! Converts the times of the monotonic clock to dates. The same time always gives the same date, so that objects that
//! contain it do not change.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A moment of both clocks, from which others are computed.
#[derive(Debug)]
pub(crate) struct Clock {
    instant: Instant,
    date: Timestamp,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            instant: Instant::now(),
            date: Timestamp::now(),
        }
    }

    /// Returns the date of `at` in whole seconds, as in objects.
    pub(crate) fn date(&self, at: Instant) -> String {
        let signed = |duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        let after = signed(at.saturating_duration_since(self.instant));
        let before = signed(self.instant.saturating_duration_since(at));
        let date = self.date.saturating_add(after - before);
        rfc3339(date.unwrap_or(self.date))
    }
}

/// Returns `date` in whole seconds, as in objects.
pub(crate) fn rfc3339(date: Timestamp) -> String {
    date.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

//! `RetryAfter`: the interval after which rejected clients should retry. It grows while a level rejects many requests,
//! as in kube-apiserver.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The longest interval in seconds.
const SECONDS_MAX: u16 = 32;

const SECOND: Duration = Duration::from_secs(1);

/// The interval of one level in seconds. It doubles when the level has rejected at least three requests per second
/// during the interval, and is lowered by a second when the level has rejected less than one.
#[derive(Debug)]
pub(crate) struct RetryAfter {
    seconds: u16,
    /// The time at which the interval was last doubled.
    doubled: Option<Instant>,
    /// The start of each second with rejections, and their number; the newest last.
    rejected: VecDeque<(Instant, u32)>,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self {
            seconds: 1,
            doubled: None,
            rejected: VecDeque::new(),
        }
    }
}

impl RetryAfter {
    /// Counts a rejected request and returns the number of seconds for its client.
    pub(crate) fn rejected(&mut self, now: Instant) -> u16 {
        match self.rejected.back_mut() {
            Some((begin, count)) if now.saturating_duration_since(*begin) < SECOND => {
                *count = count.saturating_add(1);
            }
            _ => {
                self.adjust(now);
                self.rejected.push_back((now, 1));
            }
        }
        self.seconds
    }

    fn adjust(&mut self, now: Instant) {
        let age = |begin: Instant| now.saturating_duration_since(begin);
        self.rejected
            .retain(|(begin, _)| age(*begin) <= SECOND * u32::from(SECONDS_MAX + 1));
        let interval = SECOND * u32::from(self.seconds);
        let recent = self
            .rejected
            .iter()
            .filter(|(begin, _)| age(*begin) < interval + SECOND);
        let count: u64 = recent.map(|(_, count)| u64::from(*count)).sum();
        let may_double = self.doubled.is_none_or(|doubled| age(doubled) >= interval);
        if may_double && count >= 3 * u64::from(self.seconds) {
            self.seconds = (2 * self.seconds).min(SECONDS_MAX);
            self.doubled = Some(now);
        } else if count < u64::from(self.seconds) {
            self.seconds = (self.seconds - 1).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_interval_doubles_while_requests_are_rejected_and_then_falls() {
        let mut retry_after = RetryAfter::default();
        let start = Instant::now();
        let mut rejections = |second: u64, count: usize| {
            let now = start + Duration::from_secs(second);
            (0..count).map(|_| retry_after.rejected(now)).last()
        };
        assert_eq!(rejections(0, 10), Some(1));
        assert_eq!(rejections(1, 10), Some(2));
        assert_eq!(rejections(2, 10), Some(2), "it was doubled a second ago");
        assert_eq!(rejections(3, 10), Some(4));
        for second in 4..60 {
            rejections(second, 300);
        }
        assert_eq!(rejections(60, 1), Some(32));
        assert_eq!(rejections(200, 1), Some(31));
        assert_eq!(rejections(300, 1), Some(30));
    }
}

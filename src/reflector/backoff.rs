//! The Reflector's back-off as a value: how long to wait after the n-th failure. It sleeps nowhere
//! itself.

use std::time::Duration;

use tokio::time::Instant;

/// Exponential back-off with jitter that forgets after a quiet time. The defaults are client-go's
/// reflector: 800 ms, doubling to 30 s, up to as much again in jitter, reset after 2 minutes.
#[derive(Debug, Clone)]
pub struct Backoff {
    /// The first delay.
    pub initial: Duration,
    /// The largest delay before jitter.
    pub max: Duration,
    /// A failure this long after the last one starts over.
    pub reset_after: Duration,
    next: Duration,
    last_failure: Option<Instant>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(30))
    }
}

impl Backoff {
    /// A back-off from `initial` to `max`.
    pub fn new(initial: Duration, max: Duration) -> Self {
        let reset_after = Duration::from_secs(120);
        Self {
            initial,
            max,
            reset_after,
            next: initial,
            last_failure: None,
        }
    }

    /// How long to wait after one more failure at `now`; `jitter` in [0, 1) is the caller's random
    /// number, so that a simulation can seed it.
    pub fn failed(&mut self, now: Instant, jitter: f64) -> Duration {
        if self
            .last_failure
            .is_some_and(|last| now - last > self.reset_after)
        {
            self.next = self.initial;
        }
        self.last_failure = Some(now);
        let delay = self.next;
        self.next = (self.next * 2).min(self.max);
        delay.mul_f64(1.0 + jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_and_forgets() {
        let mut backoff = Backoff::default();
        let start = Instant::now();
        let millis: Vec<u128> = (0..8)
            .map(|_| backoff.failed(start, 0.0).as_millis())
            .collect();
        assert_eq!(millis, [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        assert_eq!(backoff.failed(start, 0.5).as_millis(), 45000);
        let later = start + Duration::from_secs(121);
        assert_eq!(backoff.failed(later, 0.0).as_millis(), 800);
    }
}

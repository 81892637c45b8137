//! The Reflector's back-off: computes the delay after each failure.

use std::time::Duration;

use tokio::time::Instant;

/// Time without a failure after which the delay is reset (client-go's value).
pub(super) const RESET_AFTER: Duration = Duration::from_secs(120);

/// Exponential back-off with jitter that is reset after a quiet period. The defaults are those of
/// client-go's reflector: 800 ms, doubling to 30 s, plus a random jitter of up to 100 %, reset
/// after 2 minutes.
#[derive(Debug, Clone)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    next: Duration,
    last_failure: Option<Instant>,
    random: fastrand::Rng,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Returns a back-off from `initial` to `max` (up to twice that with jitter).
    pub fn new(initial: Duration, max: Duration) -> Self {
        Self {
            initial,
            max,
            next: initial,
            last_failure: None,
            random: fastrand::Rng::new(),
        }
    }

    /// Seeds the jitter, for reproducible tests.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        self.random = fastrand::Rng::with_seed(seed);
        self
    }

    /// Resets the delay after a success.
    pub fn succeeded(&mut self) {
        self.next = self.initial;
    }

    /// Returns the delay after a failure at `now`.
    pub fn failed(&mut self, now: Instant) -> Duration {
        if self
            .last_failure
            .is_some_and(|last| now - last > RESET_AFTER)
        {
            self.next = self.initial;
        }
        self.last_failure = Some(now);
        let delay = self.next;
        self.next = (self.next * 2).min(self.max);
        delay.mul_f64(1.0 + self.random.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_maximum_and_resets() {
        let mut backoff = Backoff::default().seeded(1);
        let start = Instant::now();
        for base in [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000] {
            let millis = backoff.failed(start).as_millis();
            assert!((base..2 * base).contains(&millis), "{millis} for {base}");
        }
        let later = start + Duration::from_secs(121);
        assert!(backoff.failed(later).as_millis() < 1600);
        assert!(backoff.failed(later).as_millis() >= 1600);
        backoff.succeeded();
        assert!(backoff.failed(later).as_millis() < 1600);
    }
}

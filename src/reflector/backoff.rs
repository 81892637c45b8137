//! The Reflector's back-off as a value: how long to wait after the n-th failure. It sleeps nowhere
//! itself.

use std::time::Duration;

use tokio::time::Instant;

/// After how long without a failure the next one is a first one again (client-go's).
pub(super) const RESET_AFTER: Duration = Duration::from_secs(120);

/// Exponential back-off that forgets after a quiet time, with jitter on top of it, also of its longest
/// wait. The defaults are client-go's reflector: 800 ms, doubling to 30 s, up to as much again in jitter,
/// reset after 2 minutes.
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
    /// A back-off from `initial` to `max` (twice that with jitter), which is seeded by the system.
    pub fn new(initial: Duration, max: Duration) -> Self {
        Self {
            initial,
            max,
            next: initial,
            last_failure: None,
            random: fastrand::Rng::new(),
        }
    }

    /// The same with jitter from this seed, for a repeatable run.
    pub fn seeded(mut self, seed: u64) -> Self {
        self.random = fastrand::Rng::with_seed(seed);
        self
    }

    /// What was tried got somewhere: the next failure is a first one again.
    pub fn succeeded(&mut self) {
        self.next = self.initial;
    }

    /// How long to wait after one more failure, at `now`.
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
    fn doubles_to_the_cap_with_jitter_and_forgets_after_quiet_or_success() {
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

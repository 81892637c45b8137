//! Rate limiters: compute the delay of keys that are retried after a failure.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Computes the delay of a key.
pub trait RateLimiter: Send + 'static {
    /// Returns the delay of a key with this number of earlier failures.
    fn when(&mut self, requeues: u32) -> Duration;
}

/// An exponential delay per key.
///
/// ```
/// use std::time::Duration;
/// use watchet_client::{Exponential, RateLimiter as _};
///
/// let mut limiter = Exponential::default();
/// assert_eq!(limiter.when(0), Duration::from_millis(5));
/// assert_eq!(limiter.when(3), Duration::from_millis(40));
/// assert_eq!(limiter.when(99), Duration::from_secs(1_000));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Exponential {
    /// The delay after the first failure.
    pub first: Duration,
    /// The maximum delay.
    pub max: Duration,
}

/// client-go's default: from 5 ms to 1,000 s.
impl Default for Exponential {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(5),
            max: Duration::from_secs(1_000),
        }
    }
}

impl RateLimiter for Exponential {
    fn when(&mut self, requeues: u32) -> Duration {
        let doubled = 2_u32.checked_pow(requeues);
        let wait = doubled.and_then(|factor| self.first.checked_mul(factor));
        wait.map_or(self.max, |wait| wait.min(self.max))
    }
}

/// A token bucket for all keys together.
///
/// ```
/// use watchet_client::{RateLimiter as _, TokenBucket};
///
/// let mut limiter = TokenBucket::new(10.0, 1);
/// assert!(limiter.when(0).is_zero());
/// assert!(limiter.when(0).as_millis() > 90);
/// ```
#[derive(Debug, Clone)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    /// Negative if keys are waiting.
    tokens: f64,
    counted: Instant,
}

impl TokenBucket {
    /// Creates a full bucket.
    ///
    /// # Panics
    /// `per_second` is not positive.
    pub fn new(per_second: f64, burst: u32) -> Self {
        assert!(per_second > 0.0, "invalid rate of {per_second} per second");
        Self {
            per_second,
            burst: burst.into(),
            tokens: burst.into(),
            counted: Instant::now(),
        }
    }
}

/// client-go's default: 10 per second, bursts of 100.
impl Default for TokenBucket {
    fn default() -> Self {
        Self::new(10.0, 100)
    }
}

impl RateLimiter for TokenBucket {
    fn when(&mut self, _: u32) -> Duration {
        let now = Instant::now();
        let earned = (now - self.counted).as_secs_f64() * self.per_second;
        self.counted = now;
        self.tokens = (self.tokens + earned).min(self.burst) - 1.0;
        match self.tokens < 0.0 {
            // A delay that overflows the clock is very long, not zero.
            true => {
                Duration::try_from_secs_f64(-self.tokens / self.per_second).unwrap_or(Duration::MAX)
            }
            false => Duration::ZERO,
        }
    }
}

/// The maximum of several limiters. All are evaluated each time.
///
/// ```
/// use watchet_client::{Exponential, MaxOf, RateLimiter, TokenBucket};
///
/// let mut limiter = MaxOf::new([
///     Box::new(Exponential::default()) as Box<dyn RateLimiter>,
///     Box::new(TokenBucket::default()),
/// ]);
/// assert_eq!(limiter.when(0).as_millis(), 5);
/// ```
pub struct MaxOf(Vec<Box<dyn RateLimiter>>);

impl MaxOf {
    /// Creates the maximum of these limiters.
    pub fn new(limiters: impl IntoIterator<Item = Box<dyn RateLimiter>>) -> Self {
        Self(limiters.into_iter().collect())
    }
}

impl RateLimiter for MaxOf {
    fn when(&mut self, requeues: u32) -> Duration {
        let waits = self.0.iter_mut().map(|limiter| limiter.when(requeues));
        waits.max().unwrap_or_default()
    }
}

impl fmt::Debug for MaxOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MaxOf({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(limiter: &mut impl RateLimiter, requeues: u32) -> u128 {
        limiter.when(requeues).as_millis()
    }

    #[test]
    fn exponential_doubles_from_5_ms_to_1000_s() {
        let waits: Vec<_> = (0..20)
            .map(|n| millis(&mut Exponential::default(), n))
            .collect();
        assert_eq!(waits[..5], [5, 10, 20, 40, 80]);
        assert_eq!(waits[16..], [327_680, 655_360, 1_000_000, 1_000_000]);
        assert_eq!(millis(&mut Exponential::default(), u32::MAX), 1_000_000);
        let mut long = Exponential {
            first: Duration::from_secs(u64::MAX / 2),
            max: Duration::MAX,
        };
        assert_eq!(long.when(30), Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_lets_a_burst_through_and_then_ten_a_second() {
        let mut bucket = TokenBucket::default();
        let burst: Vec<_> = (0..100).map(|_| millis(&mut bucket, 0)).collect();
        assert_eq!(burst, [0; 100]);
        // Each call reserves a token.
        assert_eq!([(); 3].map(|()| millis(&mut bucket, 0)), [100, 200, 300]);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(millis(&mut bucket, 0), 150);
        // The bucket never exceeds a burst.
        tokio::time::advance(Duration::from_secs(3_600)).await;
        let again: Vec<_> = (0..102).map(|_| millis(&mut bucket, 0)).collect();
        assert_eq!(again[..100], [0; 100]);
        assert_eq!(again[100..], [100, 200]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_bucket_has_long_delays() {
        let mut bucket = TokenBucket::new(1e-300, 1);
        assert_eq!(bucket.when(0), Duration::ZERO);
        assert_eq!(bucket.when(0), Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_maximum_counts_and_all_are_evaluated() {
        let limiters: [Box<dyn RateLimiter>; 2] = [
            Box::new(Exponential::default()),
            Box::new(TokenBucket::new(10.0, 1)),
        ];
        let mut max = MaxOf::new(limiters);
        let waits = [0, 1, 2, 6].map(|requeues| millis(&mut max, requeues));
        assert_eq!(waits, [5, 100, 200, 320]);
        assert_eq!(MaxOf::new([]).when(7), Duration::ZERO);
    }
}

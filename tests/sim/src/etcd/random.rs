//! Random times.

use std::time::Duration;

use fastrand::Rng;

/// Returns a random duration up to `max`, in microseconds.
pub(super) fn random_duration(rng: &mut Rng, max: Duration) -> Duration {
    let micros = u64::try_from(max.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(rng.u64(0..=micros))
}

//! Latency histograms in microseconds with a relative error of at most 0.1 %, and their summary.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The highest value of a histogram; higher latencies count as this.
const LATENCY_MAX: Duration = Duration::from_secs(600);
/// Significant decimal digits of the histogram.
const DIGITS: u8 = 3;

/// A histogram.
#[derive(Debug, Clone)]
pub(super) struct Latencies(Histogram<u64>);

/// The summary of a histogram in microseconds; all 0 if it is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Summary {
    pub count: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let longest_us = LATENCY_MAX.as_micros() as u64;
        let histogram = Histogram::new_with_max(longest_us, DIGITS);
        Self(histogram.expect("the bounds are valid constants"))
    }
}

impl Latencies {
    /// Adds a latency.
    pub(super) fn record(&mut self, latency: Duration) {
        // Higher values count as the maximum.
        self.0.saturating_record(latency.as_micros() as u64);
    }

    /// Adds all values of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        let same_bounds = self.0.add(&other.0);
        same_bounds.expect("all histograms have the same bounds");
    }

    pub(super) fn summary(&self) -> Summary {
        let at = |quantile| match self.0.is_empty() {
            true => 0,
            false => self.0.value_at_quantile(quantile),
        };
        Summary {
            count: self.0.len(),
            mean: if self.0.is_empty() {
                0.0
            } else {
                self.0.mean()
            },
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max(),
        }
    }
}

impl Latencies {
    /// Returns the distribution as points: the number of nines of the quantile (0.9 is 1, 0.99 is
    /// 2), and its value in microseconds, as far as there are enough values.
    pub(super) fn points(&self) -> Vec<(f64, f64)> {
        let count = self.0.len();
        let steps = (count.max(1) as f64).log10() * NINE_STEPS;
        let point = |step: u64| {
            let nines = step as f64 / NINE_STEPS;
            let quantile = 1.0 - 10_f64.powf(-nines);
            (nines, self.0.value_at_quantile(quantile) as f64)
        };
        let steps = if count == 0 {
            0..0
        } else {
            0..steps as u64 + 1
        };
        steps.map(point).collect()
    }
}

/// Points per nine of a distribution.
const NINE_STEPS: f64 = 20.0;

/// The number of histograms in [`SharedLatencies`]: more than threads, to avoid contention.
const SHARDS: usize = 8;

/// A histogram that many tasks add to. A histogram takes some hundred KiB, too much for one per
/// task.
#[derive(Debug, Default)]
pub(super) struct SharedLatencies([Mutex<Latencies>; SHARDS]);

impl SharedLatencies {
    /// Calls `add` with the histogram for task `number`.
    pub(super) fn with(&self, number: u32, add: impl FnOnce(&mut Latencies)) {
        add(&mut self.0[number as usize % SHARDS].lock());
    }

    /// Returns the sum of all.
    pub(super) fn total(&self) -> Latencies {
        let mut total = Latencies::default();
        for shard in &self.0 {
            total.merge(&shard.lock());
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_that_of_the_sorted_values() {
        let shared = SharedLatencies::default();
        for us in 1..=10_000_u64 {
            shared.with(us as u32, |some| some.record(Duration::from_micros(us)));
        }
        let summary = shared.total().summary();
        assert_eq!(summary.count, 10_000);
        let close = |actual: u64, expected: u64| {
            let error = actual.abs_diff(expected) as f64 / expected as f64;
            assert!(error <= 0.001, "{actual} instead of {expected}");
        };
        close(summary.p50, 5_000);
        close(summary.p90, 9_000);
        close(summary.p99, 9_900);
        close(summary.p999, 9_990);
        close(summary.max, 10_000);
        assert!((summary.mean - 5_000.5).abs() < 5.0, "{summary:?}");
    }

    #[test]
    fn points_end_at_the_resolution_of_the_data() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.points(), []);
        for us in 1..=1_000 {
            latencies.record(Duration::from_micros(us));
        }
        let points = latencies.points();
        assert_eq!(points.len(), 61);
        assert_eq!((points[20].0, points[20].1), (1.0, 900.0));
        assert_eq!((points[60].0, points[60].1), (3.0, 999.0));
    }

    #[test]
    fn empty_is_zero_and_long_latencies_are_capped() {
        let mut latencies = Latencies::default();
        let nothing = latencies.summary();
        assert_eq!((nothing.count, nothing.p99, nothing.max), (0, 0, 0));
        assert_eq!(nothing.mean, 0.0);
        latencies.record(LATENCY_MAX * 2);
        latencies.record(Duration::ZERO);
        let summary = latencies.summary();
        assert_eq!((summary.count, summary.p50), (2, 0));
        assert!(summary.max >= LATENCY_MAX.as_micros() as u64);
    }
}

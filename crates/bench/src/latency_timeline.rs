//! Latencies over the time of a run: the median, the 99th percentile and the maximum for each
//! interval. When there are too many intervals, their length doubles, so that a run of any length
//! takes little memory.

use std::time::Duration;

/// The initial length of an interval.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The maximum number of intervals: a plot has more pixels, but a report should be short.
const INTERVALS_MAX: usize = 120;
/// The minimum average number of values per interval: with fewer, the p99 is the maximum.
const VALUES_MIN: u64 = 50;
/// Intervals with few values are not merged below this number of intervals.
const INTERVALS_MIN: usize = 10;
/// Buckets per factor of two. The relative error of a percentile is at most 4.5 %.
const BUCKETS_PER_OCTAVE: f64 = 8.0;

/// Latencies by the interval in which they were measured.
#[derive(Debug, Clone)]
pub(super) struct LatencyTimeline {
    interval: Duration,
    intervals: Vec<Histogram>,
}

/// A histogram with logarithmic buckets. Those of [`super::latency`] are more precise, but take
/// some hundred KiB each.
#[derive(Debug, Clone, Default)]
struct Histogram {
    /// The number of values in each bucket; the first one is of less than 2^(1/8) us.
    buckets: Vec<u32>,
    max_us: u64,
}

/// The latencies of an interval in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(from = "(f64, f64, f64, f64)", into = "(f64, f64, f64, f64)")]
pub(super) struct LatencyInterval {
    /// The end of the interval in seconds since the start of the run.
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl From<(f64, f64, f64, f64)> for LatencyInterval {
    fn from((seconds, p50_us, p99_us, max_us): (f64, f64, f64, f64)) -> Self {
        Self {
            seconds,
            p50_us,
            p99_us,
            max_us,
        }
    }
}

impl From<LatencyInterval> for (f64, f64, f64, f64) {
    fn from(interval: LatencyInterval) -> Self {
        let LatencyInterval {
            seconds,
            p50_us,
            p99_us,
            max_us,
        } = interval;
        (seconds, p50_us, p99_us, max_us)
    }
}

impl Default for LatencyTimeline {
    fn default() -> Self {
        Self {
            interval: INTERVAL_MIN,
            intervals: Vec::new(),
        }
    }
}

impl LatencyTimeline {
    /// Adds a latency that was measured at the time `at` since the start of the run.
    pub(super) fn record(&mut self, at: Duration, latency: Duration) {
        while self.index(at) >= INTERVALS_MAX {
            self.double();
        }
        let index = self.index(at);
        if index >= self.intervals.len() {
            self.intervals.resize_with(index + 1, Histogram::default);
        }
        self.intervals[index].record(latency);
    }

    fn index(&self, at: Duration) -> usize {
        (at.as_micros() / self.interval.as_micros()) as usize
    }

    /// Doubles the length of the intervals.
    fn double(&mut self) {
        self.interval *= 2;
        let mut halves = std::mem::take(&mut self.intervals).into_iter();
        while let Some(mut first) = halves.next() {
            if let Some(second) = halves.next() {
                first.add(&second);
            }
            self.intervals.push(first);
        }
    }

    /// Adds all latencies of `other`, a part of the same run.
    pub(super) fn merge(&mut self, mut other: Self) {
        while self.interval < other.interval {
            self.double();
        }
        while other.interval < self.interval {
            other.double();
        }
        if self.intervals.len() < other.intervals.len() {
            let length = other.intervals.len();
            self.intervals.resize_with(length, Histogram::default);
        }
        for (sum, part) in self.intervals.iter_mut().zip(&other.intervals) {
            sum.add(part);
        }
    }

    /// Returns the intervals that have latencies, merged if they have few.
    pub(super) fn intervals(&self) -> Vec<LatencyInterval> {
        let mut merged = self.clone();
        let count: u64 = self.intervals.iter().map(Histogram::count).sum();
        while merged.intervals.len() >= 2 * INTERVALS_MIN
            && count < VALUES_MIN * merged.intervals.len() as u64
        {
            merged.double();
        }
        merged.measured()
    }

    fn measured(&self) -> Vec<LatencyInterval> {
        let intervals = (1..).zip(&self.intervals);
        let measured = intervals.filter(|(_, histogram)| !histogram.buckets.is_empty());
        measured
            .map(|(number, histogram)| LatencyInterval {
                seconds: (self.interval * number).as_secs_f64(),
                p50_us: histogram.quantile(0.5),
                p99_us: histogram.quantile(0.99),
                max_us: histogram.max_us as f64,
            })
            .collect()
    }
}

impl Histogram {
    fn record(&mut self, latency: Duration) {
        let us = latency.as_micros() as u64;
        let bucket = ((us.max(1) as f64).log2() * BUCKETS_PER_OCTAVE) as usize;
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.max_us = self.max_us.max(us);
    }

    fn add(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (sum, part) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += part;
        }
        self.max_us = self.max_us.max(other.max_us);
    }

    fn count(&self) -> u64 {
        self.buckets.iter().copied().map(u64::from).sum()
    }

    /// Returns the middle of the bucket that contains the quantile, in whole microseconds.
    fn quantile(&self, quantile: f64) -> f64 {
        let rank = (self.count() as f64 * quantile).ceil() as u64;
        let mut passed = 0;
        let bucket = self.buckets.iter().position(|count| {
            passed += u64::from(*count);
            passed >= rank
        });
        let middle = bucket.map_or(0.0, |bucket| (bucket as f64 + 0.5) / BUCKETS_PER_OCTAVE);
        middle.exp2().round().min(self.max_us as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_interval_has_its_own_percentiles() {
        let mut timeline = LatencyTimeline::default();
        for ms in 1..=100 {
            timeline.record(self::ms(50), self::ms(ms));
        }
        timeline.record(ms(350), ms(7));
        let intervals = timeline.intervals();
        assert_eq!(intervals.len(), 2, "{intervals:?}");
        let [first, second] = intervals[..] else {
            unreachable!("the length is checked")
        };
        assert_eq!(first.seconds, 0.1);
        assert!((first.p50_us / 50_000.0 - 1.0).abs() < 0.05, "{first:?}");
        assert!((first.p99_us / 99_000.0 - 1.0).abs() < 0.05, "{first:?}");
        assert_eq!(first.max_us, 100_000.0);
        assert_eq!((second.seconds, second.max_us), (0.4, 7_000.0));
        assert!(second.p99_us <= second.max_us, "{second:?}");
    }

    #[test]
    fn long_runs_have_longer_intervals() {
        let mut timeline = LatencyTimeline::default();
        for second in 0..600 {
            timeline.record(Duration::from_secs(second), ms(second));
        }
        let intervals = timeline.intervals();
        assert!(intervals.len() <= INTERVALS_MAX, "{}", intervals.len());
        assert!(intervals.len() >= INTERVALS_MIN, "{}", intervals.len());
        assert_eq!(intervals.last().map(|last| last.max_us), Some(599_000.0));
    }

    #[test]
    fn intervals_with_few_values_are_merged() {
        for (per_interval, expected) in [(1, 10), (10, 10), (50, 80)] {
            let mut timeline = LatencyTimeline::default();
            for interval in 0..80 {
                for _ in 0..per_interval {
                    timeline.record(INTERVAL_MIN * interval, ms(1));
                }
            }
            let found = timeline.intervals().len();
            assert_eq!(found, expected, "{per_interval}");
        }
    }

    #[test]
    fn parts_with_different_intervals_are_merged() {
        let mut long = LatencyTimeline::default();
        long.record(ms(50), ms(1));
        long.record(Duration::from_secs(20), ms(2));
        let mut short = LatencyTimeline::default();
        short.record(ms(150), ms(9));
        for (one, other) in [(long.clone(), short.clone()), (short, long)] {
            let mut sum = one;
            sum.merge(other);
            let intervals = sum.intervals();
            assert_eq!(intervals.len(), 2, "{intervals:?}");
            assert_eq!(intervals[0].max_us, 9_000.0);
            assert_eq!(intervals[1].max_us, 2_000.0);
        }
    }
}

//! Metric values: counters, gauges, histograms. They are atomics: recording takes no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A value that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that can decrease. Clones share it.
#[derive(Debug, Default, Clone)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Sets the value, for gauges computed at scrape time.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds one until the returned guard is dropped.
    #[must_use]
    pub fn hold(&self) -> GaugeGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(self.clone())
    }

    /// Returns the value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Decrements a [`Gauge`] on drop.
#[derive(Debug)]
pub struct GaugeGuard(Gauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A distribution of observations.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds, inclusive, increasing.
    bounds: &'static [f64],
    /// One bucket per bound and one for larger values; not cumulative.
    buckets: Box<[AtomicU64]>,
    /// The bits of an `f64`.
    sum: AtomicU64,
}

impl Histogram {
    /// Returns an empty histogram with these increasing upper bounds.
    pub fn new(bounds: &'static [f64]) -> Self {
        debug_assert!(bounds.is_sorted());
        Self {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0f64.to_bits()),
        }
    }

    /// Adds an observation.
    pub fn observe(&self, value: f64) {
        self.observe_many(value, 1);
    }

    /// Adds an observation in seconds.
    pub fn observe_duration(&self, elapsed: Duration) {
        self.observe(elapsed.as_secs_f64());
    }

    /// Adds `count` equal observations.
    pub fn observe_many(&self, value: f64, count: usize) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(count as u64, Ordering::Relaxed);
        let grown = |bits| Some((f64::from_bits(bits) + value * count as f64).to_bits());
        // The closure always returns a value, so this cannot fail.
        let updated = self
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        debug_assert!(updated.is_ok());
    }

    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// Returns the sum of all observations.
    pub fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Ordering::Relaxed))
    }

    /// Returns each upper bound, infinity last, with the number of observations up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.buckets.iter().scan(0, |total, bucket| {
            *total += bucket.load(Ordering::Relaxed);
            Some(*total)
        });
        bounds.zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        histogram.observe(0.5);
        histogram.observe_many(0.75, 2);
        histogram.observe_duration(Duration::from_secs(3));
        let buckets: Vec<_> = histogram.cumulative().collect();
        assert_eq!(buckets, [(0.5, 1), (1.0, 3), (f64::INFINITY, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 5.0));
    }

    #[test]
    fn guard_counts_until_it_is_dropped() {
        let gauge = Gauge::default();
        let (one, other) = (gauge.hold(), gauge.hold());
        assert_eq!(gauge.get(), 2);
        drop(one);
        assert_eq!(gauge.get(), 1);
        drop(other);
        assert_eq!(gauge.get(), 0);
    }
}

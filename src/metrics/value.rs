//! The values that metrics have: counters, gauges, histograms. They are plain atomics: recording
//! takes no lock and looks nothing up. Names and labels are not known here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many there are. Clones share the value.
#[derive(Debug, Default, Clone)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// So many, for what is looked at when it is told.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// One more until the answer is dropped.
    #[must_use]
    pub fn hold(&self) -> Held {
        self.0.fetch_add(1, Ordering::Relaxed);
        Held(self.clone())
    }

    /// How many there are.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts for one in a [`Gauge`] while it lives.
#[derive(Debug)]
pub struct Held(Gauge);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many observations were how large.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds, inclusive, growing.
    bounds: &'static [f64],
    /// One for each bound and one for what is larger than all; not cumulative.
    buckets: Box<[AtomicU64]>,
    /// The bits of an `f64`.
    sum: AtomicU64,
}

impl Histogram {
    /// An empty one with these upper bounds, which must grow.
    pub fn new(bounds: &'static [f64]) -> Self {
        debug_assert!(bounds.is_sorted());
        Self {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0f64.to_bits()),
        }
    }

    /// One observation.
    pub fn observe(&self, value: f64) {
        self.observe_many(value, 1);
    }

    /// One observation, in seconds.
    pub fn observe_duration(&self, elapsed: Duration) {
        self.observe(elapsed.as_secs_f64());
    }

    /// So many equal observations for the price of one.
    pub fn observe_many(&self, value: f64, count: usize) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(count as u64, Ordering::Relaxed);
        let grown = |bits| Some((f64::from_bits(bits) + value * count as f64).to_bits());
        // The closure always has a next value, so this cannot fail.
        let updated = self
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        debug_assert!(updated.is_ok());
    }

    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// The sum of all observations.
    pub fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Ordering::Relaxed))
    }

    /// Each upper bound, infinity last, and how many observations were at most as large.
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
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        histogram.observe(0.5);
        histogram.observe_many(0.75, 2);
        histogram.observe_duration(Duration::from_secs(3));
        let told: Vec<_> = histogram.cumulative().collect();
        assert_eq!(told, [(0.5, 1), (1.0, 3), (f64::INFINITY, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 5.0));
    }

    #[test]
    fn what_is_held_is_counted_until_it_is_dropped() {
        let gauge = Gauge::default();
        let (one, other) = (gauge.hold(), gauge.hold());
        assert_eq!(gauge.get(), 2);
        drop(one);
        assert_eq!(gauge.get(), 1);
        drop(other);
        assert_eq!(gauge.get(), 0);
    }
}

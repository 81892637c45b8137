//! The progress of a load: a progress bar if stderr is a terminal, and samples of the throughput
//! for the plot. Callers update it a few times per second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

/// Redraws of the bar per second.
const DRAWS_PER_SECOND: u8 = 4;

/// The initial minimum time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of samples: a plot has at most one point per pixel. When there are more, the
/// interval doubles.
const SAMPLES_MAX: usize = 600;

/// The progress of a load.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    begin: Instant,
    /// The amount of work done, by time.
    samples: Vec<(Duration, u64)>,
    /// The minimum time between two samples.
    interval: Duration,
}

impl Progress {
    /// Starts now, with 0 of `total`, labelled `what`.
    pub(super) fn begin(what: &'static str, total: u64) -> Self {
        Self::begin_open(what, Some(total))
    }

    /// As [`Self::begin`], with an optional total.
    pub(super) fn begin_open(what: &'static str, total: Option<u64>) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND);
        let style = ProgressStyle::with_template(match total {
            Some(_) => "{prefix:>10} {bar:40} {pos}/{len} {per_sec} {eta}",
            None => "{prefix:>10} {spinner} {pos} {per_sec} {elapsed}",
        });
        let bar = ProgressBar::with_draw_target(total, target)
            .with_style(style.expect("the templates are valid constants"))
            .with_prefix(what);
        Self {
            bar,
            begin: Instant::now(),
            samples: vec![(Duration::ZERO, 0)],
            interval: SAMPLE_INTERVAL,
        }
    }

    /// Records that `done` units of work are done.
    pub(super) fn set(&mut self, done: u64) {
        self.bar.set_position(done);
        let now = self.begin.elapsed();
        let last = self.samples.last().map_or(Duration::ZERO, |(at, _)| *at);
        if now < last + self.interval {
            return;
        }
        self.samples.push((now, done));
        if self.samples.len() > SAMPLES_MAX {
            self.interval *= 2;
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    /// Removes the bar. Returns the throughput per second, by the second.
    pub(super) fn end(self) -> Vec<(f64, f64)> {
        self.bar.finish_and_clear();
        let pairs = self.samples.windows(2);
        let rate = |pair: &[(Duration, u64)]| {
            let seconds = (pair[1].0 - pair[0].0).as_secs_f64();
            let done = pair[1].1.saturating_sub(pair[0].1);
            (pair[1].0.as_secs_f64(), done as f64 / seconds)
        };
        pairs.map(rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn throughput_is_the_growth_between_samples() {
        let mut progress = Progress::begin("test", 100);
        for done in [10, 20, 20, 80] {
            tokio::time::advance(SAMPLE_INTERVAL / 2).await;
            // Too soon for another sample.
            progress.set(done - 5);
            tokio::time::advance(SAMPLE_INTERVAL / 2).await;
            progress.set(done);
        }
        let rates: Vec<f64> = progress
            .end()
            .iter()
            .map(|(_, rate)| rate.round())
            .collect();
        assert_eq!(rates, [100.0, 100.0, 0.0, 600.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn long_loads_have_fewer_samples() {
        let mut progress = Progress::begin("test", 10_000);
        for done in 1..=10_000 {
            tokio::time::advance(SAMPLE_INTERVAL).await;
            progress.set(done);
        }
        let rates = progress.end();
        assert!((SAMPLES_MAX / 2 - 2..SAMPLES_MAX).contains(&rates.len()));
        assert!(rates.iter().all(|(_, rate)| rate.round() == 10.0));
    }
}

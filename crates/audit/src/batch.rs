//! `BatchOptions`: the sizes and the maximum rate of batches of events.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use watchet_client::{RateLimiter as _, TokenBucket};

/// The options of batches, in mode [`Mode::Batch`](crate::Mode::Batch).
#[derive(Debug, Clone, PartialEq)]
pub struct BatchOptions {
    /// The maximum number of events that wait; further ones are dropped.
    pub buffer_size: usize,
    /// The maximum number of events of a batch.
    pub size_max: usize,
    /// The maximum time that an event waits for a complete batch. A crash loses the events of this time.
    pub wait_max: Duration,
    /// The maximum rate of batches, if there is one.
    pub throttle: Option<Throttle>,
}

/// A maximum rate of batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    /// The average number of batches per second; positive.
    pub qps: f64,
    /// The maximum number of batches without a pause, after a time without batches.
    pub burst: u32,
}

/// Delays batches until the maximum rate allows them.
pub(crate) struct BatchRate(Option<TokenBucket>);

impl BatchRate {
    pub(crate) fn new(throttle: Option<Throttle>) -> Self {
        Self(throttle.map(|throttle| TokenBucket::new(throttle.qps, throttle.burst)))
    }

    /// Waits until the next batch is allowed, or `stop` is cancelled: at the shutdown the last batches are sent without
    /// delay.
    pub(crate) async fn wait(&mut self, stop: &CancellationToken) {
        let Some(bucket) = &mut self.0 else {
            return;
        };
        let delay = tokio::time::sleep(bucket.when(0));
        let _stopped = stop.run_until_cancelled(delay).await;
    }
}

//! The board of a run: what writers and watchers of one run share. When each event was sent,
//! acknowledged and told to the last watcher, and the counters that the run waits on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::bench::latency::{Latencies, SharedLatencies};

/// Not yet.
const NEVER: u64 = 0;

#[derive(Debug)]
pub(super) struct Board {
    epoch: Instant,
    events: Vec<Times>,
    /// Watches whose first answer is there.
    pub opened: AtomicU32,
    /// Watches that ended before they should, opened or not.
    pub ended: AtomicU32,
    /// Events told to a watcher for the first time.
    pub delivered: AtomicU64,
    /// Of all watches' bodies since they are open.
    pub bytes: AtomicU64,
    /// From the acknowledgement to each watcher.
    pub to_each: SharedLatencies,
}

/// Microseconds from the epoch on, or [`NEVER`]. Statistics, and each written by one side only (the last
/// telling: the latest wins), so no order between them is needed.
#[derive(Debug, Default)]
struct Times {
    sent: AtomicU64,
    acknowledged: AtomicU64,
    told_last: AtomicU64,
}

/// Latencies of the run, once it is over.
#[derive(Debug, Default)]
pub(super) struct EventLatencies {
    /// From sending a write to its acknowledgement.
    pub write: Latencies,
    /// From the acknowledgement to the last watcher.
    pub last: Latencies,
    /// From sending the write to the last watcher.
    pub write_to_last: Latencies,
}

impl Board {
    pub(super) fn new(events: u32) -> Self {
        Self {
            // So that no time of the run is 0.
            epoch: Instant::now() - Duration::from_micros(1),
            events: (0..events).map(|_| Times::default()).collect(),
            opened: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            delivered: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            to_each: SharedLatencies::default(),
        }
    }

    fn now_us(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    pub(super) fn sent(&self, event: u32) {
        let times = &self.events[event as usize];
        times.sent.store(self.now_us(), Ordering::Relaxed);
    }

    pub(super) fn acknowledged(&self, event: u32) {
        let times = &self.events[event as usize];
        times.acknowledged.store(self.now_us(), Ordering::Relaxed);
    }

    pub(super) fn is_acknowledged(&self, event: u32) -> bool {
        self.events[event as usize]
            .acknowledged
            .load(Ordering::Relaxed)
            != NEVER
    }

    /// How many writes were acknowledged.
    pub(super) fn acknowledgements(&self) -> u32 {
        let events = 0..self.events.len() as u32;
        events.filter(|event| self.is_acknowledged(*event)).count() as u32
    }

    /// Notes that `watcher` was told of `events` just now, all at once.
    pub(super) fn told(&self, watcher: u32, events: &[u32]) {
        let now_us = self.now_us();
        self.to_each.with(watcher, |latencies| {
            for event in events {
                let times = &self.events[*event as usize];
                times.told_last.fetch_max(now_us, Ordering::Relaxed);
                // A watcher may hear of a write before the writer does: that is no time at all.
                let acknowledged = match times.acknowledged.load(Ordering::Relaxed) {
                    NEVER => now_us,
                    at => at,
                };
                latencies.record(Duration::from_micros(now_us.saturating_sub(acknowledged)));
            }
        });
        self.delivered
            .fetch_add(events.len() as u64, Ordering::Relaxed);
    }

    /// The latencies of the events that were acknowledged and told to somebody.
    pub(super) fn latencies(&self) -> EventLatencies {
        let mut latencies = EventLatencies::default();
        for times in &self.events {
            let [sent, acknowledged, told] = [&times.sent, &times.acknowledged, &times.told_last]
                .map(|time| time.load(Ordering::Relaxed));
            let between = |from: u64, to: u64| Duration::from_micros(to.saturating_sub(from));
            if acknowledged == NEVER {
                continue;
            }
            latencies.write.record(between(sent, acknowledged));
            if told != NEVER {
                latencies.last.record(between(acknowledged, told));
                latencies.write_to_last.record(between(sent, told));
            }
        }
        latencies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn latencies_are_counted_from_the_acknowledgement_to_the_last() {
        let board = Board::new(3);
        let pass = |ms| tokio::time::advance(Duration::from_millis(ms));
        board.sent(0);
        pass(2).await;
        board.told(0, &[0]);
        pass(3).await;
        board.acknowledged(0);
        pass(4).await;
        board.told(1, &[0]);
        // Never acknowledged, and never told.
        board.sent(1);
        board.sent(2);
        board.acknowledged(2);
        assert_eq!(board.delivered.load(Ordering::Relaxed), 2);
        assert_eq!(board.acknowledgements(), 2);
        let found = board.latencies();
        let close = |latencies: &Latencies, count, max_us: u64| {
            let summary = latencies.summary();
            assert_eq!(summary.count, count);
            assert!(summary.max.abs_diff(max_us) <= max_us / 500, "{summary:?}");
        };
        close(&found.write, 2, 5_000);
        close(&found.last, 1, 4_000);
        close(&found.write_to_last, 1, 9_000);
        let each = board.to_each.total();
        close(&each, 2, 4_000);
        assert_eq!(each.summary().p50, 0, "told before the acknowledgement");
    }
}

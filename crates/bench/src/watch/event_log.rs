//! The log of a run's events, shared by its writers and watchers: when each event was sent,
//! acknowledged and received by the last watcher, and counters for the main task.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::latency::{Latencies, SharedLatencies};
use crate::latency_timeline::LatencyTimeline;

/// The value of a time that is not set.
const NEVER: u64 = 0;

#[derive(Debug)]
pub(super) struct EventLog {
    epoch: Instant,
    events: Vec<Times>,
    /// Watches whose response has begun.
    pub opened: AtomicU32,
    /// Watches that ended early, open or not.
    pub ended: AtomicU32,
    /// First receipts of an event by a watcher.
    pub delivered: AtomicU64,
    /// Bytes of all watch bodies since they were opened.
    pub bytes: AtomicU64,
    /// Latencies from the acknowledgement to the receipt by each watcher.
    pub to_each: SharedLatencies,
}

/// Microseconds since the epoch, or [`NEVER`]. Each is written by one side only (for the last
/// receipt the maximum wins), so relaxed ordering suffices.
#[derive(Debug, Default)]
struct Times {
    sent: AtomicU64,
    acknowledged: AtomicU64,
    last_received: AtomicU64,
}

/// The latencies of a run.
#[derive(Debug, Default)]
pub(super) struct EventLatencies {
    /// From sending a write to its acknowledgement.
    pub write: Latencies,
    /// From the acknowledgement to the last watcher.
    pub last: Latencies,
    /// `last` by the time since the first write.
    pub last_timeline: LatencyTimeline,
    /// From sending the write to the last watcher.
    pub write_to_last: Latencies,
}

impl EventLog {
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

    /// Returns how many writes were acknowledged.
    pub(super) fn acknowledgements(&self) -> u32 {
        let events = 0..self.events.len() as u32;
        events.filter(|event| self.is_acknowledged(*event)).count() as u32
    }

    /// Records that `watcher` has just received `events` in one read.
    pub(super) fn received(&self, watcher: u32, events: &[u32]) {
        let now_us = self.now_us();
        self.to_each.with(watcher, |latencies| {
            for event in events {
                let times = &self.events[*event as usize];
                times.last_received.fetch_max(now_us, Ordering::Relaxed);
                // A watcher may receive an event before the writer receives the acknowledgement:
                // that counts as 0.
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

    /// Returns the latencies of events that were acknowledged and received.
    pub(super) fn latencies(&self) -> EventLatencies {
        let mut latencies = EventLatencies::default();
        let sent = |times: &Times| times.sent.load(Ordering::Relaxed);
        let first_sent = self.events.iter().map(sent).filter(|sent| *sent != NEVER);
        let begin = first_sent.min().unwrap_or(NEVER);
        for times in &self.events {
            let [sent, acknowledged, received] =
                [&times.sent, &times.acknowledged, &times.last_received]
                    .map(|time| time.load(Ordering::Relaxed));
            let between = |from: u64, to: u64| Duration::from_micros(to.saturating_sub(from));
            if acknowledged == NEVER {
                continue;
            }
            latencies.write.record(between(sent, acknowledged));
            if received != NEVER {
                let last = between(acknowledged, received);
                latencies.last.record(last);
                latencies
                    .last_timeline
                    .record(between(begin, received), last);
                latencies.write_to_last.record(between(sent, received));
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
        let log = EventLog::new(3);
        let pass = |ms| tokio::time::advance(Duration::from_millis(ms));
        log.sent(0);
        pass(2).await;
        log.received(0, &[0]);
        pass(3).await;
        log.acknowledged(0);
        pass(4).await;
        log.received(1, &[0]);
        // Never acknowledged and never received.
        log.sent(1);
        log.sent(2);
        log.acknowledged(2);
        assert_eq!(log.delivered.load(Ordering::Relaxed), 2);
        assert_eq!(log.acknowledgements(), 2);
        let found = log.latencies();
        let close = |latencies: &Latencies, count, max_us: u64| {
            let summary = latencies.summary();
            assert_eq!(summary.count, count);
            assert!(summary.max.abs_diff(max_us) <= max_us / 500, "{summary:?}");
        };
        close(&found.write, 2, 5_000);
        close(&found.last, 1, 4_000);
        let timeline = found.last_timeline.intervals();
        assert_eq!(timeline.len(), 1, "{timeline:?}");
        assert_eq!(timeline[0].max_us, 4_000.0);
        close(&found.write_to_last, 1, 9_000);
        let each = log.to_each.total();
        close(&each, 2, 4_000);
        assert_eq!(each.summary().p50, 0, "received before the acknowledgement");
    }
}

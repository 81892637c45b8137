//! Background duties: compaction each interval, expiry when it is due, and flushing for interval
//! durability. It decides when; what is done is the writer's.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::writer::{Op, Reply};
use super::{Durability, Embedded};
use crate::api::ResourceVersion;
use crate::storage::{Storage as _, StorageError};

/// Deadlines that come together expire together: rounds are at least this far apart. Well
/// below the second that is the unit of a lease in etcd.
const EXPIRY_PAUSE: Duration = Duration::from_millis(200);

/// How often a store that need not be durable is flushed all the same: only what is on disk frees
/// the pages it replaced, and without that the file grows with every write.
const RECLAIM_PERIOD: Duration = Duration::from_secs(60);

/// After a failed round of expiry, before the next.
const EXPIRY_RETRY: Duration = Duration::from_secs(10);

/// Between a failure and the next attempt to open the file again: an operator who frees space does
/// not notice it, and verifying a big file over and over costs little.
pub(super) const REOPEN_PAUSE: Duration = Duration::from_secs(5);

impl Embedded {
    /// Works until `cancel`, then flushes.
    pub(super) async fn maintain_until(&self, cancel: CancellationToken) {
        let mut compaction = timer(self.config.compaction_interval);
        let mut flush = match self.config.durability {
            Durability::Interval(period) => timer(period),
            Durability::None => timer(RECLAIM_PERIOD),
            Durability::Fsync => None,
        };
        let mut remembered = None;
        let mut not_before = Instant::now();
        let mut reopen_at = None;
        loop {
            // To stop comes first, then to go on after a failure, which the writer does and tells of.
            // Flushing and compaction are rare and short, so that expiry, which can be busy for long,
            // comes after them.
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                () = self.reopening_due(&mut reopen_at) => {
                    reopen_at = None;
                    drop(self.ask(Op::Reopen).await);
                }
                // What has failed was told of, and there is nothing that a flush could save.
                () = tick(&mut flush) => if self.status.failed().is_none() {
                    self.flush(Op::Flush).await;
                },
                () = tick(&mut compaction) => remembered = self.compact_round(remembered).await,
                () = self.deadline(not_before) => {
                    let pause = self.expire_round().await;
                    not_before = Instant::now() + pause;
                }
            }
        }
        self.flush(Op::Rest).await;
    }

    /// Waits until a store that has failed should be opened again. `at` keeps that moment from one
    /// call to the next, since other duties come between: each second, with an interval durability.
    async fn reopening_due(&self, at: &mut Option<Instant>) {
        while self.status.failed().is_none() {
            *at = None;
            self.status.has_failed.notified().await;
        }
        sleep_until(*at.get_or_insert_with(|| Instant::now() + REOPEN_PAUSE)).await;
    }

    async fn flush(&self, how: impl FnOnce(Reply<()>) -> Op) {
        if let Err(error) = self.ask(how).await {
            tracing::error!(error = %error, "the store cannot be flushed");
        }
    }

    /// Compacts at the revision remembered in the round before, and remembers today's.
    async fn compact_round(&self, remembered: Option<ResourceVersion>) -> Option<ResourceVersion> {
        if let Some(at) = remembered {
            match self.compact(at).await {
                Ok(()) => tracing::debug!(revision = at.get(), "compacted"),
                // Somebody compacted further by hand.
                Err(StorageError::Compacted { .. }) => {}
                Err(error) => tracing::error!(error = %error, "the store cannot be compacted"),
            }
        }
        match self.data.newest().map(ResourceVersion::new) {
            Ok(revision) => Some(revision),
            Err(error) => {
                tracing::error!(error = %error, "the store's revision cannot be read");
                None
            }
        }
    }

    /// Waits until the first deadline, but not before `not_before`.
    async fn deadline(&self, not_before: Instant) {
        sleep_until(not_before).await;
        loop {
            let deadline = self.next_deadline_ms();
            let wait = Duration::from_millis(deadline.saturating_sub(self.clock.now_ms()));
            if wait.is_zero() {
                return;
            }
            // A deadline that came earlier is looked at anew; no order matters between the two.
            tokio::select! {
                biased;
                () = self.status.deadline_changed.notified() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Deletes some of what is due, and says how long to pause.
    async fn expire_round(&self) -> Duration {
        let now_ms = self.clock.now_ms();
        match self.ask(|reply| Op::Expire(now_ms, reply)).await {
            Ok(0) => EXPIRY_PAUSE,
            Ok(count) => {
                tracing::debug!(count, "expired keys");
                EXPIRY_PAUSE
            }
            Err(error) => {
                tracing::error!(error = %error, "keys cannot be expired");
                EXPIRY_RETRY
            }
        }
    }
}

fn timer(period: Duration) -> Option<Interval> {
    if period.is_zero() {
        return None;
    }
    let mut timer = interval_at(Instant::now() + period, period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Some(timer)
}

/// The next tick of a timer that there may not be.
async fn tick(timer: &mut Option<Interval>) {
    match timer {
        Some(timer) => drop(timer.tick().await),
        None => std::future::pending().await,
    }
}

//! Background tasks of the store: compaction at each interval, expiry of keys, flushes for interval
//! durability, and recovery from failures. The writer does the work.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::error::Fault;
use super::operation::{Op, REOPEN_PAUSE, Reply};
use super::times::retention_period;
use super::writer::SHRINK_LIVE_MAX;
use super::{Durability, Embedded};
use crate::revision_times::SAMPLE_PERIOD;
use crate::{Storage as _, StorageError};
use watchet_api::ResourceVersion;

/// The minimum time between two rounds of expiry, so that similar deadlines expire together. Well
/// below a second, the unit of an etcd lease.
const EXPIRY_PAUSE: Duration = Duration::from_millis(200);

/// The interval of flushes without durability, which bounds the loss in a crash.
const FLUSH_PERIOD: Duration = Duration::from_secs(60);

/// The interval at which changes are written to the tables if they are few: it frees their memory,
/// and bounds the log that the next start replays.
const CHECKPOINT_PERIOD: Duration = Duration::from_secs(10);

/// While the disk is full, history is compacted after this number of attempts to accept values again,
/// which is 30 s, whatever the interval is: history is what uses space without need.
const RECLAIMS_PER_COMPACTION: u64 = 6;

/// The delay after an open before the rest of the data file is verified, so that the caches are
/// filled first.
const VERIFICATION_DELAY: Duration = Duration::from_secs(10);

/// The part of the data file that is verified in one step: less than a millisecond if the file is in
/// the page cache of the system.
const VERIFICATION_BYTES: usize = 1 << 20;

/// The pause between two parts, which leaves the disk and the processor to requests: a GiB takes
/// about ten seconds.
const VERIFICATION_PAUSE: Duration = Duration::from_millis(10);

/// The delay after a failed round of expiry.
const EXPIRY_RETRY: Duration = Duration::from_secs(10);

impl Embedded {
    /// Runs until `cancel`, then flushes.
    pub(super) async fn maintain_until(&self, cancel: CancellationToken) {
        let mut compaction = timer(match self.config.retention {
            Some(retention) => retention_period(&retention),
            None => self.config.compaction_interval,
        });
        let mut flush = match self.config.durability {
            Durability::Interval(period) => timer(period),
            Durability::None => timer(FLUSH_PERIOD),
            Durability::Fsync => None,
        };
        let mut checkpoint = timer(CHECKPOINT_PERIOD);
        let mut sample = timer(SAMPLE_PERIOD);
        self.sample_revision().await;
        let mut reclaim = timer(REOPEN_PAUSE);
        let (mut reclaims, mut remembered_full) = (0_u64, None);
        let mut verification = self.data.is_unverified().then_some(0);
        let mut verify_at = Instant::now() + VERIFICATION_DELAY;
        let mut remembered = None;
        let mut not_before = Instant::now();
        let mut reopen_at = None;
        loop {
            // Cancellation first, then recovery. Flushing, compaction and parts of the verification
            // are rare and short, so expiry, which may be busy for a long time, comes last.
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                () = self.reopening_due(&mut reopen_at) => {
                    reopen_at = None;
                    // The opened file was verified completely, or nothing of it was.
                    if self.execute(Op::Reopen).await.is_ok() {
                        verification = self.data.is_unverified().then_some(0);
                    }
                }
                // The failure was logged, and there is nothing to flush.
                () = tick(&mut flush) => if self.status.failed().is_none() {
                    self.flush(Op::Flush).await;
                },
                () = tick(&mut checkpoint) => {
                    if self.data.has_changes() {
                        self.begin_checkpoint().await;
                    }
                    if self.data.is_sparse(SHRINK_LIVE_MAX).unwrap_or(false) {
                        // A failure was logged, and the store is opened again.
                        drop(self.execute(Op::Shrink).await);
                    }
                }
                () = tick(&mut reclaim), if self.status.is_no_space.load(Ordering::Relaxed) => {
                    reclaims += 1;
                    if compaction.is_some() && reclaims % RECLAIMS_PER_COMPACTION == 0 {
                        remembered_full = self.compact_round(remembered_full).await;
                    }
                    // A failure was logged, and the store is opened again.
                    drop(self.execute(Op::Reclaim).await);
                }
                () = tick(&mut sample) => self.sample_revision().await,
                () = tick(&mut compaction) => match self.config.retention {
                    Some(retention) => self.compact_retained(&retention).await,
                    None => remembered = self.compact_round(remembered).await,
                },
                () = sleep_until(verify_at), if verification.is_some() => {
                    let next = self.verify_part(verification.unwrap_or_default()).await;
                    let pause = match next == verification {
                        true => REOPEN_PAUSE,
                        false => VERIFICATION_PAUSE,
                    };
                    verification = next;
                    verify_at = Instant::now() + pause;
                }
                () = self.deadline(not_before) => {
                    let pause = self.expire_round().await;
                    not_before = Instant::now() + pause;
                }
            }
        }
        self.sample_revision().await;
        self.flush(Op::FlushAndLowerCeiling).await;
    }

    /// Waits until a failed store should be opened again. `at` retains that time across calls,
    /// because other branches, such as a flush each second, end the wait.
    async fn reopening_due(&self, at: &mut Option<Instant>) {
        while self.status.failed().is_none() {
            *at = None;
            self.status.has_failed.notified().await;
        }
        sleep_until(*at.get_or_insert_with(|| Instant::now() + REOPEN_PAUSE)).await;
    }

    async fn flush(&self, how: impl FnOnce(Reply<()>) -> Op) {
        if let Err(error) = self.execute(how).await {
            tracing::error!(error = %error, "cannot flush the store");
        }
    }

    /// Begins a checkpoint in the background.
    async fn begin_checkpoint(&self) {
        if let Some(queue) = &self.queue
            && queue.send(Op::Checkpoint).await.is_err()
        {
            tracing::error!("cannot checkpoint the store: its writer has ended");
        }
    }

    /// Compacts at `remembered`, the revision of the previous round, and returns the current one.
    async fn compact_round(&self, remembered: Option<ResourceVersion>) -> Option<ResourceVersion> {
        if let Some(at) = remembered {
            self.compact_and_log(at).await;
        }
        match self.data.newest().map(ResourceVersion::new) {
            Ok(revision) => Some(revision),
            Err(error) => {
                tracing::error!(error = %error, "cannot read the store's revision");
                None
            }
        }
    }

    /// Compacts at `at`, and logs a failure.
    pub(super) async fn compact_and_log(&self, at: ResourceVersion) {
        match self.compact(at).await {
            Ok(()) => {
                self.times.compacted(at);
                tracing::debug!(revision = at.get(), "compacted");
            }
            // A client has compacted at a later revision.
            Err(StorageError::Compacted { .. }) => {}
            Err(error) => tracing::error!(error = %error, "cannot compact the store"),
        }
    }

    /// Verifies a part of the data file from `offset` on, also pages that no read needs. Returns the
    /// offset of the next part, which is `offset` if the file is not open now; `None` at the end of
    /// the file and after a failure.
    pub(super) async fn verify_part(&self, offset: u64) -> Option<u64> {
        let data = self.data.clone();
        let verify = move || data.verify(offset, VERIFICATION_BYTES);
        match self.tasks.spawn_blocking("verify", verify).await {
            Ok(Ok(next)) => {
                if next.is_none() {
                    tracing::debug!("verified the data file of the store");
                }
                next
            }
            // Being opened again after a failure.
            Ok(Err(Fault::Storage(StorageError::Unavailable(_)))) => Some(offset),
            Ok(Err(fault)) => {
                // Records and logs it: a store with a damaged page accepts no writes. After an error of
                // the system the file is opened again, and `maintain_until` begins again.
                drop(self.status.fail(fault, self.data.name()));
                None
            }
            Err(error) => {
                tracing::error!(%error, "cannot verify the data file of the store");
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
            // An earlier deadline restarts the wait; the order of the two does not matter.
            tokio::select! {
                biased;
                () = self.status.deadline_changed.notified() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Deletes some of the expired keys and returns the delay until the next round.
    async fn expire_round(&self) -> Duration {
        let now_ms = self.clock.now_ms();
        match self.execute(|reply| Op::Expire(now_ms, reply)).await {
            Ok(0) => EXPIRY_PAUSE,
            Ok(count) => {
                tracing::debug!(count, "expired keys");
                EXPIRY_PAUSE
            }
            Err(error) => {
                tracing::error!(error = %error, "cannot expire keys");
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

/// Waits for the next tick; forever without a timer.
async fn tick(timer: &mut Option<Interval>) {
    match timer {
        Some(timer) => drop(timer.tick().await),
        None => std::future::pending().await,
    }
}

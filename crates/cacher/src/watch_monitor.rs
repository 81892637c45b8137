//! `WatchMonitor`: reads what a watch does and how far it is behind, while another task owns the watch. The watch stores its
//! progress in atomics; everything else is computed when it is read.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::backfill::Backfill;
use super::inbox::{Inbox, QueuedEvents};
use super::snapshot::Snapshot;
use super::watch_cache::Published;
use super::watch_status::{WatchLag, WatchPhase, WatchStatus};
use watchet_api::ResourceVersion;

/// The progress of a watch, written by the watch only.
#[derive(Debug)]
pub(super) struct WatchProgress {
    position: AtomicU64,
    /// An index of [`WatchPhase::ALL`].
    phase: AtomicU8,
    /// The present inbox, if the watch is or was live.
    inbox: Mutex<Weak<Inbox>>,
}

impl WatchProgress {
    pub(super) fn new(position: ResourceVersion, phase: WatchPhase) -> Arc<Self> {
        Arc::new(Self {
            position: AtomicU64::new(position.get()),
            phase: AtomicU8::new(phase as u8),
            inbox: Mutex::default(),
        })
    }

    /// Stores the present position.
    pub(super) fn set_position(&self, position: ResourceVersion) {
        self.position.store(position.get(), Ordering::Relaxed);
    }

    /// Stores the present phase.
    pub(super) fn set_phase(&self, phase: WatchPhase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Stores the inbox with which the watch joined the live watches.
    pub(super) fn joined(&self, inbox: &Arc<Inbox>) {
        *self.inbox.lock() = Arc::downgrade(inbox);
    }

    fn phase(&self) -> WatchPhase {
        WatchPhase::ALL[usize::from(self.phase.load(Ordering::Relaxed))]
    }

    pub(super) fn position(&self) -> ResourceVersion {
        ResourceVersion::new(self.position.load(Ordering::Relaxed))
    }
}

/// Reads the state of one watch.
#[derive(Debug, Clone)]
pub struct WatchMonitor {
    pub(super) progress: Arc<WatchProgress>,
    pub(super) generation: u64,
    pub(super) published: Arc<Published>,
    pub(super) backfill: Arc<Backfill>,
}

impl WatchMonitor {
    /// Returns the present state.
    pub fn status(&self) -> WatchStatus {
        let (phase, position) = (self.progress.phase(), self.progress.position());
        let of = |phase, lag| WatchStatus {
            phase,
            position,
            lag,
        };
        let inbox = self.progress.inbox.lock().upgrade();
        let queued = inbox.map(|inbox| inbox.queued());
        match (phase, queued) {
            (WatchPhase::Ended, _) => of(WatchPhase::Ended, WatchLag::default()),
            (WatchPhase::Live, Some(QueuedEvents::Live(lag))) => of(WatchPhase::Live, lag),
            (WatchPhase::Live, _) => self.behind(WatchPhase::Parked, position),
            (phase, _) => self.behind(phase, position),
        }
    }

    /// Returns the state of a watch in `phase` whose next events are those of history after `position`.
    fn behind(&self, phase: WatchPhase, position: ResourceVersion) -> WatchStatus {
        let snapshot = self.published.snapshot.load();
        let lag = snapshot
            .as_ref()
            .and_then(|snapshot| self.lag_in(snapshot, position));
        let phase = match lag {
            // Without a snapshot, the watch waits for the first list of the cache.
            None if snapshot.is_some() => WatchPhase::Expired,
            _ => phase,
        };
        WatchStatus {
            phase,
            position,
            lag: lag.unwrap_or_default(),
        }
    }

    /// Returns the lag of a watch at `position`; `None` if neither `snapshot` nor the backfill has its next events.
    fn lag_in(&self, snapshot: &Snapshot, position: ResourceVersion) -> Option<WatchLag> {
        if snapshot.generation != self.generation {
            return None;
        }
        let (missing, oldest) = match snapshot.events_after(position) {
            Ok(mut events) => (events.len(), events.next().map(|event| event.received.at)),
            Err(too_old) => {
                let (older, _) = self
                    .backfill
                    .events_after(position, self.generation, too_old.0)
                    .ok()?;
                // The age of an event from before the start counts from the time at which the cache read it.
                let first = older.iter().next().map(|event| event.received.at);
                (older.iter().count() + snapshot.history_len(), first)
            }
        };
        let events = snapshot.history_len().max(1);
        Some(WatchLag {
            events: missing,
            bytes: snapshot.history_bytes() / events * missing,
            since: oldest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch_cache::Published;

    /// The phases that a watch stores have numbers, and the others are computed.
    #[test]
    fn stored_phases_survive_the_round_trip() {
        let monitor = |phase| {
            let progress = WatchProgress::new(ResourceVersion::new(1), WatchPhase::Live);
            progress.set_position(ResourceVersion::new(7));
            progress.set_phase(phase);
            WatchMonitor {
                progress,
                generation: 0,
                published: Arc::new(Published::new()),
                backfill: Backfill::new(),
            }
        };
        for phase in [
            WatchPhase::Initial,
            WatchPhase::CatchingUp,
            WatchPhase::Ended,
        ] {
            let status = monitor(phase).status();
            assert_eq!((status.phase, status.position.get()), (phase, 7));
            assert_eq!(status.lag, WatchLag::default());
        }
        // A live watch whose inbox is gone has been parked by a relist.
        assert_eq!(monitor(WatchPhase::Live).status().phase, WatchPhase::Parked);
    }
}

//! `WatchMonitor`: shows what a watch does and how far it is behind, while its client owns it. The watch writes its
//! progress into atomics; everything else is computed when it is read.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::backfill::Backfill;
use super::inbox::{Inbox, QueuedEvents};
use super::snapshot::Snapshot;
use super::watch_cache::Published;
use watchet_api::ResourceVersion;

/// What a watch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchPhase {
    /// It sends the initial state.
    Initial,
    /// It reads the event history, because it resumes or was parked, and its client reads.
    CatchingUp,
    /// It receives each event when it happens.
    Live,
    /// It left the live watches because its client reads too slowly. It continues from the event history when its client
    /// reads again.
    Parked,
    /// The event history no longer has its position: it gets a 410 when its client reads again.
    Expired,
    /// It has ended.
    Ended,
}

impl WatchPhase {
    /// The phases that a watch stores itself, by number.
    const STORED: [Self; 4] = [Self::Initial, Self::CatchingUp, Self::Live, Self::Ended];

    /// Returns the name: `CatchingUp`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "Initial",
            Self::CatchingUp => "CatchingUp",
            Self::Live => "Live",
            Self::Parked => "Parked",
            Self::Expired => "Expired",
            Self::Ended => "Ended",
        }
    }
}

/// The state of a watch at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchStatus {
    /// What it does.
    pub phase: WatchPhase,
    /// The version up to which its events were passed to the connection.
    pub position: ResourceVersion,
    /// How far it is behind the cache.
    pub lag: WatchLag,
}

/// How far a watch is behind its cache. A live watch counts the selected events in its inbox. Otherwise all events of the
/// resource after the position count, because it is not known yet which of them are selected, and `bytes` is estimated
/// from the average event in history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchLag {
    /// The number of events.
    pub events: usize,
    /// Their memory in bytes.
    pub bytes: usize,
    /// When the cache applied the oldest of them; `None` if there are none.
    pub since: Option<Instant>,
}

/// The progress of a watch, written by the watch only.
#[derive(Debug)]
pub(super) struct WatchProgress {
    position: AtomicU64,
    /// An index of [`WatchPhase::STORED`].
    phase: AtomicU8,
    /// The present inbox, if the watch is or was live.
    inbox: Mutex<Weak<Inbox>>,
}

impl WatchProgress {
    pub(super) fn new(position: ResourceVersion) -> Arc<Self> {
        Arc::new(Self {
            position: AtomicU64::new(position.get()),
            phase: AtomicU8::new(0),
            inbox: Mutex::default(),
        })
    }

    /// Stores the present position and phase, one of [`WatchPhase::STORED`].
    pub(super) fn record(&self, position: ResourceVersion, phase: WatchPhase) {
        let number = WatchPhase::STORED.iter().position(|known| *known == phase);
        debug_assert!(number.is_some(), "{phase:?} is computed");
        let number = u8::try_from(number.unwrap_or_default()).unwrap_or_default();
        self.position.store(position.get(), Ordering::Relaxed);
        self.phase.store(number, Ordering::Relaxed);
    }

    /// Stores the inbox that the watch has joined the live watches with.
    pub(super) fn joined(&self, inbox: &Arc<Inbox>) {
        *self.inbox.lock() = Arc::downgrade(inbox);
    }

    fn phase(&self) -> WatchPhase {
        WatchPhase::STORED[usize::from(self.phase.load(Ordering::Relaxed))]
    }

    fn position(&self) -> ResourceVersion {
        ResourceVersion::new(self.position.load(Ordering::Relaxed))
    }
}

/// Shows the state of one watch.
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
            // Without a state the watch waits for the first list.
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
                // An event from before the start counts from the time at which it was read.
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
            let progress = WatchProgress::new(ResourceVersion::new(1));
            progress.record(ResourceVersion::new(7), phase);
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

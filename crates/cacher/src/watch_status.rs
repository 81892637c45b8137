//! What a watch does, and how far it is behind.

use tokio::time::Instant;

use watchet_api::ResourceVersion;

/// What a watch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchPhase {
    /// It sends the initial state.
    Initial,
    /// It sends events of the history, because it resumes or was parked.
    CatchingUp,
    /// It sends each event when it happens.
    Live,
    /// Its client reads too slowly, so that it is no longer among the live watches. It continues from the event history when
    /// its client reads again.
    Parked,
    /// The event history no longer has its position: it gets a 410 when its client reads again.
    Expired,
    /// It has ended.
    Ended,
}

impl WatchPhase {
    /// All phases by number. A watch stores neither `Parked` nor `Expired`, which are computed.
    pub(super) const ALL: [Self; 6] = [
        Self::Initial,
        Self::CatchingUp,
        Self::Live,
        Self::Parked,
        Self::Expired,
        Self::Ended,
    ];

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
    /// What the watch does.
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

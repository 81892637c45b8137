//! The known bugs that a simulation can plant into the servers or into the simulated etcd cluster, to show that it finds
//! them.

pub use watchet_api::planted_bug::{PlantedBug, plant};

use watchet_api::planted_bug::is_planted;

use crate::etcd;

/// What is known of a bug.
#[derive(Debug, Clone, Copy)]
pub struct KnownBug {
    /// The bug.
    pub bug: PlantedBug,
    /// The name for `simulate --bug`.
    pub name: &'static str,
    /// The issue, or the commit that corrected or avoided it.
    pub link: &'static str,
    /// What a client sees.
    pub symptom: &'static str,
    /// A seed that finds it and is clean without it.
    pub seed: u64,
}

macro_rules! known {
    ($($bug:ident, $name:literal, $link:literal, $seed:expr, $symptom:literal;)*) => {
        &[$(KnownBug {
            bug: PlantedBug::$bug,
            name: $name,
            link: $link,
            symptom: $symptom,
            seed: $seed,
        }),*]
    };
}

/// All bugs.
pub const KNOWN_BUGS: &[KnownBug] = known! {
    EventWithoutPreviousValue, "event-without-previous-value", "https://github.com/kubernetes/kubernetes/issues/123072", 103,
        "Kubernetes: a change without its previous value in etcd is dropped";
    WatchDuringRelist, "watch-during-relist", "https://github.com/kubernetes/kubernetes/pull/116172", 46,
        "Kubernetes: a watch that begins during a relist misses events";
    EmptyHistoryOffByOne, "empty-history-off-by-one", "https://github.com/kubernetes/kubernetes/pull/49992", 3,
        "Kubernetes: a watch from the revision before the first list misses an event";
    EventsSentTwice, "events-sent-twice", "https://github.com/kubernetes/kubernetes/pull/73845", 4,
        "Kubernetes: a watch goes back in time";
    DeletionAtOldVersion, "deletion-at-old-version", "https://github.com/kubernetes/kubernetes/pull/58547", 1,
        "Kubernetes: a DELETED event has the version of the last update";
    ProgressAheadOfEvents, "progress-ahead-of-events", "https://github.com/etcd-io/etcd/issues/15220", 2,
        "etcd: progress is reported before the events up to it";
    SlowWatchSkipsEvents, "slow-watch-skips-events", "https://github.com/etcd-io/etcd/issues/17529", 368,
        "etcd: a slow watch skips events that were compacted";
    DeletionLostByCompaction, "deletion-lost-by-compaction", "https://github.com/etcd-io/etcd/issues/18089", 5,
        "etcd: a watch from the compacted revision misses its deletions";
    DeletionLostByRestart, "deletion-lost-by-restart", "https://github.com/etcd-io/etcd/issues/19179", 5,
        "etcd: a watch from the compacted revision misses its deletions after a restart";
    ProgressBeforeStart, "progress-before-start", "https://github.com/etcd-io/etcd/issues/20221", 345,
        "etcd: a watch from a future revision reports earlier progress";
    AcknowledgedBeforeSync, "acknowledged-before-sync", "commit 3dfc06d0", 3,
        "embedded store: a power failure loses acknowledged writes";
    RelistContinuesWatches, "relist-continues-watches", "commit 480d8d55", 4,
        "watch cache: watches continue after a relist that follows lost history";
    BookmarkAheadOfEvents, "bookmark-ahead-of-events", "commit 7cad8b64", 203,
        "watch cache: a bookmark precedes events of earlier versions";
    ProbeAlreadySent, "probe-already-sent", "commit e2281cb7", 775,
        "watch cache: a consistent read uses a revision from before it began";
    RevisionCut, "revision-cut", "commit 44969959", 1,
        "watch cache: only the first event of a transaction is delivered";
};

/// Returns the bug of etcd that was planted into this process, for the configuration of the cluster.
pub(crate) fn planted_into_etcd() -> Option<etcd::PlantedBug> {
    let bugs = [
        (
            PlantedBug::ProgressAheadOfEvents,
            etcd::PlantedBug::ProgressAheadOfEvents,
        ),
        (
            PlantedBug::SlowWatchSkipsEvents,
            etcd::PlantedBug::SlowWatchSkipsEvents,
        ),
        (
            PlantedBug::DeletionLostByCompaction,
            etcd::PlantedBug::DeletionLostByCompaction,
        ),
        (
            PlantedBug::DeletionLostByRestart,
            etcd::PlantedBug::DeletionLostByRestart,
        ),
        (
            PlantedBug::ProgressBeforeStart,
            etcd::PlantedBug::ProgressBeforeStart,
        ),
    ];
    let planted = bugs.into_iter().find(|(bug, _)| is_planted(*bug));
    planted.map(|(_, bug)| bug)
}

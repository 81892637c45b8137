//! Bugs that a simulation plants into the program, to show that its checks find them. Only in builds with the feature
//! `planted-bugs`, which no release has.

use std::sync::atomic::{AtomicU8, Ordering};

/// A published bug, of Kubernetes, of etcd, or of an earlier version of this project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum PlantedBug {
    /// A change whose previous value etcd no longer has is dropped: the cache, and each client, keeps an object that was
    /// deleted ([kubernetes#123072](https://github.com/kubernetes/kubernetes/issues/123072)).
    EventWithoutPreviousValue = 1,
    /// A watch that begins while the cache is initialized again continues without the events in between
    /// ([kubernetes#116172](https://github.com/kubernetes/kubernetes/pull/116172)).
    WatchDuringRelist,
    /// While the history of a cache is empty, a watch from the revision before the first list is accepted, and misses the
    /// event at that of the list ([kubernetes#49992](https://github.com/kubernetes/kubernetes/pull/49992)).
    EmptyHistoryOffByOne,
    /// A watch receives events again that it has received from history, and goes back in time
    /// ([kubernetes#73845](https://github.com/kubernetes/kubernetes/pull/73845)).
    EventsSentTwice,
    /// A DELETED event has the resourceVersion of the last update instead of that of the deletion
    /// ([kubernetes#58547](https://github.com/kubernetes/kubernetes/pull/58547)).
    DeletionAtOldVersion,
    /// etcd responds to a progress request before it has sent the events up to that revision, and its version does not
    /// show it: a consistent read is stale ([etcd#15220](https://github.com/etcd-io/etcd/issues/15220)).
    ProgressAheadOfEvents,
    /// A slow watch of etcd whose next revision was compacted continues without the events in between
    /// ([etcd#17529](https://github.com/etcd-io/etcd/issues/17529)).
    SlowWatchSkipsEvents,
    /// A watch of etcd from the compacted revision misses the deletions of that revision, and the server does not check that
    /// the revision before the watch still exists ([etcd#18089](https://github.com/etcd-io/etcd/issues/18089)).
    DeletionLostByCompaction,
    /// As [`Self::DeletionLostByCompaction`], but only after a restart of an etcd member
    /// ([etcd#19179](https://github.com/etcd-io/etcd/issues/19179)).
    DeletionLostByRestart,
    /// A watch of etcd from a future revision receives progress responses with earlier revisions. The server neither waits
    /// for a member that lags behind nor ignores such a response, and the task of its cache panics as before commit `49c67e27`
    /// ([etcd#20221](https://github.com/etcd-io/etcd/issues/20221)).
    ProgressBeforeStart,
    /// The embedded store acknowledges writes whose frames are in the log, but not synced: a power failure loses them. The
    /// log was nearly so, as its sync is the cost of a write (commit `3dfc06d0`).
    AcknowledgedBeforeSync,
    /// Watches continue after a list that follows lost history, and miss the events in between without a 410 (similar to
    /// commit `480d8d55`).
    RelistContinuesWatches,
    /// A bookmark has the version of the cache, although events up to it are still to be sent: a client that resumes there
    /// misses them (commit `7cad8b64`).
    BookmarkAheadOfEvents,
    /// A consistent read uses the response of a request for etcd's revision that was sent before the read began, and is
    /// stale (commit `e2281cb7`).
    ProbeAlreadySent,
    /// Of several events of one revision, such as those of a transaction, only the first is delivered (commit `44969959`).
    RevisionCut,
}

/// The bug of this process; 0 if there is none.
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug into this process, in place of an earlier one.
pub fn plant(bug: PlantedBug) {
    PLANTED.store(bug as u8, Ordering::Relaxed);
}

/// Returns true if `bug` was planted.
pub fn is_planted(bug: PlantedBug) -> bool {
    PLANTED.load(Ordering::Relaxed) == bug as u8
}

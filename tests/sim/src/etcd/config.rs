//! The configuration of the simulated cluster, and the bugs of etcd that it can reproduce.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Receives one line for each request and response of the cluster, with the virtual time since the start.
pub type Observer = Arc<dyn Fn(&str) + Send + Sync>;

/// The configuration of a [`Cluster`](super::Cluster).
#[derive(Clone)]
pub struct Config {
    /// The number of members, at least 1.
    pub members: usize,
    /// The version that `Maintenance.Status` reports. The answers are those of the version where 3.5, 3.6
    /// and 3.7 differ.
    pub version: String,
    /// The interval of progress notifications of watches with `progress_notify`
    /// (`--watch-progress-notify-interval`).
    pub progress_notify_interval: Duration,
    /// A member that misses more log entries than this receives a snapshot instead of the entries; its watches then
    /// catch up, and those below the compacted revision are canceled.
    pub snapshot_entries: usize,
    /// The number of responses that a watch stream holds for a client that does not read. The watches of a full stream
    /// catch up later from the store, and are canceled if their next revision was compacted in between.
    pub stream_responses_max: usize,
    /// Bugs that the cluster reproduces.
    pub bugs: BTreeSet<PlantedBug>,
    /// Receives the trace of messages, if set.
    pub observer: Option<Observer>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            members: 3,
            version: "3.6.4".into(),
            progress_notify_interval: Duration::from_secs(600),
            snapshot_entries: 5000,
            stream_responses_max: 128,
            bugs: BTreeSet::new(),
            observer: None,
        }
    }
}

impl Config {
    /// Returns true if the version is this minor version or a later one.
    pub(super) fn is_at_least(&self, major: u32, minor: u32) -> bool {
        let mut parts = self.version.split('.').map(str::parse::<u32>);
        let mut next = || parts.next().and_then(Result::ok).unwrap_or(0);
        (next(), next()) >= (major, minor)
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("members", &self.members)
            .field("version", &self.version)
            .field("bugs", &self.bugs)
            .finish_non_exhaustive()
    }
}

/// A bug of etcd as a client sees it. A test of an oracle or of a client turns it on to check that it is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PlantedBug {
    /// A progress response that the client requested has the member's revision and arrives before events up to that
    /// revision, while the watch catches up or its events are queued
    /// ([etcd#15220](https://github.com/etcd-io/etcd/issues/15220), fixed in 3.5.8).
    ProgressAheadOfEvents,
    /// A slow watch whose next revision was compacted continues with later events and misses those in between, instead
    /// of being canceled with the compacted revision
    /// ([etcd#17529](https://github.com/etcd-io/etcd/issues/17529), fixed in 3.5.13).
    SlowWatchSkipsEvents,
    /// A watch that starts at the compacted revision misses the deletions of that revision
    /// ([etcd#18089](https://github.com/etcd-io/etcd/issues/18089)).
    DeletionLostByCompaction,
    /// After a restart of a member, a watch that starts at the compacted revision misses deletions of that revision
    /// which are older than the restart, because the restart has dropped their tombstones
    /// ([etcd#19179](https://github.com/etcd-io/etcd/issues/19179)).
    DeletionLostByRestart,
    /// A watch from a future revision, at a member that lags behind the one that returned the revision, receives
    /// progress responses with earlier revisions than its start
    /// ([etcd#20221](https://github.com/etcd-io/etcd/issues/20221), fixed in 3.5.22 and 3.6.2).
    ProgressBeforeStart,
}

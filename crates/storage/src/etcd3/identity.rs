//! Whether the etcd that responds is the one that responded before, or has been replaced, in most cases restored from a
//! backup. Its revisions then go back, or continue with other contents. `restored` advances it past the lost revisions.

use parking_lot::Mutex;
use watchet_api::ResourceVersion;
use watchet_metrics::LogInterval;

/// What a server stores of an etcd for its next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastSeen {
    /// The ID of the cluster; zero if it is unknown.
    pub(super) cluster: u64,
    /// The latest revision that clients may have received.
    pub(super) revision: ResourceVersion,
}

/// The state before a linearizable read, for [`ClusterIdentity::record_read`].
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadStart {
    incarnation: u64,
    reached: ResourceVersion,
}

/// What is known about the cluster.
#[derive(Debug)]
pub(super) struct ClusterIdentity {
    state: Mutex<State>,
    /// Endpoints of different clusters, which is an error of the configuration, alternate.
    log: LogInterval,
}

impl Default for ClusterIdentity {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            log: LogInterval::growing(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// The ID of the cluster; zero before the first response.
    cluster: u64,
    /// The IDs of earlier clusters.
    replaced: Vec<u64>,
    /// The latest revision of a linearizable read, a write or a watch.
    reached: ResourceVersion,
    incarnation: u64,
    /// The latest revision of the replaced etcd, until [`ClusterIdentity::record_advance`].
    lost: Option<ResourceVersion>,
}

impl ClusterIdentity {
    /// Returns the number of times that etcd has been replaced.
    pub(super) fn incarnation(&self) -> u64 {
        self.state.lock().incarnation
    }

    /// Records the cluster ID and the revision in the status of a member that has a leader; an ID of zero is ignored. A restore
    /// with another `--initial-cluster-token` or other peer URLs has another ID. With the same ones only the revision shows
    /// it, in a linearizable read: a member may lag behind.
    pub(super) fn record_status(&self, cluster: u64, revision: ResourceVersion) {
        let mut state = self.state.lock();
        if cluster == 0 {
            return;
        }
        if cluster == state.cluster {
            state.reached = state.reached.max(revision);
            return;
        }
        let before = std::mem::replace(&mut state.cluster, cluster);
        if before == 0 {
            return;
        }
        // An earlier cluster that returns was not restored: the endpoints belong to different clusters.
        let is_new = !state.replaced.contains(&cluster);
        if !state.replaced.contains(&before) {
            state.replaced.push(before);
        }
        state.replace(ResourceVersion::ZERO, is_new);
        if self.log.next().is_some() {
            let (cluster, before) = (format!("{cluster:x}"), format!("{before:x}"));
            match is_new {
                true => tracing::warn!(cluster, before, "{REPLACED}"),
                false => tracing::error!(cluster, before, "{ALTERNATING}"),
            }
        }
    }

    /// Returns the state before a linearizable read.
    pub(super) fn read_start(&self) -> ReadStart {
        let state = self.state.lock();
        ReadStart {
            incarnation: state.incarnation,
            reached: state.reached,
        }
    }

    /// Records the revision of a linearizable read that began at `start`, and detects that etcd was replaced by an earlier
    /// state. Returns true if it was replaced during the read: then the result must not be used, because its revision may
    /// be used again for another state.
    pub(super) fn record_read(&self, start: ReadStart, revision: ResourceVersion) -> bool {
        let mut state = self.state.lock();
        if start.incarnation != state.incarnation {
            return true;
        }
        let is_earlier = revision < start.reached;
        if is_earlier {
            let reached = state.reached;
            state.replace(revision, true);
            if self.log.next().is_some() {
                tracing::warn!(%revision, before = %reached, "{REPLACED}");
            }
        } else {
            state.reached = state.reached.max(revision);
        }
        is_earlier
    }

    /// Records the revision of a batch of a watch that was opened in `incarnation`. Returns false if etcd has been replaced
    /// since.
    pub(super) fn record_batch(&self, incarnation: u64, revision: ResourceVersion) -> bool {
        let mut state = self.state.lock();
        let is_current = incarnation == state.incarnation;
        if is_current {
            state.reached = state.reached.max(revision);
        }
        is_current
    }

    /// Sets what an earlier process has seen. The present cluster has responded already.
    pub(super) fn resume(&self, last_seen: LastSeen) {
        let present = {
            let mut state = self.state.lock();
            state.reached = state.reached.max(last_seen.revision);
            match last_seen.cluster {
                0 => return,
                cluster => std::mem::replace(&mut state.cluster, cluster),
            }
        };
        // As if the cluster had changed just now.
        self.record_status(present, ResourceVersion::ZERO);
    }

    /// Returns what the next process must know to detect a replacement.
    pub(super) fn last_seen(&self) -> LastSeen {
        let state = self.state.lock();
        LastSeen {
            cluster: state.cluster,
            revision: state.reached.max(state.lost.unwrap_or_default()),
        }
    }

    /// Returns the latest revision that was read, written or watched.
    pub(super) fn reached(&self) -> ResourceVersion {
        self.state.lock().reached
    }

    /// Returns the latest revision of the replaced etcd, if the present one must still be advanced past it.
    pub(super) fn lost(&self) -> Option<ResourceVersion> {
        self.state.lock().lost
    }

    /// Records that etcd was advanced past `lost`, to `revision`.
    pub(super) fn record_advance(&self, lost: ResourceVersion, revision: ResourceVersion) {
        let mut state = self.state.lock();
        state.reached = state.reached.max(revision);
        // A further replacement meanwhile may have lost more.
        state.lost = state.lost.filter(|now| *now > lost);
    }
}

impl State {
    fn replace(&mut self, reached: ResourceVersion, is_lost: bool) {
        if is_lost {
            self.lost = self.lost.max(Some(self.reached));
        }
        self.reached = reached;
        self.incarnation += 1;
    }
}

/// The message about a replaced etcd.
const REPLACED: &str = "etcd was replaced by another state, probably restored from a backup: its revision is advanced past \
                        the lost revisions, and clients list again";

/// The message about endpoints of different clusters.
const ALTERNATING: &str =
    "--etcd-servers has endpoints of different etcd clusters: remove those of all clusters but one";

#[cfg(test)]
mod tests {
    use super::*;

    fn at(revision: u64) -> ResourceVersion {
        ResourceVersion::new(revision)
    }

    fn last_seen(cluster: u64, revision: u64) -> LastSeen {
        let revision = at(revision);
        LastSeen { cluster, revision }
    }

    #[test]
    fn another_cluster_or_an_earlier_revision_is_another_incarnation() {
        let identity = ClusterIdentity::default();
        identity.record_status(7, ResourceVersion::ZERO);
        identity.record_status(7, ResourceVersion::ZERO);
        identity.record_status(0, ResourceVersion::ZERO);
        let earliest = identity.read_start();
        assert!(!identity.record_read(identity.read_start(), at(10)));
        assert_eq!(identity.incarnation(), 0);
        // A read that began earlier and ends later is not a sign of anything.
        assert!(!identity.record_read(earliest, at(9)));
        let (first, second) = (identity.read_start(), identity.read_start());
        assert!(identity.record_read(first, at(5)));
        // Of a read that began before, it is unknown which state it has read.
        assert!(identity.record_read(second, at(5)), "to be repeated");
        assert!(identity.record_read(earliest, at(12)), "to be repeated");
        assert_eq!(identity.incarnation(), 1, "noticed once");
        assert!(!identity.record_read(identity.read_start(), at(6)));
        assert!(!identity.record_batch(0, at(100)), "of the replaced one");
        assert!(identity.record_batch(1, at(7)));
        assert_eq!(identity.reached(), at(7));
        identity.record_status(8, ResourceVersion::ZERO);
        assert_eq!(identity.incarnation(), 2);
    }

    #[test]
    fn the_latest_lost_revision_is_known_until_etcd_is_past_it() {
        let identity = ClusterIdentity::default();
        identity.record_status(7, ResourceVersion::ZERO);
        identity.resume(last_seen(7, 10));
        assert_eq!(identity.lost(), None);
        assert!(identity.record_read(identity.read_start(), at(5)));
        assert_eq!(identity.lost(), Some(at(10)));
        assert_eq!(identity.last_seen(), last_seen(7, 10), "for the next start");
        // The second of two replacements does not forget what the first one lost.
        assert!(identity.record_read(identity.read_start(), at(3)));
        assert_eq!(identity.lost(), Some(at(10)));
        identity.record_advance(at(9), at(11));
        assert_eq!(identity.lost(), Some(at(10)));
        identity.record_advance(at(10), at(12));
        assert_eq!((identity.lost(), identity.reached()), (None, at(12)));
    }

    #[test]
    fn another_cluster_than_at_the_last_end_of_the_process_is_a_replacement() {
        let identity = ClusterIdentity::default();
        identity.record_status(8, ResourceVersion::ZERO);
        identity.resume(last_seen(7, 10));
        assert_eq!(identity.lost(), Some(at(10)));
        let unknown = ClusterIdentity::default();
        unknown.record_status(8, ResourceVersion::ZERO);
        unknown.resume(last_seen(0, 10));
        assert_eq!((unknown.lost(), unknown.reached()), (None, at(10)));
    }

    /// Each change of the ID advanced and compacted the cluster that responded, as long as the endpoints alternated.
    #[test]
    fn endpoints_of_different_clusters_lose_revisions_once() {
        let identity = ClusterIdentity::default();
        identity.record_status(7, ResourceVersion::ZERO);
        assert!(identity.record_batch(0, at(10)));
        identity.record_status(8, ResourceVersion::ZERO);
        assert_eq!(identity.lost(), Some(at(10)));
        identity.record_advance(at(10), at(11));
        for cluster in [7, 8, 7] {
            assert!(identity.record_batch(identity.incarnation(), at(20)));
            identity.record_status(cluster, ResourceVersion::ZERO);
            assert_eq!(identity.lost(), None);
        }
        assert_eq!(identity.incarnation(), 4);
    }
}

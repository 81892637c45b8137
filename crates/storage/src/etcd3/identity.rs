//! Whether the etcd that responds is the one that responded before, or has been replaced by another one, in
//! most cases restored from a backup. Its revisions then go back, or continue with other contents; `restored` prevents that.

use parking_lot::Mutex;
use watchet_api::ResourceVersion;
use watchet_metrics::LogInterval;

/// What a server knows of an etcd when its process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownCluster {
    /// The ID of the cluster; zero if it is unknown.
    pub(super) cluster: u64,
    /// The latest revision that clients may have received.
    pub(super) reached: ResourceVersion,
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
    /// The latest revision of a linearizable read, a write or a watch.
    reached: ResourceVersion,
    incarnation: u64,
    /// The latest revision of the replaced etcd, until [`ClusterIdentity::record_recovery`].
    lost: Option<ResourceVersion>,
}

impl ClusterIdentity {
    /// Returns the number of times that the cluster has been replaced.
    pub(super) fn incarnation(&self) -> u64 {
        self.state.lock().incarnation
    }

    /// Records the cluster ID in a response of a member. Returns true if it is another one than before:
    /// a restore with another `--initial-cluster-token` or other peer URLs has another ID. With the same ones only the
    /// revision shows it.
    pub(super) fn record_cluster_id(&self, cluster: u64) -> bool {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.cluster, cluster);
        let is_replaced = before != 0 && before != cluster;
        if is_replaced {
            state.replace(ResourceVersion::ZERO);
            if self.log.next().is_some() {
                let (cluster, before) = (format!("{cluster:x}"), format!("{before:x}"));
                tracing::warn!(cluster, before, "{REPLACED}");
            }
        }
        is_replaced
    }

    /// Records the revision of a linearizable read that began after `before` had been reached. Returns true
    /// if it went back: the data directory was replaced by an older copy.
    pub(super) fn record_read(&self, before: ResourceVersion, revision: ResourceVersion) -> bool {
        let mut state = self.state.lock();
        // Another call may have noticed it meanwhile.
        let is_replaced = revision < before && before <= state.reached;
        if is_replaced {
            let reached = state.reached;
            state.replace(revision);
            if self.log.next().is_some() {
                tracing::warn!(%revision, before = %reached, "{REPLACED}");
            }
        } else {
            state.reached = state.reached.max(revision);
        }
        is_replaced
    }

    /// Records the revision of a write, or of a batch of a watch.
    pub(super) fn record_reached(&self, revision: ResourceVersion) {
        let mut state = self.state.lock();
        state.reached = state.reached.max(revision);
    }

    /// Sets what an earlier process knew. No response has been recorded yet.
    pub(super) fn resume(&self, known: KnownCluster) {
        let mut state = self.state.lock();
        state.cluster = known.cluster;
        state.reached = known.reached;
    }

    /// Returns what a later process must know to notice a replacement.
    pub(super) fn known(&self) -> KnownCluster {
        let state = self.state.lock();
        KnownCluster {
            cluster: state.cluster,
            reached: state.reached.max(state.lost.unwrap_or_default()),
        }
    }

    /// Returns the latest revision of the etcd that was replaced, if the new one still has to be advanced past it.
    pub(super) fn lost(&self) -> Option<ResourceVersion> {
        self.state.lock().lost
    }

    /// Records that revisions up to `lost` cannot be used again.
    pub(super) fn record_recovery(&self, lost: ResourceVersion) {
        let mut state = self.state.lock();
        // A further replacement during the recovery may have lost more.
        state.lost = state.lost.filter(|now| *now > lost);
    }

    /// Returns the latest revision that was read or written.
    pub(super) fn reached(&self) -> ResourceVersion {
        self.state.lock().reached
    }
}

impl State {
    fn replace(&mut self, reached: ResourceVersion) {
        self.lost = self.lost.max(Some(self.reached));
        self.reached = reached;
        self.incarnation += 1;
    }
}

/// The message about a replaced cluster.
const REPLACED: &str = "etcd was replaced by another state, probably restored from a backup: all caches list again, \
                        and watches from earlier resourceVersions end with 410 Expired";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cluster_or_an_earlier_revision_is_another_incarnation() {
        let at = ResourceVersion::new;
        let identity = ClusterIdentity::default();
        assert!(!identity.record_cluster_id(7));
        assert!(!identity.record_cluster_id(7));
        assert!(!identity.record_read(identity.reached(), at(10)));
        let (first, second) = (identity.reached(), identity.reached());
        assert!(identity.record_read(first, at(5)));
        assert!(!identity.record_read(second, at(5)), "noticed once");
        assert!(!identity.record_read(identity.reached(), at(6)));
        // A read that began earlier and ends later is not a sign of anything.
        assert!(!identity.record_read(at(0), at(4)));
        assert!(identity.record_cluster_id(8));
        assert_eq!(identity.incarnation(), 2);
    }

    #[test]
    fn the_latest_lost_revision_is_known_until_the_recovery() {
        let at = ResourceVersion::new;
        let identity = ClusterIdentity::default();
        let (cluster, reached) = (7, at(10));
        identity.resume(KnownCluster { cluster, reached });
        assert_eq!(identity.lost(), None);
        assert!(identity.record_read(identity.reached(), at(5)));
        assert_eq!(identity.lost(), Some(at(10)));
        // A process that starts now has to know it too.
        assert_eq!(identity.known(), KnownCluster { cluster, reached });
        // The second of two replacements does not forget what the first one lost.
        assert!(identity.record_read(identity.reached(), at(3)));
        assert_eq!(identity.lost(), Some(at(10)));
        identity.record_recovery(at(9));
        assert_eq!(identity.lost(), Some(at(10)));
        identity.record_recovery(at(10));
        assert_eq!(identity.lost(), None);
    }

    #[test]
    fn a_cluster_with_another_id_than_in_an_earlier_process_is_a_replacement() {
        let identity = ClusterIdentity::default();
        let reached = ResourceVersion::new(10);
        identity.resume(KnownCluster {
            cluster: 7,
            reached,
        });
        assert!(identity.record_cluster_id(8));
        assert_eq!(identity.lost(), Some(reached));
    }
}

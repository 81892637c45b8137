//! The public interface of the simulated cluster: connections, faults and observations.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::Instant;
use watchet_tasks::Tasks;

use super::apply::Operation;
use super::config::Config;
use super::faults::{FaultRates, RequestFault};
use super::member::{Member, MemberState};
use super::position::initial;
use super::serve;
use super::shared::{Shared, drive};
use super::state::{State, member_ids};
use super::store::Store;

/// A simulated etcd cluster. Clones share it.
///
/// It runs on the current thread of a tokio runtime with paused time. The same seed and the same calls at the same times
/// give the same messages.
#[derive(Clone)]
pub struct Cluster {
    pub(super) shared: Arc<Shared>,
}

/// A copy of the cluster's data, to restore it later.
#[derive(Clone)]
pub struct Snapshot(Store);

impl Cluster {
    /// Starts a cluster whose members run, reach each other and have a leader. Its tasks belong to `tasks`.
    ///
    /// # Panics
    /// Panics if the configuration has no member.
    pub fn start(config: Config, rng: Rng, tasks: &Tasks) -> Self {
        assert!(config.members > 0, "a cluster has at least one member");
        let now = Instant::now();
        let members = member_ids(config.members)
            .into_values()
            .map(|id| Member::new(id, initial(), tasks.child()))
            .collect();
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(config, rng, members, now)),
            changed: Notify::new(),
            started: now,
            tasks: tasks.clone(),
        });
        let (driven, token) = (shared.clone(), tasks.token());
        tasks.spawn("etcd-cluster", async move {
            token.run_until_cancelled(drive(driven)).await;
        });
        Self { shared }
    }

    /// Serves a client's connection at a member until either side closes it. A stopped member closes it immediately; see
    /// [`Self::accepts_connections`].
    ///
    /// # Panics
    /// Panics if there is no such member, as do all functions that name one.
    pub fn serve(
        &self,
        member: usize,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) {
        serve::serve(&self.shared, member, stream);
    }

    /// Returns false if a connection to the member is refused, because its process has stopped.
    pub fn accepts_connections(&self, member: usize) -> bool {
        self.member_state(member) != MemberState::Stopped
    }

    /// Returns what the member's process does.
    pub fn member_state(&self, member: usize) -> MemberState {
        self.shared.lock().members[member].state
    }

    /// Returns the number of members.
    pub fn members(&self) -> usize {
        self.shared.lock().members.len()
    }

    /// Ends the process of a member: its connections break, and its requests are lost. Its data remains.
    pub fn stop(&self, member: usize) {
        self.shared.change(|state, now| {
            let stopped = &mut state.members[member];
            stopped.state = MemberState::Stopped;
            stopped.tasks.cancel();
            stopped.watchers = Default::default();
            stopped.suspension.resume();
            (stopped.leader, stopped.leader_lost_at, stopped.last_leader) = (None, None, None);
            state.drop_requests(member);
            if state.leader.is_some_and(|leader| leader.member == member) {
                state.step_down(now);
            }
            state.topology_changed(now);
        });
    }

    /// Starts the process of a stopped member.
    pub fn restart(&self, member: usize) {
        let tasks = self.shared.tasks.child();
        self.shared.change(|state, now| {
            let restarted = &mut state.members[member];
            if restarted.state != MemberState::Stopped {
                return;
            }
            restarted.state = MemberState::Running;
            restarted.process = tasks.token();
            restarted.tasks = tasks;
            restarted.restarted_at_revision = restarted.applied.revision;
            restarted.leaderless_checks = 0;
            state.topology_changed(now);
        });
    }

    /// Suspends the process of a running member: it accepts connections and bytes, and answers nothing.
    pub fn hang(&self, member: usize) {
        self.set_suspended(member, true);
    }

    /// Resumes the process of a hung member.
    pub fn resume(&self, member: usize) {
        self.set_suspended(member, false);
    }

    fn set_suspended(&self, member: usize, suspended: bool) {
        self.shared.change(|state, now| {
            let member = &mut state.members[member];
            let (from, to) = match suspended {
                true => (MemberState::Running, MemberState::Hung),
                false => (MemberState::Hung, MemberState::Running),
            };
            if member.state != from {
                return;
            }
            member.state = to;
            match suspended {
                true => member.suspension.suspend(),
                false => member.suspension.resume(),
            }
            state.topology_changed(now);
        });
    }

    /// Cuts the links between the groups; a member that is in none is alone. Clients still reach every member.
    pub fn partition(&self, groups: &[&[usize]]) {
        self.shared.change(|state, now| {
            for (index, member) in state.members.iter_mut().enumerate() {
                let position = groups.iter().position(|group| group.contains(&index));
                member.group = position.unwrap_or(groups.len() + index);
            }
            state.topology_changed(now);
        });
    }

    /// Cuts the links of one member to all others.
    pub fn isolate(&self, member: usize) {
        let others: Vec<usize> = (0..self.members())
            .filter(|other| *other != member)
            .collect();
        self.partition(&[&others]);
    }

    /// Restores all links between members.
    pub fn heal(&self) {
        let all: Vec<usize> = (0..self.members()).collect();
        self.partition(&[&all]);
    }

    /// Makes the leader step down. The election takes 1 to 3 s.
    pub fn elect(&self) {
        self.shared.change(State::step_down);
    }

    /// Returns the leader, if one reaches a majority.
    pub fn leader(&self) -> Option<usize> {
        let state = self.shared.lock();
        state.effective_leader().map(|leader| leader.member)
    }

    /// Delays the applied state of a member while it follows.
    pub fn set_lag(&self, member: usize, lag: Duration) {
        self.shared.change(|state, _| {
            let member = &mut state.members[member];
            member.lag = lag;
            member.apply_at = None;
        });
    }

    /// Applies a fault to the next unary request that the member receives; further faults wait for further requests.
    ///
    /// # Panics
    /// Panics if 1024 faults wait.
    pub fn fault_next(&self, member: usize, fault: RequestFault) {
        self.shared.lock().faults.queue(member, fault);
    }

    /// Sets the probabilities of faults of all unary requests.
    pub fn set_fault_rates(&self, rates: FaultRates) {
        self.shared.lock().faults.rates = rates;
    }

    /// Compacts the history below `revision` in the log, whatever clients do. Returns false if etcd would refuse it.
    pub fn compact(&self, revision: i64) -> bool {
        let request = etcd_client::proto::PbCompactionRequest {
            revision,
            physical: false,
        };
        let compact = Operation::Compact(request);
        self.shared
            .change(|state, now| state.commit(&compact, now).is_ok())
    }

    /// Raises or clears the alarm `NOSPACE`: puts and leases fail with "etcdserver: mvcc: database space exceeded".
    pub fn set_no_space(&self, is_full: bool) {
        self.shared.change(|state, now| {
            // The alarm itself cannot be refused.
            let _applied = state.commit(&Operation::NoSpaceAlarm(is_full), now);
        });
    }

    /// Raises or clears the alarm `CORRUPT`: requests fail with "etcdserver: corrupt cluster".
    pub fn set_corrupt(&self, is_corrupt: bool) {
        self.shared
            .change(|state, _| state.store.corrupt = is_corrupt);
    }

    /// Returns a copy of the committed data.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.shared.lock().store.clone())
    }

    /// Restores all members from a snapshot, as a new cluster: every process restarts, revisions go back, and the cluster
    /// id changes. Leases get their full time.
    pub fn restore(&self, snapshot: &Snapshot) {
        for member in 0..self.members() {
            self.stop(member);
        }
        self.shared
            .change(|state, now| state.replace(snapshot.0.clone(), now));
        for member in 0..self.members() {
            self.restart(member);
        }
    }

    /// Returns the revision of the last committed entry.
    pub fn revision(&self) -> i64 {
        self.shared.lock().committed.revision
    }

    /// Returns the revision that a member has applied.
    pub fn applied_revision(&self, member: usize) -> i64 {
        self.shared.lock().members[member].applied.revision
    }

    /// Returns the compacted revision of a member; -1 before the first compaction.
    pub fn compacted_revision(&self, member: usize) -> i64 {
        self.shared.lock().members[member].applied.compacted
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("Cluster")
            .field("members", &state.members.len())
            .field("committed", &state.committed)
            .field("leader", &state.leader)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("revision", &self.0.revision)
            .finish_non_exhaustive()
    }
}

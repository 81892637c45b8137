//! The state of the whole cluster: one log that is never wrong, and each member's position in it. It has no tasks and
//! reads no clock: [`State::advance`] does what is due, and [`State::next_due`] returns when to call it again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::apply::Operation;
use super::config::{Config, PlantedBug};
use super::faults::Faults;
use super::lease_clock::LeaseClock;
use super::member::{Leader, Member};
use super::pending::{Outcome, Proposal, Read};
use super::position::{Applied, initial};
use super::random::random_duration;
use super::store::{Change, Store, View};
use super::ticker::Ticker;

/// How long a member believes in a leader that it does not hear of.
pub(super) const ELECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum delay with which a follower applies an entry, without a lag.
const APPLY_DELAY_MAX: Duration = Duration::from_millis(5);

/// A committed log entry.
#[derive(Debug, Clone, Copy)]
struct Entry {
    applied: Applied,
    committed_at: Instant,
}

pub(super) struct State {
    pub(super) config: Config,
    pub(super) rng: Rng,
    pub(super) cluster_id: u64,
    pub(super) store: Store,
    pub(super) members: Vec<Member>,
    /// The entries that some member has not applied.
    log: VecDeque<Entry>,
    pub(super) committed: Applied,
    /// The current leader, reachable or not.
    pub(super) leader: Option<Leader>,
    pub(super) leader_lost_at: Option<Instant>,
    pub(super) term: u64,
    pub(super) elected_at: Instant,
    pub(super) election_at: Option<Instant>,
    pub(super) proposals: Vec<Proposal>,
    pub(super) reads: Vec<Read>,
    pub(super) lease_clock: LeaseClock,
    pub(super) faults: Faults,
    pub(super) next_stream: u64,
    sync: Ticker,
    victims: Ticker,
    monitor: Ticker,
    /// Counts restores from snapshots. Each gets another cluster ID here, as with a new `--initial-cluster-token`.
    pub(super) restores: u64,
}

impl State {
    /// Returns a new cluster with a leader.
    pub(super) fn new(config: Config, mut rng: Rng, members: Vec<Member>, now: Instant) -> Self {
        let member = rng.usize(0..members.len());
        let leader = Leader { member, term: 2 };
        let mut state = Self {
            cluster_id: rng.u64(1..),
            store: new_store(&config),
            config,
            rng,
            members,
            log: VecDeque::new(),
            committed: initial(),
            leader: Some(leader),
            leader_lost_at: None,
            term: leader.term,
            elected_at: now,
            election_at: None,
            proposals: Vec::new(),
            reads: Vec::new(),
            lease_clock: LeaseClock::new(now),
            faults: Faults::default(),
            next_stream: 0,
            sync: Ticker::new(now, Duration::from_millis(100)),
            victims: Ticker::new(now, Duration::from_millis(10)),
            monitor: Ticker::new(now, ELECTION_TIMEOUT),
            restores: 0,
        };
        state.update_leaders(now);
        state
    }

    /// Returns the state that a member sees.
    pub(super) fn view(&self, member: usize) -> View<'_> {
        let applied = self.members[member].applied;
        View {
            store: &self.store,
            revision: applied.revision,
            compacted: applied.compacted,
        }
    }

    /// Does everything that is due at `now`.
    pub(super) fn advance(&mut self, now: Instant) {
        loop {
            let mut changed = self.elect(now);
            changed |= self.expire_leases(now);
            changed |= self.update_leaders(now);
            changed |= self.step_proposals(now);
            changed |= self.apply_entries(now);
            changed |= self.step_reads(now);
            if !changed {
                break;
            }
        }
        self.discard();
        self.catch_up(now);
        self.check_leaders(now);
    }

    /// Returns when the next thing is due.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let members = self.members.iter();
        let leaders = self.leader_lost_at.into_iter().chain(
            members
                .clone()
                .filter(|member| member.leader.is_some())
                .filter_map(|member| member.leader_lost_at),
        );
        let fixed = [
            self.election_at,
            self.sync.due(),
            self.victims.due(),
            self.monitor.due(),
            self.lease_clock.due(),
        ];
        leaders
            .map(|lost_at| lost_at + ELECTION_TIMEOUT)
            .chain(fixed.into_iter().flatten())
            .chain(members.filter_map(|member| member.apply_at))
            .chain(self.proposals.iter().filter_map(Proposal::due))
            .chain(self.reads.iter().flat_map(Read::dues))
            // What was due and remains waits for a leader or a member, not for a time.
            .filter(|due| *due > now)
            .min()
    }

    /// Appends the operation to the log and returns its result.
    pub(super) fn commit(&mut self, operation: &Operation, now: Instant) -> Outcome {
        let result = super::apply::apply(&mut self.store, operation);
        if let Ok(applied) = &result {
            self.lease_clock.applied(applied, &self.store, now);
        }
        self.committed = Applied {
            index: self.committed.index + 1,
            revision: self.store.revision,
            compacted: self.store.compacted,
        };
        self.log.push_back(Entry {
            applied: self.committed,
            committed_at: now,
        });
        result
    }

    /// Lets each connected member apply the entries that are due.
    fn apply_entries(&mut self, now: Instant) -> bool {
        let mut changed = false;
        for index in 0..self.members.len() {
            while self.apply_next(index, now) {
                changed = true;
            }
        }
        changed
    }

    fn apply_next(&mut self, index: usize, now: Instant) -> bool {
        let applied = self.members[index].applied.index;
        if !self.can_replicate(index) || applied == self.committed.index {
            self.members[index].apply_at = None;
            return false;
        }
        let next = self.entry_after(applied);
        let is_leader = self.leader.is_some_and(|leader| leader.member == index);
        let member = &mut self.members[index];
        let due = *member.apply_at.get_or_insert_with(|| {
            let delay = match is_leader {
                true => Duration::ZERO,
                false => random_duration(&mut self.rng, APPLY_DELAY_MAX) + member.lag,
            };
            now.max(next.committed_at + delay)
        });
        if due > now {
            return false;
        }
        member.apply_at = None;
        let missing = usize::try_from(self.committed.index - applied).unwrap_or(usize::MAX);
        if missing > self.config.snapshot_entries || next.applied.index != applied + 1 {
            member.applied = self.committed;
            member.watchers.restored();
            return true;
        }
        let has_changes = next.applied.revision > member.applied.revision;
        member.applied = next.applied;
        if has_changes {
            member.watchers.notify(&self.store, next.applied.revision);
        }
        true
    }

    /// Returns the first retained entry after `index`; there is one if the member is behind.
    fn entry_after(&self, index: u64) -> Entry {
        let position = self
            .log
            .partition_point(|entry| entry.applied.index <= index);
        self.log.get(position).copied().unwrap_or(Entry {
            applied: self.committed,
            committed_at: self.elected_at,
        })
    }

    /// Makes a new leader apply the whole log.
    pub(super) fn apply_all(&mut self, member: usize, now: Instant) {
        self.members[member].apply_at = Some(now);
        while self.apply_next(member, now) {}
    }

    /// Frees entries that all members have applied, and versions that all have compacted.
    fn discard(&mut self) {
        let applied = self.members.iter().map(|member| member.applied.index);
        let applied = applied.min().unwrap_or(self.committed.index);
        let retained_max = 4 * self.config.snapshot_entries;
        while let Some(first) = self.log.front()
            && (first.applied.index <= applied || self.log.len() > retained_max)
        {
            self.log.pop_front();
        }
        let compacted = self.members.iter().map(|member| member.applied.compacted);
        if let Some(compacted) = compacted.min() {
            self.store.discard_below(compacted);
        }
    }

    fn catch_up(&mut self, now: Instant) {
        let is_running = |member: &&mut Member| member.is_running();
        let bugs = &self.config.bugs;
        let members = || self.members.iter().filter(|member| member.is_running());
        let has_unsynced = members().any(|member| member.watchers.has_unsynced());
        let has_victims = members().any(|member| member.watchers.has_victims());
        if self.victims.is_due(has_victims, now) {
            for member in self.members.iter_mut().filter(is_running) {
                member.watchers.retry_victims(member.applied.revision);
            }
        }
        if !self.sync.is_due(has_unsynced, now) {
            return;
        }
        for member in self.members.iter_mut().filter(is_running) {
            let (applied, restarted_at) = (member.applied, member.restarted_at_revision);
            let is_lost = |change: &Change| {
                let by_compaction = bugs.contains(&PlantedBug::DeletionLostByCompaction);
                let by_restart = bugs.contains(&PlantedBug::DeletionLostByRestart)
                    && change.revision <= restarted_at;
                let at_compacted = change.kv.is_none() && change.revision == applied.compacted;
                at_compacted && (by_compaction || by_restart)
            };
            member
                .watchers
                .catch_up(&self.store, applied, bugs, is_lost);
        }
    }

    /// Ends the streams that require a leader at members that have had none for three checks.
    fn check_leaders(&mut self, now: Instant) {
        let needed = self.members.iter().any(|member| {
            let mut streams = member.watchers.streams.values();
            member.is_running() && streams.any(|stream| stream.requires_leader)
        });
        if !self.monitor.is_due(needed, now) {
            return;
        }
        for member in &mut self.members {
            match member.leader {
                Some(_) => member.leaderless_checks = 0,
                None => member.leaderless_checks += 1,
            }
            if member.leaderless_checks != 3 {
                continue;
            }
            let streams = member.watchers.streams.values_mut();
            for stream in streams.filter(|stream| stream.requires_leader) {
                stream.end(super::errors::EtcdError::NoLeader);
            }
        }
    }

    /// Replaces the state of all members, as a restore from a snapshot does.
    pub(super) fn replace(&mut self, store: Store, now: Instant) {
        self.restores += 1;
        self.cluster_id = self.rng.u64(1..);
        self.store = store;
        self.log.clear();
        self.committed = Applied {
            index: self.committed.index + 1,
            revision: self.store.revision,
            compacted: self.store.compacted,
        };
        self.proposals.clear();
        self.reads.clear();
        self.lease_clock.restart(&self.store, now);
        for member in &mut self.members {
            member.applied = self.committed;
            member.apply_at = None;
            member.restarted_at_revision = self.store.revision;
        }
    }
}

/// Returns the state of a new cluster of the configured version.
fn new_store(config: &Config) -> Store {
    let mut store = Store::new();
    store.checks_in_order = config.is_at_least(3, 6);
    store.keys_only_omits_lease = config.is_at_least(3, 7);
    store
}

/// The ids of members, which depend only on their position.
pub(super) fn member_ids(count: usize) -> BTreeMap<usize, u64> {
    (0..count)
        .map(|index| (index, 0x8e9e_05c5_2164_694d ^ (index as u64 + 1)))
        .collect()
}

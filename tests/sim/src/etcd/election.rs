//! The links between members, the leader, and elections.

use std::time::Duration;

use tokio::time::Instant;

use super::member::Leader;
use super::state::{ELECTION_TIMEOUT, State};

/// An election takes between these times after the leader was lost.
const ELECTION_MILLIS: std::ops::RangeInclusive<u64> = 1000..=3000;

impl State {
    /// Returns the group of running members that can elect a leader, if any.
    fn majority_group(&self) -> Option<usize> {
        let running = || self.members.iter().filter(|member| member.is_running());
        running()
            .map(|member| member.group)
            .find(|group| 2 * running().filter(|m| m.group == *group).count() > self.members.len())
    }

    /// Returns the leader if it reaches a majority.
    pub(super) fn effective_leader(&self) -> Option<Leader> {
        let leader = self.leader?;
        let member = &self.members[leader.member];
        (member.is_running() && self.majority_group() == Some(member.group)).then_some(leader)
    }

    /// Returns true if the member receives entries from an effective leader.
    pub(super) fn can_replicate(&self, member: usize) -> bool {
        let member = &self.members[member];
        self.effective_leader()
            .is_some_and(|leader| self.members[leader.member].group == member.group)
            && member.is_running()
    }

    /// Schedules or cancels an election after members or links have changed.
    pub(super) fn topology_changed(&mut self, now: Instant) {
        if self.effective_leader().is_some() {
            self.leader_lost_at = None;
            self.election_at = None;
            return;
        }
        if self.leader.is_some() {
            self.leader_lost_at.get_or_insert(now);
        }
        if self.majority_group().is_none() {
            self.election_at = None;
        } else if self.election_at.is_none() {
            let delay = Duration::from_millis(self.rng.u64(ELECTION_MILLIS));
            self.election_at = Some(now + delay);
        }
    }

    /// Makes the leader step down.
    pub(super) fn step_down(&mut self, now: Instant) {
        self.leader = None;
        self.leader_lost_at = None;
        self.topology_changed(now);
    }

    /// Elects a leader if an election is due.
    pub(super) fn elect(&mut self, now: Instant) -> bool {
        let lost = self.leader_lost_at;
        if lost.is_some_and(|lost_at| lost_at + ELECTION_TIMEOUT <= now) {
            self.leader = None;
            self.leader_lost_at = None;
        }
        if self.election_at.is_none_or(|at| at > now) {
            return false;
        }
        self.election_at = None;
        let Some(group) = self.majority_group() else {
            return false;
        };
        let candidates: Vec<usize> = (0..self.members.len())
            .filter(|index| {
                let member = &self.members[*index];
                member.is_running() && member.group == group
            })
            .collect();
        let member = candidates[self.rng.usize(0..candidates.len())];
        self.term += 1;
        let term = self.term;
        self.leader = Some(Leader { member, term });
        self.leader_lost_at = None;
        self.elected_at = now;
        self.resolve_uncertain(now);
        self.apply_all(member, now);
        self.lease_clock.restart(&self.store, now);
        true
    }

    /// Updates the leader that each member believes in. Reads that waited for a leader fail when a member learns of
    /// another one.
    pub(super) fn update_leaders(&mut self, now: Instant) -> bool {
        let mut changed = false;
        for index in 0..self.members.len() {
            let actual = self
                .effective_leader()
                .filter(|_| self.can_replicate(index));
            let member = &mut self.members[index];
            if !member.is_running() {
                continue;
            }
            if actual.is_some() {
                (member.leader, member.leader_lost_at) = (actual, None);
            } else if member.leader.is_some() {
                let lost_at = *member.leader_lost_at.get_or_insert(now);
                if lost_at + ELECTION_TIMEOUT <= now {
                    (member.leader, member.leader_lost_at) = (None, None);
                }
            }
            if member.leader.is_none() || member.leader == member.last_leader {
                continue;
            }
            let before = std::mem::replace(&mut member.last_leader, member.leader);
            member.term = member.leader.map_or(member.term, |leader| leader.term);
            if before.is_some() {
                changed |= self.leader_changed(index);
            }
        }
        changed
    }
}

//! Requests on their way through the consensus: proposals, which are executed once, later or never, and reads, which
//! wait for a confirmation of the leader.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::apply::Operation;
use super::errors::EtcdError;
use super::pending::{Outcome, Phase, Proposal, REQUEST_TIMEOUT, Read};
use super::random::random_duration;
use super::state::{ELECTION_TIMEOUT, State};

/// The time to replicate an entry to a majority.
const COMMIT_DELAY_MIN: Duration = Duration::from_millis(1);
const COMMIT_DELAY_SPREAD: Duration = Duration::from_millis(2);

/// The maximum number of entries that a member may lag behind and still accept writes.
const UNAPPLIED_MAX: u64 = 5000;

impl State {
    /// Proposes an operation at a member.
    pub(super) fn propose(
        &mut self,
        member: usize,
        operation: Operation,
        now: Instant,
    ) -> oneshot::Receiver<Outcome> {
        let (reply, result) = oneshot::channel();
        if self.committed.index - self.members[member].applied.index > UNAPPLIED_MAX {
            // The receiver is in this function, so the send succeeds.
            let _sent = reply.send(Err(EtcdError::TooManyRequests));
            return result;
        }
        self.add_proposal(member, operation, Some(reply), now);
        result
    }

    pub(super) fn add_proposal(
        &mut self,
        member: usize,
        operation: Operation,
        reply: Option<oneshot::Sender<Outcome>>,
        now: Instant,
    ) {
        self.proposals.push(Proposal {
            member,
            operation,
            started: now,
            phase: Phase::NoLeader,
            reply,
        });
    }

    /// Requests a confirmation that the member's state is at least as new as the cluster's at `now`.
    pub(super) fn read_index(
        &mut self,
        member: usize,
        now: Instant,
    ) -> oneshot::Receiver<Result<(), EtcdError>> {
        let (reply, result) = oneshot::channel();
        let delay = COMMIT_DELAY_MIN + random_duration(&mut self.rng, COMMIT_DELAY_MIN);
        self.reads.push(Read {
            member,
            started: now,
            confirmed_at: now + delay,
            index: None,
            reply: Some(reply),
        });
        result
    }

    pub(super) fn step_proposals(&mut self, now: Instant) -> bool {
        let mut proposals = std::mem::take(&mut self.proposals);
        let before = proposals.len();
        let mut changed = false;
        proposals.retain_mut(|proposal| {
            changed |= self.step_proposal(proposal, now);
            self.is_pending(proposal, now)
        });
        changed |= proposals.len() != before;
        proposals.append(&mut self.proposals);
        self.proposals = proposals;
        changed
    }

    fn step_proposal(&mut self, proposal: &mut Proposal, now: Instant) -> bool {
        match proposal.phase {
            Phase::NoLeader => {
                let Some(leader) = self.members[proposal.member].leader else {
                    return false;
                };
                let reaches = self.can_replicate(proposal.member) && self.leader == Some(leader);
                proposal.phase = if reaches {
                    let delay =
                        COMMIT_DELAY_MIN + random_duration(&mut self.rng, COMMIT_DELAY_SPREAD);
                    Phase::InFlight(now + delay, leader)
                } else {
                    Phase::Lost
                };
            }
            Phase::InFlight(at, leader) if at <= now => {
                proposal.phase = if self.effective_leader() == Some(leader) {
                    self.commit_proposal(&proposal.operation, now)
                } else {
                    Phase::Uncertain
                };
            }
            _ => return false,
        }
        true
    }

    fn commit_proposal(&mut self, operation: &Operation, now: Instant) -> Phase {
        let result = self.commit(operation, now);
        Phase::Committed(self.committed.index, result)
    }

    /// Sends the result if there is one; returns false if nothing of the proposal remains to be done.
    fn is_pending(&mut self, proposal: &mut Proposal, now: Instant) -> bool {
        let member = &self.members[proposal.member];
        if let Phase::Committed(index, outcome) = &proposal.phase {
            let is_applied = member.applied.index >= *index && member.is_running();
            if is_applied && let Some(reply) = proposal.reply.take() {
                // The client may have left.
                let _sent = reply.send(outcome.clone());
            }
        }
        if proposal.started + REQUEST_TIMEOUT <= now
            && let Some(reply) = proposal.reply.take()
        {
            let _sent = reply.send(Err(self.timeout_error(proposal.started)));
        }
        let may_commit = matches!(proposal.phase, Phase::InFlight(..) | Phase::Uncertain);
        let is_answered = proposal
            .reply
            .as_ref()
            .is_none_or(oneshot::Sender::is_closed);
        // A lease expiry without a leader is proposed again.
        may_commit || !is_answered
    }

    /// Returns the error of a write that timed out: it names a leader failure if one was elected meanwhile.
    fn timeout_error(&self, started: Instant) -> EtcdError {
        let recently = started + 2 * ELECTION_TIMEOUT > self.elected_at && self.term > 2;
        if started < self.elected_at && recently {
            EtcdError::TimeoutDueToLeaderFailure
        } else {
            EtcdError::Timeout
        }
    }

    /// Decides which proposals that the last leader had received are in the new leader's log.
    pub(super) fn resolve_uncertain(&mut self, now: Instant) {
        let mut proposals = std::mem::take(&mut self.proposals);
        for proposal in &mut proposals {
            let was_sent = matches!(proposal.phase, Phase::Uncertain | Phase::InFlight(..));
            if was_sent {
                proposal.phase = match self.rng.bool() {
                    true => self.commit_proposal(&proposal.operation, now),
                    false => Phase::Lost,
                };
            }
        }
        self.proposals = proposals;
    }

    pub(super) fn step_reads(&mut self, now: Instant) -> bool {
        let mut reads = std::mem::take(&mut self.reads);
        let before = reads.len();
        let mut changed = false;
        for read in &mut reads {
            changed |= self.step_read(read, now);
        }
        reads.retain(|read| read.reply.as_ref().is_some_and(|reply| !reply.is_closed()));
        changed |= reads.len() != before;
        self.reads = reads;
        changed
    }

    fn step_read(&mut self, read: &mut Read, now: Instant) -> bool {
        let member = &self.members[read.member];
        if read.index.is_none() && read.confirmed_at <= now && self.can_replicate(read.member) {
            read.index = Some(self.committed.index);
            return true;
        }
        let result = match read.index {
            Some(index) if member.applied.index >= index && member.is_running() => Ok(()),
            None if read.started + REQUEST_TIMEOUT <= now => Err(EtcdError::Timeout),
            _ => return false,
        };
        if let Some(reply) = read.reply.take() {
            let _sent = reply.send(result);
        }
        true
    }

    /// Fails the reads of a member that wait for a confirmation of a previous leader.
    pub(super) fn leader_changed(&mut self, member: usize) -> bool {
        let mut changed = false;
        for read in &mut self.reads {
            if read.member == member
                && read.index.is_none()
                && let Some(reply) = read.reply.take()
            {
                let _sent = reply.send(Err(EtcdError::LeaderChanged));
                changed = true;
            }
        }
        changed
    }

    /// Drops the requests that wait at a member whose process has ended. Proposals that were sent may still be executed.
    pub(super) fn drop_requests(&mut self, member: usize) {
        self.reads.retain(|read| read.member != member);
        self.proposals.retain_mut(|proposal| {
            if proposal.member != member {
                return true;
            }
            proposal.reply = None;
            matches!(proposal.phase, Phase::InFlight(..) | Phase::Uncertain)
        });
    }
}

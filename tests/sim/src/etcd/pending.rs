//! Requests that wait: writes for their commit, and reads for the leader's confirmation.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::apply::{Applied, Operation};
use super::errors::EtcdError;
use super::member::Leader;

/// etcd's timeout of a request with the default election timeout: 5 s and two election timeouts.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);

/// The result of an operation.
pub(super) type Outcome = Result<Applied, EtcdError>;

#[derive(Debug)]
pub(super) enum Phase {
    /// The member knows no leader.
    NoLeader,
    /// The leader replicates it until the time.
    InFlight(Instant, Leader),
    /// The leader failed meanwhile; the next one may have it in its log.
    Uncertain,
    /// It was sent to a failed leader.
    Lost,
    /// The member has applied it once it has applied this index.
    Committed(u64, Outcome),
}

/// A write.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) member: usize,
    pub(super) operation: Operation,
    pub(super) started: Instant,
    pub(super) phase: Phase,
    /// `None` if no request waits for the result.
    pub(super) reply: Option<oneshot::Sender<Outcome>>,
}

impl Proposal {
    pub(super) fn due(&self) -> Option<Instant> {
        let timeout = self.reply.is_some().then(|| self.started + REQUEST_TIMEOUT);
        let replicated = match &self.phase {
            Phase::InFlight(at, _) => Some(*at),
            _ => None,
        };
        timeout.into_iter().chain(replicated).min()
    }
}

/// A linearizable read, or another request that needs the leader and changes nothing.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) member: usize,
    pub(super) started: Instant,
    /// When the leader's confirmation arrives at the earliest.
    pub(super) confirmed_at: Instant,
    /// The index that the member must have applied, once it is confirmed.
    pub(super) index: Option<u64>,
    pub(super) reply: Option<oneshot::Sender<Result<(), EtcdError>>>,
}

impl Read {
    pub(super) fn dues(&self) -> [Instant; 2] {
        [self.confirmed_at, self.started + REQUEST_TIMEOUT]
    }
}

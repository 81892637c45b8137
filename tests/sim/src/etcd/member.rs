//! A member: whether it runs, what it has applied, and which leader it believes in.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use watchet_tasks::Tasks;

use super::position::Applied;
use super::suspension::Suspension;
use super::watchers::Watchers;

/// What a member's process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// It serves.
    Running,
    /// The process has ended: connections are closed, and new ones are refused.
    Stopped,
    /// The process is suspended: it accepts connections and bytes, and answers nothing.
    Hung,
}

/// A leader in a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leader {
    pub(super) member: usize,
    pub(super) term: u64,
}

pub(super) struct Member {
    pub(super) id: u64,
    pub(super) state: MemberState,
    /// Members with the same group can reach each other.
    pub(super) group: usize,
    /// The additional delay of its applied index.
    pub(super) lag: Duration,
    pub(super) applied: Applied,
    /// When it applies the next entry.
    pub(super) apply_at: Option<Instant>,
    /// The leader it believes in, and until when if that leader is lost.
    pub(super) leader: Option<Leader>,
    pub(super) leader_lost_at: Option<Instant>,
    /// The last known leader, to detect a change.
    pub(super) last_leader: Option<Leader>,
    /// The latest term it knows, which survives its process.
    pub(super) term: u64,
    /// The number of consecutive checks that found no leader.
    pub(super) leaderless_checks: u32,
    /// Deletions up to this revision lost their tombstones in a restart.
    pub(super) restarted_at_revision: i64,
    pub(super) watchers: Watchers,
    /// The tasks of the process: its connections.
    pub(super) tasks: Tasks,
    pub(super) process: CancellationToken,
    pub(super) suspension: Suspension,
}

impl Member {
    pub(super) fn new(id: u64, applied: Applied, tasks: Tasks) -> Self {
        Self {
            id,
            state: MemberState::Running,
            group: 0,
            lag: Duration::ZERO,
            applied,
            apply_at: None,
            leader: None,
            leader_lost_at: None,
            last_leader: None,
            term: 0,
            leaderless_checks: 0,
            restarted_at_revision: 0,
            watchers: Watchers::default(),
            process: tasks.token(),
            tasks,
            suspension: Suspension::default(),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.state == MemberState::Running
    }
}

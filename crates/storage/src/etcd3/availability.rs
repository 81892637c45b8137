//! Whether any member of the cluster responds. Logs an outage once, at growing intervals, and at its
//! end, and notifies those that wait for the end.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use watchet_metrics::LogInterval;

/// The availability of a cluster. Its members report to it.
#[derive(Debug)]
pub(super) struct Availability {
    members: usize,
    state: Mutex<State>,
    /// The number of outages that have ended.
    recoveries: watch::Sender<u64>,
    log: LogInterval,
}

#[derive(Debug, Default)]
struct State {
    /// The number of members that fail.
    failing: usize,
    /// The start of the outage, during which all do.
    since: Option<Instant>,
}

impl Availability {
    /// Returns the availability of a cluster of `members`, which are assumed to respond.
    pub(super) fn new(members: usize) -> Self {
        Self {
            members,
            state: Mutex::default(),
            recoveries: watch::Sender::default(),
            log: LogInterval::growing(),
        }
    }

    /// Returns the number of members.
    pub(super) fn members(&self) -> usize {
        self.members
    }

    /// Returns a receiver that changes when an outage has ended.
    pub(super) fn recoveries(&self) -> watch::Receiver<u64> {
        self.recoveries.subscribe()
    }

    /// Returns how long the present outage has lasted; zero if there is none.
    pub(super) fn down_for(&self) -> Duration {
        let since = self.state.lock().since;
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Records a failure of a member; `is_first` if it responded before.
    pub(super) fn member_fails(&self, is_first: bool, reason: &str) {
        let since = {
            let mut state = self.state.lock();
            state.failing += usize::from(is_first);
            if state.failing < self.members {
                return;
            }
            *state.since.get_or_insert_with(Instant::now)
        };
        if self.log.next().is_some() {
            let down_for = since.elapsed();
            let members = self.members;
            tracing::error!(
                ?down_for,
                members,
                reason,
                "etcd is unavailable: no member responds"
            );
        }
    }

    /// Records that a member that failed responds.
    pub(super) fn member_responds(&self) {
        let ended = {
            let mut state = self.state.lock();
            state.failing -= 1;
            state.since.take()
        };
        if let Some(since) = ended {
            self.log.reset();
            tracing::info!(down_for = ?since.elapsed(), "etcd is available again");
            self.recoveries.send_modify(|recoveries| *recoveries += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn outage_begins_with_the_last_member_and_ends_with_the_first() {
        let availability = Availability::new(2);
        let recoveries = availability.recoveries();
        let is_out = || availability.state.lock().since.is_some();
        availability.member_fails(true, "gone");
        availability.member_fails(false, "gone");
        assert!(!is_out(), "the other member responds");
        availability.member_fails(true, "gone");
        assert!(is_out());
        assert!(!recoveries.has_changed().unwrap());
        availability.member_responds();
        assert!(!is_out());
        assert!(recoveries.has_changed().unwrap());
    }
}

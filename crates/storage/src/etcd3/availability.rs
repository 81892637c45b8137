//! Whether any member of the cluster responds. Logs an outage of a second or more at growing intervals, and its
//! end. Notifies those that wait for the end.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use watchet_metrics::LogInterval;

/// A shorter outage is not logged: while etcd stops or starts, calls on some connections fail and others
/// succeed, which looks like many outages of a few milliseconds.
const UNLOGGED_MAX: Duration = Duration::from_secs(1);

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
        let mut state = self.state.lock();
        state.failing += usize::from(is_first);
        if state.failing < self.members {
            return;
        }
        let down_for = state.since.get_or_insert_with(Instant::now).elapsed();
        // Under the lock, so that the beginning is logged before the end.
        if down_for >= UNLOGGED_MAX && self.log.next().is_some() {
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
        let mut state = self.state.lock();
        state.failing -= 1;
        if let Some(since) = state.since.take() {
            let down_for = since.elapsed();
            if down_for >= UNLOGGED_MAX {
                self.log.reset();
                tracing::info!(?down_for, "etcd is available again");
            }
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

    /// When etcd was killed and when it came back, each failed call on one of several connections was an outage of its
    /// own in the log.
    #[tokio::test(start_paused = true)]
    async fn short_outages_are_not_logged() {
        let availability = Availability::new(1);
        for _ in 0..3 {
            availability.member_fails(true, "reset");
            tokio::time::advance(Duration::from_millis(5)).await;
            availability.member_fails(false, "reset");
            availability.member_responds();
        }
        availability.member_fails(true, "refused");
        let nothing_logged = Some(0);
        assert_eq!(availability.log.next(), nothing_logged);
        availability.log.reset();
        tokio::time::advance(UNLOGGED_MAX).await;
        availability.member_fails(false, "refused");
        assert_eq!(availability.log.next(), None, "the outage was logged");
        availability.member_responds();
        assert_eq!(availability.log.next(), Some(0), "it has ended");
    }
}

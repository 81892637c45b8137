//! The expiry of leases: the leader revokes expired ones every 500 ms.

use tokio::time::Instant;

use super::apply::Operation;
use super::state::State;

impl State {
    /// Proposes to revoke the expired leases; returns true if there are any.
    pub(super) fn expire_leases(&mut self, now: Instant) -> bool {
        let leader = self.effective_leader();
        let needed = leader.is_some() && !self.lease_clock.expiries.is_empty();
        if !self.lease_clock.check.is_due(needed, now) {
            return false;
        }
        let Some(leader) = leader else { return false };
        let expired: Vec<i64> = self
            .lease_clock
            .expiries
            .iter()
            .filter(|(_, expiry)| **expiry <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in &expired {
            let id = *id;
            let is_proposed = self.proposals.iter().any(|proposal| {
                matches!(&proposal.operation, Operation::LeaseRevoke(other) if *other == id)
            });
            if !is_proposed {
                let revoke = Operation::LeaseRevoke(id);
                self.add_proposal(leader.member, revoke, None, now);
            }
        }
        !expired.is_empty()
    }
}

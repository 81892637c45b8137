//! When leases expire, according to the leader: a new one gives every lease its full time again.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::apply::Applied;
use super::store::Store;
use super::ticker::Ticker;

#[derive(Debug)]
pub(super) struct LeaseClock {
    pub(super) expiries: BTreeMap<i64, Instant>,
    pub(super) check: Ticker,
}

impl LeaseClock {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            expiries: BTreeMap::new(),
            check: Ticker::new(now, Duration::from_millis(500)),
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.check.due()
    }

    /// Takes note of a granted or revoked lease.
    pub(super) fn applied(&mut self, applied: &Applied, store: &Store, now: Instant) {
        match applied {
            Applied::LeaseGrant(granted) => {
                self.expiries.insert(granted.id, now + seconds(granted.ttl));
            }
            Applied::LeaseRevoke(_) => self.expiries.retain(|id, _| store.leases.contains_key(id)),
            _ => {}
        }
    }

    /// Gives every lease its full time.
    pub(super) fn restart(&mut self, store: &Store, now: Instant) {
        let leases = store.leases.iter();
        self.expiries = leases
            .map(|(id, lease)| (*id, now + seconds(lease.ttl)))
            .collect();
    }

    /// Renews a lease and returns its time to live in seconds.
    pub(super) fn renew(&mut self, id: i64, ttl: i64, now: Instant) -> i64 {
        self.expiries.insert(id, now + seconds(ttl));
        ttl
    }

    /// Returns the remaining whole seconds.
    pub(super) fn remaining(&self, id: i64, now: Instant) -> i64 {
        let expiry = self.expiries.get(&id).copied().unwrap_or(now);
        let seconds = expiry.saturating_duration_since(now).as_secs();
        i64::try_from(seconds).unwrap_or(i64::MAX)
    }
}

/// The longest time that the clock can represent.
const SECONDS_MAX: u64 = 1_000_000_000;

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0).min(SECONDS_MAX))
}

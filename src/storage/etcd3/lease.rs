//! Leases for keys with a TTL, shared between keys that expire at nearly the same time: a burst of
//! events costs one lease, not one each (§2.5). It grants and hands out; expiry is etcd's work.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::cluster::{Cluster, Repeat};
use super::failure::Failure;
use crate::metrics::Histogram;

/// A key may live longer than asked by this part of its TTL, so that keys can share a lease.
const SLACK_PERCENT: u32 = 5;

/// A key never lives longer than asked by more than this.
const SLACK_MAX: Duration = Duration::from_secs(60);

/// Keys on one lease. etcd deletes all of them in one transaction when it expires.
const KEYS_PER_LEASE: u32 = 1000;

/// How long granting one may take.
const GRANT_TIMEOUT: Duration = Duration::from_secs(10);

/// The lease granted last.
#[derive(Debug, Clone, Copy)]
struct Granted {
    id: i64,
    expires: Instant,
    keys: u32,
}

impl Granted {
    /// Whether a key that is to live for `ttl` may be attached.
    fn fits(&self, ttl: Duration, now: Instant) -> bool {
        let due = now + ttl;
        due <= self.expires && self.expires <= due + slack(ttl) && self.keys < KEYS_PER_LEASE
    }
}

/// Hands out leases.
#[derive(Debug)]
pub(super) struct Leases {
    /// How many keys each had when the next one took its place.
    keys: Arc<Histogram>,
    /// An async lock, held while one is granted: those who wait are to share it.
    last: Mutex<Option<Granted>>,
}

impl Leases {
    pub(super) fn new(keys: Arc<Histogram>) -> Self {
        Self {
            keys,
            last: Mutex::default(),
        }
    }

    /// A lease under which a key lives for `ttl`, or a little longer.
    pub(super) async fn get(&self, cluster: &Cluster, ttl: Duration) -> Result<i64, Failure> {
        let mut last = self.last.lock().await;
        if let Some(granted) = last.as_mut()
            && granted.fits(ttl, Instant::now())
        {
            granted.keys += 1;
            return Ok(granted.id);
        }
        let asked = Instant::now();
        let seconds = whole_seconds(ttl + slack(ttl));
        // Repeating is safe: a lease that nobody attaches a key to expires and changes nothing.
        let answer = cluster
            .call(Repeat::Freely, GRANT_TIMEOUT, |member| {
                let mut lease = member.calls().lease;
                async move { Ok(lease.grant(seconds, None).await?) }
            })
            .await?;
        // etcd has a smallest TTL of its own and may grant more than was asked.
        let lifetime = Duration::from_secs(u64::try_from(answer.ttl()).unwrap_or(0));
        let id = answer.id();
        let expires = asked + lifetime;
        let replaced = last.replace(Granted {
            id,
            expires,
            keys: 1,
        });
        if let Some(replaced) = replaced {
            self.keys.observe(f64::from(replaced.keys));
        }
        Ok(id)
    }

    /// Forgets `id`, which etcd does not know any more.
    pub(super) async fn forget(&self, id: i64) {
        let mut last = self.last.lock().await;
        if last.is_some_and(|granted| granted.id == id) {
            *last = None;
        }
    }
}

fn slack(ttl: Duration) -> Duration {
    (ttl * SLACK_PERCENT / 100).min(SLACK_MAX)
}

/// etcd counts TTLs in seconds; a key must not go early.
fn whole_seconds(ttl: Duration) -> i64 {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(seconds.max(1)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slack_is_bounded() {
        assert_eq!(slack(Duration::from_secs(3600)), Duration::from_secs(60));
        assert_eq!(slack(Duration::from_secs(100)), Duration::from_secs(5));
        assert_eq!(whole_seconds(Duration::from_millis(1500)), 2);
        assert_eq!(whole_seconds(Duration::ZERO), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_shared_only_within_the_slack() {
        let now = Instant::now();
        let ttl = Duration::from_secs(3600);
        let granted = Granted {
            id: 1,
            expires: now + ttl + slack(ttl),
            keys: 1,
        };
        assert!(granted.fits(ttl, now));
        assert!(granted.fits(ttl, now + Duration::from_secs(60)));
        assert!(
            !granted.fits(ttl, now + Duration::from_secs(61)),
            "it would go early"
        );
        assert!(
            !granted.fits(Duration::from_secs(600), now),
            "it would stay too long"
        );
        let full = Granted {
            keys: KEYS_PER_LEASE,
            ..granted
        };
        assert!(!full.fits(ttl, now));
    }
}

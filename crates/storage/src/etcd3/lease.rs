//! Leases for keys with a TTL. Keys that expire at nearly the same time share a lease, as in
//! upstream's [lease
//! manager](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/storage/etcd3/lease_manager.go).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::cluster::{Cluster, RetryPolicy};
use super::failure::Failure;
use watchet_metrics::Histogram;

/// A key may outlive its TTL by this percentage of the TTL, so that keys can share a lease.
const SLACK_PERCENT: u32 = 5;

/// A key outlives its TTL by at most this time.
const SLACK_MAX: Duration = Duration::from_secs(60);

/// Maximum number of keys per lease. etcd deletes all of them in one transaction on expiry.
const KEYS_PER_LEASE: u32 = 1000;

/// The timeout of the request that grants a lease.
const GRANT_TIMEOUT: Duration = Duration::from_secs(10);

/// The lease that was granted last. New keys share it.
#[derive(Debug, Clone, Copy)]
struct SharedLease {
    id: i64,
    expires: Instant,
    keys: u32,
}

impl SharedLease {
    /// Returns true if a key with this `ttl` may be attached to the lease.
    fn can_attach(&self, ttl: Duration, now: Instant) -> bool {
        let due = now + ttl;
        due <= self.expires && self.expires <= due + slack(ttl) && self.keys < KEYS_PER_LEASE
    }
}

/// Grants and shares leases.
#[derive(Debug)]
pub(super) struct Leases {
    /// Observes the number of keys of each replaced lease.
    keys_per_lease: Arc<Histogram>,
    /// `get` holds the lock while it requests a lease, so that concurrent callers wait and then share the new lease.
    last: Mutex<Option<SharedLease>>,
}

impl Leases {
    pub(super) fn new(keys_per_lease: Arc<Histogram>) -> Self {
        Self {
            keys_per_lease,
            last: Mutex::default(),
        }
    }

    /// Returns a lease under which a key lives for `ttl`, or slightly longer.
    pub(super) async fn get(&self, cluster: &Cluster, ttl: Duration) -> Result<i64, Failure> {
        let mut last = self.last.lock().await;
        if let Some(lease) = last.as_mut()
            && lease.can_attach(ttl, Instant::now())
        {
            lease.keys += 1;
            return Ok(lease.id);
        }
        let requested_at = Instant::now();
        let seconds = whole_seconds(ttl + slack(ttl));
        // A repeated grant is safe: a lease without keys expires without effect.
        let granted = cluster
            .call(RetryPolicy::Repeatable, GRANT_TIMEOUT, |member| {
                let mut lease = member.calls().lease;
                async move { Ok(lease.grant(seconds, None).await?) }
            })
            .await?;
        // etcd has a minimum TTL and may grant more than requested.
        let lifetime = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(0));
        let id = granted.id();
        let expires = requested_at + lifetime;
        let replaced = last.replace(SharedLease {
            id,
            expires,
            keys: 1,
        });
        if let Some(replaced) = replaced {
            self.keys_per_lease.observe(f64::from(replaced.keys));
        }
        Ok(id)
    }

    /// Stops the use of the lease `id`, which etcd has revoked or expired.
    pub(super) async fn forget(&self, id: i64) {
        let mut last = self.last.lock().await;
        if last.is_some_and(|lease| lease.id == id) {
            *last = None;
        }
    }
}

fn slack(ttl: Duration) -> Duration {
    (ttl * SLACK_PERCENT / 100).min(SLACK_MAX)
}

/// Rounds a TTL up to etcd's unit, so that no key expires early.
fn whole_seconds(ttl: Duration) -> i64 {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(seconds.max(1)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_is_bounded() {
        assert_eq!(slack(Duration::from_secs(3600)), Duration::from_secs(60));
        assert_eq!(slack(Duration::from_secs(100)), Duration::from_secs(5));
        assert_eq!(whole_seconds(Duration::from_millis(1500)), 2);
        assert_eq!(whole_seconds(Duration::ZERO), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn lease_is_shared_only_within_the_slack() {
        let now = Instant::now();
        let ttl = Duration::from_secs(3600);
        let lease = SharedLease {
            id: 1,
            expires: now + ttl + slack(ttl),
            keys: 1,
        };
        assert!(lease.can_attach(ttl, now));
        assert!(lease.can_attach(ttl, now + Duration::from_secs(60)));
        assert!(
            !lease.can_attach(ttl, now + Duration::from_secs(61)),
            "the key would expire early"
        );
        assert!(
            !lease.can_attach(Duration::from_secs(600), now),
            "the key would expire late"
        );
        let full = SharedLease {
            keys: KEYS_PER_LEASE,
            ..lease
        };
        assert!(!full.can_attach(ttl, now));
    }
}

//! Reads all keys under the prefix, to copy them to another store.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Etcd3;
use super::cluster::RetryPolicy;
use super::failure::Failure;
use crate::StorageError;
use crate::embedded::StoredValue;
use watchet_api::ResourceVersion;

/// Timeout of a request for the time that a lease has left.
const LEASE_TIMEOUT: Duration = Duration::from_secs(10);

impl Etcd3 {
    /// Returns the number of keys under the prefix.
    ///
    /// # Errors
    /// As a list.
    pub async fn count(&self) -> Result<u64, StorageError> {
        let mut found = 0;
        let range = self.layout.everything();
        let counted = self.read_range(range, None, 1, |_| {
            found += 1;
            Ok(())
        });
        let (_, remaining) = counted.await?;
        Ok(found + remaining)
    }

    /// Returns all values under the prefix at one revision, which is also returned, in the order in which they were
    /// written. Calls `progress` with the number of keys that were read.
    ///
    /// # Errors
    /// As a list. A key that is not a storage key is an error.
    pub async fn values_in_order(
        &self,
        mut progress: impl FnMut(u64),
    ) -> Result<(ResourceVersion, Vec<StoredValue>), StorageError> {
        let mut values = Vec::new();
        let mut leases = HashMap::new();
        let range = self.layout.everything();
        let read = self.read_range(range, None, 0, |kv| {
            let lease = kv.lease;
            if lease != 0 {
                leases.insert(lease, 0);
            }
            let kv = self.layout.key_value(kv)?;
            let value = StoredValue {
                key: kv.key.as_str().to_owned(),
                value: kv.value,
                create_revision: kv.create_revision,
                mod_revision: kv.mod_revision,
                expires_ms: 0,
            };
            values.push((lease, value));
            progress(values.len() as u64);
            Ok(())
        });
        let (at, _) = read.await?;
        for (lease, expires_ms) in &mut leases {
            *expires_ms = self.expiry(*lease).await?;
        }
        let values = values.into_iter().map(|(lease, value)| StoredValue {
            expires_ms: leases.get(&lease).copied().unwrap_or(0),
            ..value
        });
        let mut values: Vec<_> = values.collect();
        values.sort_by(|a, b| (a.mod_revision, &a.key).cmp(&(b.mod_revision, &b.key)));
        Ok((at, values))
    }

    /// Returns when `lease` expires, in milliseconds since the epoch. One that has expired is due now.
    async fn expiry(&self, lease: i64) -> Result<u64, StorageError> {
        let answer = self
            .cluster
            .call(RetryPolicy::Repeatable, LEASE_TIMEOUT, |member| {
                let mut leases = member.calls().lease;
                async move { Ok(leases.time_to_live(lease, None).await?) }
            });
        let ttl = match answer.await {
            Ok(answer) => u64::try_from(answer.ttl()).unwrap_or(0),
            Err(Failure::LeaseNotFound) => 0,
            Err(failure) => return Err(failure.into_storage_error()),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default() + Duration::from_secs(ttl);
        // Not 0, which is a key that does not expire.
        Ok(u64::try_from(now.as_millis())
            .unwrap_or(u64::MAX - 1)
            .max(1))
    }
}

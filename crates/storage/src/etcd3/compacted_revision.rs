//! The revision that the servers of an etcd have compacted, as their compactors publish it in a key.

use std::time::Duration;

use etcd_client::KeyValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::failure::Failure;
use crate::StorageError;
use watchet_api::ResourceVersion;

/// The key that the compactors of all servers compete through: upstream's name, outside of every prefix.
pub(super) const COMPACT_REV_KEY: &str = "compact_rev_key";

/// How long a read of the key is considered current: every cache reads it periodically, and all
/// share one request.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// The compacted revision according to the key, cached.
#[derive(Debug, Default)]
pub(super) struct CompactedRevision {
    /// The last read and its time. An async lock, held during a request, which waiting callers
    /// share.
    last: Mutex<Option<(ResourceVersion, Instant)>>,
}

impl CompactedRevision {
    /// Returns the compacted revision: the value of the key, zero before the first round. `read` reads the key.
    pub(super) async fn get(
        &self,
        read: impl Future<Output = Result<Option<KeyValue>, Failure>>,
    ) -> Result<ResourceVersion, StorageError> {
        let mut last = self.last.lock().await;
        if let Some((revision, since)) = *last
            && since.elapsed() < CACHE_TTL
        {
            return Ok(revision);
        }
        let kv = read.await.map_err(Failure::into_storage_error)?;
        let revision = match &kv {
            None => ResourceVersion::ZERO,
            Some(kv) => parse(kv.value()).ok_or_else(|| {
                let value = String::from_utf8_lossy(kv.value());
                StorageError::Corrupt(format!("etcd holds {value:?} under {COMPACT_REV_KEY}"))
            })?,
        };
        *last = Some((revision, Instant::now()));
        Ok(revision)
    }
}

fn parse(value: &[u8]) -> Option<ResourceVersion> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

//! The compactor: all API servers of an etcd, including kube-apiserver, compete through one key on
//! which of them compacts in each interval, so that history is one to two intervals long. The
//! protocol is upstream's
//! ([compact.go](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/storage/etcd3/compact.go)).
//! `Etcd3::compact` compacts.

use std::time::Duration;

use etcd_client::proto::PbTxnOpResponse;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Etcd3;
use super::WRITE_TIMEOUT;
use super::cluster::Repeat;
use super::failure::Failure;
use super::keys::revision;
use crate::{Storage as _, StorageError};
use watchet_api::ResourceVersion;

/// The key that servers compete through: upstream's name, outside of every prefix.
const COMPACT_REV_KEY: &str = "compact_rev_key";

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
    /// Returns the compacted revision: the value of the key, zero before the first round.
    pub(super) async fn get(&self, etcd: &Etcd3) -> Result<ResourceVersion, StorageError> {
        let mut last = self.last.lock().await;
        if let Some((revision, since)) = *last
            && since.elapsed() < CACHE_TTL
        {
            return Ok(revision);
        }
        let (kv, _) = etcd
            .read(COMPACT_REV_KEY.into())
            .await
            .map_err(Failure::into_storage_error)?;
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

/// The state that one server retains between rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Compactor {
    /// The version of the key: the number of rounds.
    rounds: i64,
    /// The store's revision at the last round; zero before the first.
    remembered: ResourceVersion,
}

impl Compactor {
    /// Takes part in one round and compacts if it wins.
    pub(super) async fn round(&mut self, etcd: &Etcd3) -> Result<(), StorageError> {
        let won = self
            .compete(etcd)
            .await
            .map_err(Failure::into_storage_error)?;
        if let Some(at) = won {
            etcd.compact(at).await?;
            tracing::debug!(revision = at.get(), "compacted etcd");
        }
        Ok(())
    }

    /// Returns the revision to compact at if this server wins the round; `None` if another server
    /// wins, and in its first round.
    async fn compete(&mut self, etcd: &Etcd3) -> Result<Option<ResourceVersion>, Failure> {
        let known = self.rounds;
        let text = self.remembered.to_string();
        // Not repeated: after an unknown outcome the next round reads the result.
        let answer = etcd
            .cluster
            .call(Repeat::IfUnsent, WRITE_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                let txn = Txn::new()
                    .when([Compare::version(COMPACT_REV_KEY, CompareOp::Equal, known)])
                    .and_then([TxnOp::put(COMPACT_REV_KEY, text.clone(), None)])
                    .or_else([TxnOp::get(COMPACT_REV_KEY, None)]);
                async move { Ok(kv.txn(txn).await?) }
            })
            .await?;
        let header = answer
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision);
        let before = std::mem::replace(&mut self.remembered, revision(header));
        if answer.succeeded() {
            self.rounds += 1;
            return Ok((!before.is_zero()).then_some(before));
        }
        let found = answer
            .0
            .responses
            .into_iter()
            .find_map(|op| match op.response {
                Some(PbTxnOpResponse::ResponseRange(range)) => range.kvs.into_iter().next(),
                _ => None,
            });
        // If the key was deleted manually, the rounds start over.
        self.rounds = found.map_or(0, |kv| kv.version);
        Ok(None)
    }
}

/// Takes part in a round every `interval`, forever. Logs a failed round and continues.
pub(super) async fn run(etcd: &Etcd3, interval: Duration) {
    let mut compactor = Compactor::default();
    loop {
        tokio::time::sleep(interval).await;
        if let Err(error) = compactor.round(etcd).await {
            tracing::warn!(%error, "etcd compaction round failed");
        }
    }
}

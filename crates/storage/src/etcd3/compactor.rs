//! The compactor: all API servers of an etcd, including kube-apiserver, compete through one key on
//! which of them compacts in each interval, so that history is one to two intervals long. The
//! protocol is upstream's
//! ([compact.go](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/storage/etcd3/compact.go)).
//! `Etcd3::compact` compacts.

use std::time::Duration;

use super::Etcd3;
use super::WRITE_TIMEOUT;
use super::cluster::RetryPolicy;
use super::compacted_revision::COMPACT_REV_KEY;
use super::failure::Failure;
use super::keys::revision;
use crate::{Storage as _, StorageError};
use etcd_client::proto::PbTxnOpResponse;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use watchet_api::ResourceVersion;

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
            .call(RetryPolicy::NonRepeatable, WRITE_TIMEOUT, |member| {
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

impl Etcd3 {
    /// Takes part in a round every `interval`, forever. Logs a failed round and continues.
    pub(super) async fn run_compactor(&self, interval: Duration) {
        let mut compactor = Compactor::default();
        loop {
            tokio::time::sleep(interval).await;
            if let Err(error) = compactor.round(self).await {
                tracing::warn!(%error, "etcd compaction round failed");
            }
        }
    }
}

//! The Compactor: all API servers on one etcd, ours or Kubernetes', agree through one key on who
//! compacts in each interval, and history lives one to two intervals (§2.4). It decides when;
//! `Etcd3::compact` does it.

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
use crate::api::ResourceVersion;
use crate::storage::{Storage as _, StorageError};

/// The key of the agreement: Kubernetes' name, outside of every prefix.
const COMPACT_REV_KEY: &str = "compact_rev_key";

/// How long what was agreed on is taken for the present: each cache asks every now and then, and one
/// answer does for all that ask together.
const AGREED_FRESH: Duration = Duration::from_secs(5);

/// What the servers agreed on last, as this one knows it.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    /// And since when. An async lock, held while etcd is asked: those who wait are to share it.
    last: Mutex<Option<(ResourceVersion, Instant)>>,
}

impl Agreed {
    /// The compacted revision: the text under the key, zero before the first round.
    pub(super) async fn get(&self, etcd: &Etcd3) -> Result<ResourceVersion, StorageError> {
        let mut last = self.last.lock().await;
        if let Some((revision, since)) = *last
            && since.elapsed() < AGREED_FRESH
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

/// What one server remembers between rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Compactor {
    /// The key's version as this server knows it: how many rounds there were.
    rounds: i64,
    /// The store's revision at the last round, zero before the first.
    remembered: ResourceVersion,
}

impl Compactor {
    /// Takes part in one round and, as its winner, compacts.
    pub(super) async fn round(&mut self, etcd: &Etcd3) -> Result<(), StorageError> {
        let won = self
            .agree(etcd)
            .await
            .map_err(Failure::into_storage_error)?;
        if let Some(at) = won {
            etcd.compact(at).await?;
            tracing::debug!(revision = at.get(), "compacted etcd");
        }
        Ok(())
    }

    /// The revision that history now begins at by this server's doing: none when another was first,
    /// nor in its first round.
    async fn agree(&mut self, etcd: &Etcd3) -> Result<Option<ResourceVersion>, Failure> {
        let known = self.rounds;
        let text = self.remembered.to_string();
        // Not repeated: after an unknown outcome the next round finds out who won.
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
        // The key can have been deleted by hand: then the rounds start over.
        self.rounds = found.map_or(0, |kv| kv.version);
        Ok(None)
    }
}

/// Takes part in a round each `interval`, for ever. A round that fails is left to the next one.
pub(super) async fn run(etcd: &Etcd3, interval: Duration) {
    let mut compactor = Compactor::default();
    loop {
        tokio::time::sleep(interval).await;
        if let Err(error) = compactor.round(etcd).await {
            tracing::warn!(%error, "etcd compaction round failed");
        }
    }
}

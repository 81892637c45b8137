//! Recovers from a restore of etcd from a backup. A backup ends at an earlier revision than clients have received. Without a
//! recovery, etcd would use the same revisions again for other changes, and a client that resumes a watch would miss them.
//! So the server advances etcd's revision past the latest one that it has seen, by writes of a key of its own, and compacts etcd
//! there. Then all servers of this etcd, kube-apiservers included, end watches from earlier revisions with a 410. The
//! result is the same as that of `etcdutl snapshot restore --bump-revision --mark-compacted`.
//!
//! Lists, watches and reads of the current revision wait until the recovery has ended.

use futures_util::{StreamExt as _, stream};
use watchet_tasks::report_slow;

use super::cluster::RetryPolicy;
use super::failure::{Failure, RecoveryError};
use super::{Etcd3, WRITE_TIMEOUT, header_revision};
use crate::{Storage as _, StorageError};
use watchet_api::ResourceVersion;

/// How far etcd is advanced past the latest revision that this process has seen: other servers may have seen later ones.
const MARGIN: u64 = 1_000;

/// The same if an earlier process has seen the revision: it may have seen later ones in the second before it was killed.
const MARGIN_AFTER_RESTART: u64 = 10_000;

/// The maximum number of revisions that etcd is advanced by writes; that takes some minutes.
const ADVANCE_MAX: u64 = 1_000_000;

/// The number of concurrent writes. etcd writes many of them to its disk with one sync.
const WRITES: usize = 128;

/// The key of the writes. It is outside of the prefix, as the key of the compactor.
const ADVANCE_KEY: &str = "watchet_advance_key";

impl Etcd3 {
    /// Returns when no revision that clients have received can be used again.
    pub(super) async fn recover(&self) -> Result<(), RecoveryError> {
        self.recover_with(MARGIN).await
    }

    /// Notices and recovers a restore since an earlier process.
    pub(super) async fn recover_at_start(&self) -> Result<(), RecoveryError> {
        self.probe().await.map_err(Failure::into_storage_error)?;
        self.recover_with(MARGIN_AFTER_RESTART).await
    }

    async fn recover_with(&self, margin: u64) -> Result<(), RecoveryError> {
        let identity = self.cluster.identity();
        if identity.lost().is_none() {
            return Ok(());
        }
        let _turn = self.recovery.lock().await;
        while let Some(lost) = identity.lost() {
            self.advance_past(lost, margin).await?;
            identity.record_recovery(lost);
        }
        Ok(())
    }

    async fn advance_past(&self, lost: ResourceVersion, margin: u64) -> Result<(), RecoveryError> {
        let probed = self.probe().await;
        let restored = probed.map_err(Failure::into_storage_error)?;
        let target = lost.get().saturating_add(margin);
        if target.saturating_sub(restored.get()) > ADVANCE_MAX {
            return Err(RecoveryError::TooOld { restored, lost });
        }
        let report = |elapsed, is_done: bool| {
            if !is_done {
                tracing::info!(%restored, target, ?elapsed, "advancing the revision of the restored etcd");
            }
        };
        let advanced = report_slow(self.advance(restored, target), report).await?;
        self.compact(advanced).await?;
        tracing::warn!(
            %restored,
            %lost,
            %advanced,
            "advanced the revision of the restored etcd and compacted it: clients list again"
        );
        Ok(())
    }

    /// Writes until the revision is at least `target`, and returns it.
    async fn advance(
        &self,
        from: ResourceVersion,
        target: u64,
    ) -> Result<ResourceVersion, StorageError> {
        let mut at = from;
        let mut writes = stream::repeat_with(|| self.write_once()).buffer_unordered(WRITES);
        while at.get() < target {
            let written = writes.next().await.expect("the stream does not end");
            at = at.max(written.map_err(Failure::into_storage_error)?);
        }
        drop(writes);
        self.cluster
            .call(RetryPolicy::Repeatable, WRITE_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                async move { Ok(kv.delete(ADVANCE_KEY, None).await?) }
            })
            .await
            .map_err(Failure::into_storage_error)?;
        Ok(at)
    }

    /// Writes the key, and returns the revision of the write.
    async fn write_once(&self) -> Result<ResourceVersion, Failure> {
        let answer = self
            .cluster
            .call(RetryPolicy::Repeatable, WRITE_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                async move { Ok(kv.put(ADVANCE_KEY, Vec::new(), None).await?) }
            })
            .await?;
        Ok(header_revision(answer.header()))
    }
}

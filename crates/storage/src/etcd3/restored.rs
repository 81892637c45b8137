//! Advances an etcd that was restored from a backup. A backup ends at an earlier revision than clients have received, and
//! etcd would use the same revisions again for other changes: a client that resumes a watch would miss some. So the server
//! advances etcd's revision past the latest one that it has seen, by writes of a key of its own, and compacts etcd there.
//! Then a watch, list or continue token from an earlier revision gets a 410. `etcdutl snapshot restore --bump-revision
//! --mark-compacted` does the same.
//!
//! All other operations wait until that is done. The key exists until then, so that the next process continues if this one
//! is killed.

use futures_util::future::try_join_all;
use watchet_tasks::report_slow;

use super::cluster::RetryPolicy;
use super::failure::{ADVANCE_KEY, AdvanceError, Failure};
use super::keys::header_revision;
use super::{Etcd3, WRITE_TIMEOUT};
use watchet_api::ResourceVersion;

/// How far etcd is advanced past the latest revision that this process has seen: other servers may have seen later ones.
const MARGIN: u64 = 1_000;

/// The same if an earlier process has seen the revision: it may have seen later ones in the second before it was killed.
const MARGIN_AFTER_RESTART: u64 = 10_000;

/// The maximum number of revisions that etcd is advanced by writes; that takes some minutes.
const ADVANCE_MAX: u64 = 1_000_000;

/// The number of concurrent writes. etcd writes many of them to its disk with one sync.
const WRITES: usize = 128;

/// The number of writes between compactions, so that they do not fill the database of etcd.
const WRITES_PER_COMPACTION: u64 = 50_000;

impl Etcd3 {
    /// Returns when etcd is past all revisions that it has lost.
    pub(super) async fn wait_until_advanced(&self) -> Result<(), AdvanceError> {
        match self.cluster.identity().lost() {
            None => Ok(()),
            Some(_) => self.advance_past_lost(MARGIN).await,
        }
    }

    /// Detects a restore since an earlier process, and continues what a killed process has begun.
    pub(super) async fn advance_at_start(&self) -> Result<(), AdvanceError> {
        let (begun, at) = match self.read(ADVANCE_KEY.into()).await {
            Ok(read) => read,
            // A user of etcd without a permission for the key. A server with this user cannot have begun.
            Err(Failure::Refused(_)) => {
                let probed = self.probe().await;
                (None, probed.map_err(Failure::into_storage_error)?)
            }
            Err(failure) => return Err(failure.into_storage_error().into()),
        };
        self.advance_past_lost(MARGIN_AFTER_RESTART).await?;
        // The server that began may still run, and have deleted the key meanwhile.
        if let Some(target) =
            begun.and_then(|kv| std::str::from_utf8(kv.value()).ok()?.parse().ok())
        {
            self.advance(at, ResourceVersion::new(target)).await?;
        }
        Ok(())
    }

    async fn advance_past_lost(&self, margin: u64) -> Result<(), AdvanceError> {
        let identity = self.cluster.identity();
        let _guard = self.advancing.lock().await;
        while let Some(lost) = identity.lost() {
            let probed = self.probe().await;
            let restored = probed.map_err(Failure::into_storage_error)?;
            let target = ResourceVersion::new(lost.get().saturating_add(margin));
            let advanced = self.advance(restored, target).await?;
            identity.record_advance(lost, advanced);
            tracing::warn!(
                %restored, %lost, %advanced,
                "advanced the revision of the restored etcd and compacted it"
            );
        }
        Ok(())
    }

    /// Writes until the revision is at least `target`, compacts, and returns the revision.
    async fn advance(
        &self,
        restored: ResourceVersion,
        target: ResourceVersion,
    ) -> Result<ResourceVersion, AdvanceError> {
        if target.get().saturating_sub(restored.get()) > ADVANCE_MAX {
            return Err(AdvanceError::TooOld { restored, target });
        }
        let report = |elapsed, is_done: bool| {
            if !is_done {
                tracing::info!(%restored, %target, ?elapsed, "advancing the revision of the restored etcd");
            }
        };
        let written = report_slow(self.write_until(target), report).await;
        written.map_err(|failure| AdvanceError::Failed {
            restored,
            target,
            error: failure.into_storage_error(),
        })
    }

    async fn write_until(&self, target: ResourceVersion) -> Result<ResourceVersion, Failure> {
        // At least one write, so that the key exists before the compaction.
        let mut at = self.write_advance_key(target).await?;
        let mut compacted = at;
        while at < target {
            let writes = (0..WRITES).map(|_| self.write_advance_key(target));
            // All of them end before the key is deleted.
            let written = try_join_all(writes).await?;
            at = written.into_iter().fold(at, ResourceVersion::max);
            if at.get() - compacted.get() >= WRITES_PER_COMPACTION {
                self.compact_at(at).await?;
                compacted = at;
            }
        }
        self.compact_at(at).await?;
        self.cluster
            .call(RetryPolicy::Repeatable, WRITE_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                async move { Ok(kv.delete(ADVANCE_KEY, None).await?) }
            })
            .await?;
        Ok(at)
    }

    /// Writes the key, and returns the revision of the write.
    async fn write_advance_key(&self, target: ResourceVersion) -> Result<ResourceVersion, Failure> {
        let answer = self
            .cluster
            .call(RetryPolicy::Repeatable, WRITE_TIMEOUT, |member| {
                let mut kv = member.calls().kv;
                async move { Ok(kv.put(ADVANCE_KEY, target.to_string(), None).await?) }
            })
            .await?;
        Ok(header_revision(answer.header()))
    }
}

//! A storage that does not respond to some calls, without failing; all others go to the scripted
//! storage inside.

use async_trait::async_trait;

use super::*;
use watchet_storage::*;

#[derive(Debug)]
pub(crate) struct Silent {
    /// Watches from an earlier version than this do not respond.
    pub(crate) watches_before: ResourceVersion,
    /// If true, requests for the current revision do not respond.
    pub(crate) probes: bool,
    pub(crate) storage: Arc<FakeStorage>,
}

impl Silent {
    /// Returns a storage that responds to all calls.
    pub(crate) fn over(storage: Arc<FakeStorage>) -> Self {
        Self {
            watches_before: ResourceVersion::ZERO,
            probes: false,
            storage,
        }
    }
}

#[async_trait]
impl Storage for Silent {
    fn name(&self) -> &'static str {
        self.storage.name()
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        self.storage.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        self.storage.list(request).await
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        self.storage.put(put).await
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        self.storage.delete(key, expect).await
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        if after >= self.watches_before {
            return self.storage.watch(prefix, after).await;
        }
        Ok(StorageWatch {
            batches: Box::pin(futures_util::stream::pending()),
            progress: ProgressRequester::default(),
        })
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        match self.probes {
            true => std::future::pending().await,
            false => self.storage.current_revision().await,
        }
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        self.storage.compact(at).await
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.storage.compacted_revision().await
    }

    fn progress_supported(&self) -> bool {
        self.storage.progress_supported()
    }

    async fn maintain(&self, cancel: CancellationToken) {
        self.storage.maintain(cancel).await;
    }
}

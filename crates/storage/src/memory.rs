//! The memory back end: the embedded store without a disk, for tests and trials. Its data is lost
//! when the process ends.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::embedded::{Embedded, EmbeddedConfig, OpenError};
use super::{
    KeyValue, ListPage, ListRequest, ListVisitor, Outcome, Put, RevisionTimes, Storage,
    StorageError, StorageWatch,
};
use watchet_api::{ResourceVersion, StorageKey};

/// A store that loses its data when it is dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use watchet_storage::{Storage, memory::Memory};
/// let store = Memory::new(Duration::from_secs(300)).unwrap();
/// assert_eq!(store.current_revision().await.unwrap().get(), 1);
/// # }
/// ```
#[derive(Debug)]
pub struct Memory(Embedded);

impl Memory {
    /// Creates an empty store. `compaction_interval` is that of
    /// [`EmbeddedConfig`].
    ///
    /// # Errors
    /// Returns [`OpenError`] if the writer thread cannot be started.
    pub fn new(compaction_interval: Duration) -> Result<Arc<Self>, OpenError> {
        Self::with_config(EmbeddedConfig {
            compaction_interval,
            ..EmbeddedConfig::default()
        })
    }

    /// Creates an empty store with the retention of `config`. Its durability has no effect.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_config(config: EmbeddedConfig) -> Result<Arc<Self>, OpenError> {
        Ok(Arc::new(Self(Embedded::in_memory_with(config)?)))
    }

    /// As [`Self::with_config`], for a store whose first revision is `first`: it has compacted what was before.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn beginning_at(
        first: ResourceVersion,
        config: EmbeddedConfig,
    ) -> Result<Arc<Self>, OpenError> {
        let embedded = Embedded::in_memory_beginning_at(first.get(), config)?;
        Ok(Arc::new(Self(embedded)))
    }
}

#[async_trait]
impl Storage for Memory {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        self.0.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        self.0.list(request).await
    }

    async fn visit(
        &self,
        prefix: &StorageKey,
        visitor: Arc<dyn ListVisitor>,
    ) -> Option<Result<ResourceVersion, StorageError>> {
        self.0.visit(prefix, visitor).await
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        self.0.put(put).await
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        self.0.delete(key, expect).await
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        self.0.watch(prefix, after).await
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.0.current_revision().await
    }

    fn known_revision(&self) -> Option<Result<ResourceVersion, StorageError>> {
        self.0.known_revision()
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        self.0.compact(at).await
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.0.compacted_revision().await
    }

    fn revision_times(&self) -> Option<Arc<RevisionTimes>> {
        self.0.revision_times()
    }

    fn progress_supported(&self) -> bool {
        self.0.progress_supported()
    }

    async fn maintain(&self, cancel: CancellationToken) {
        self.0.maintain(cancel).await;
    }
}

//! `StorageLayer`: a storage over another one, which forwards what it does not change.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    BackupStream, KeyValue, ListPage, ListRequest, ListVisitor, Outcome, Put, RevisionTimes,
    Storage, StorageError, StorageWatch,
};
use watchet_api::{ResourceVersion, StorageKey};

/// A storage over another one: it measures, encrypts or converts what passes. Each method forwards to the method of [`Storage`] with
/// the same name unless the layer replaces it, so that no layer hides a method of the storage below it. A layer that changes
/// values replaces `get`, `list`, `visit`, `put`, `delete` and `watch`.
///
/// ```
/// use std::sync::Arc;
///
/// use watchet_storage::{Storage, StorageLayer, memory::Memory};
///
/// #[derive(Debug)]
/// struct Renamed(Arc<dyn Storage>);
///
/// impl StorageLayer for Renamed {
///     fn inner(&self) -> &Arc<dyn Storage> {
///         &self.0
///     }
///
///     fn name(&self) -> &'static str {
///         "renamed"
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let storage: Arc<dyn Storage> = Arc::new(Renamed(Memory::new(std::time::Duration::from_secs(300))?));
/// assert_eq!(storage.name(), "renamed");
/// assert!(storage.progress_supported());
/// # Ok(()) }
/// ```
#[async_trait]
pub trait StorageLayer: Send + Sync + std::fmt::Debug + 'static {
    /// Returns the storage below.
    fn inner(&self) -> &Arc<dyn Storage>;

    /// See [`Storage::name`].
    fn name(&self) -> &'static str {
        self.inner().name()
    }

    /// See [`Storage::get`].
    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        self.inner().get(key).await
    }

    /// See [`Storage::list`].
    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        self.inner().list(request).await
    }

    /// See [`Storage::visit`].
    async fn visit(
        &self,
        prefix: &StorageKey,
        visitor: Arc<dyn ListVisitor>,
    ) -> Option<Result<ResourceVersion, StorageError>> {
        self.inner().visit(prefix, visitor).await
    }

    /// See [`Storage::put`].
    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        self.inner().put(put).await
    }

    /// See [`Storage::delete`].
    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        self.inner().delete(key, expect).await
    }

    /// See [`Storage::watch`].
    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        self.inner().watch(prefix, after).await
    }

    /// See [`Storage::current_revision`].
    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.inner().current_revision().await
    }

    /// See [`Storage::known_revision`].
    fn known_revision(&self) -> Option<Result<ResourceVersion, StorageError>> {
        self.inner().known_revision()
    }

    /// See [`Storage::compact`].
    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        self.inner().compact(at).await
    }

    /// See [`Storage::size_bytes`].
    async fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        self.inner().size_bytes().await
    }

    /// See [`Storage::compacted_revision`].
    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.inner().compacted_revision().await
    }

    /// See [`Storage::revision_times`].
    fn revision_times(&self) -> Option<Arc<RevisionTimes>> {
        self.inner().revision_times()
    }

    /// See [`Storage::incarnation`].
    fn incarnation(&self) -> u64 {
        self.inner().incarnation()
    }

    /// See [`Storage::recoveries`].
    fn recoveries(&self) -> Option<watch::Receiver<u64>> {
        self.inner().recoveries()
    }

    /// See [`Storage::progress_supported`].
    fn progress_supported(&self) -> bool {
        self.inner().progress_supported()
    }

    /// See [`Storage::backup`]. The values of the backup are those of the storage below.
    fn backup(&self) -> Option<BackupStream> {
        Arc::clone(self.inner()).backup()
    }

    /// See [`Storage::maintain`].
    async fn maintain(&self, cancel: CancellationToken) {
        self.inner().maintain(cancel).await;
    }
}

#[async_trait]
impl<L: StorageLayer> Storage for L {
    fn name(&self) -> &'static str {
        StorageLayer::name(self)
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        StorageLayer::get(self, key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        StorageLayer::list(self, request).await
    }

    async fn visit(
        &self,
        prefix: &StorageKey,
        visitor: Arc<dyn ListVisitor>,
    ) -> Option<Result<ResourceVersion, StorageError>> {
        StorageLayer::visit(self, prefix, visitor).await
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        StorageLayer::put(self, put).await
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        StorageLayer::delete(self, key, expect).await
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        StorageLayer::watch(self, prefix, after).await
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        StorageLayer::current_revision(self).await
    }

    fn known_revision(&self) -> Option<Result<ResourceVersion, StorageError>> {
        StorageLayer::known_revision(self)
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        StorageLayer::compact(self, at).await
    }

    async fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        StorageLayer::size_bytes(self).await
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        StorageLayer::compacted_revision(self).await
    }

    fn revision_times(&self) -> Option<Arc<RevisionTimes>> {
        StorageLayer::revision_times(self)
    }

    fn incarnation(&self) -> u64 {
        StorageLayer::incarnation(self)
    }

    fn recoveries(&self) -> Option<watch::Receiver<u64>> {
        StorageLayer::recoveries(self)
    }

    fn progress_supported(&self) -> bool {
        StorageLayer::progress_supported(self)
    }

    fn backup(self: Arc<Self>) -> Option<BackupStream> {
        StorageLayer::backup(&*self)
    }

    async fn maintain(&self, cancel: CancellationToken) {
        StorageLayer::maintain(self, cancel).await;
    }
}

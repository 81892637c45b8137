//! Storage: a trait over a revisioned key-value store with etcd's semantics (one global revision,
//! compare-and-swap, lists at a revision, watches, compaction), and its back ends. Values are
//! opaque bytes.
//!
//! # Definitions
//!
//! - *Revision*: a `ResourceVersion`. Each successful put or delete creates a new one, greater than
//!   all before, over all keys. It can contain several changes of different keys: a transaction of
//!   another client of the same etcd, or an expired lease, which deletes its keys.
//! - *History*: lists and watches are possible at every revision back to the compacted one.
//!
//! # Invariants, which the shared test suite of the back ends checks
//!
//! 1. Every later read, list, revision request and watch sees an acknowledged write.
//! 2. A watch after revision R delivers every change of its prefix with a greater revision once, in
//!    order, or fails with [`StorageError::Compacted`]; there is no gap. A batch contains all of a
//!    revision's changes of the prefix or none.
//! 3. A list is the state at exactly the revision that it returns.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use futures_util::StreamExt as _;
//! use watchet_api::StorageKey;
//! use watchet_storage::memory::Memory;
//! use watchet_storage::{Expect, Outcome, Put, Storage as _};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Memory::new(Duration::from_secs(300))?;
//! let prefix = StorageKey::new("/configmaps/")?;
//! let mut watch = store.watch(&prefix, store.current_revision().await?).await?;
//!
//! let key = prefix.join("default/settings")?;
//! let create = Put { key, value: "{}".into(), expect: Expect::Absent, ttl: None };
//! let Outcome::Done(revision) = store.put(create.clone()).await? else {
//!     panic!("the key did not exist");
//! };
//! assert_eq!(store.put(create).await?, Outcome::Refused(None));
//!
//! let batch = watch.batches.next().await.expect("the watch is open")?;
//! assert!(batch.events[0].is_create());
//! assert_eq!(batch.events[0].revision, revision);
//! # Ok(())
//! # }
//! ```

mod clock;
pub mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd3;
mod layer;
pub mod memory;
mod metered;
mod private_file;
mod revision_times;
mod unreadable_value;
mod visit;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use layer::StorageLayer;
pub use metered::MeteredStorage;
pub use private_file::lock_with_retries;
pub use revision_times::{RevisionSample, RevisionTimes};
pub use unreadable_value::{encryption_prefix, undecodable_value, unreadable_reason};
pub use visit::{ListVisitor, VisitedValue};

use watchet_api::{ResourceVersion, StorageKey};

/// A stored value with its revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: StorageKey,
    /// The value.
    pub value: Bytes,
    /// The revision that created the key (after its last deletion).
    pub create_revision: ResourceVersion,
    /// The revision that wrote this value.
    pub mod_revision: ResourceVersion,
    /// True if a write of the same value would store it in another form, for example encrypted with
    /// another key. Back ends return false; storages that transform values return true.
    pub is_stale: bool,
}

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key exists and its last write was at this revision.
    At(ResourceVersion),
}

/// A value to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: StorageKey,
    /// The value.
    pub value: Bytes,
    /// The condition.
    pub expect: Expect,
    /// Deletes the key after this time, plus the slack of a lease; `None` never. An update without
    /// a TTL removes an earlier TTL.
    pub ttl: Option<Duration>,
}

/// The outcome of a conditional write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The write succeeded at this revision.
    Done(ResourceVersion),
    /// The condition failed; this is the current value. A put that expected absence does not read
    /// the value and returns `None`.
    Refused(Option<KeyValue>),
}

/// A request for part of a list: keys under `prefix`, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// The range: a prefix ending in `/`.
    pub prefix: StorageKey,
    /// The start key (inclusive), relative to the prefix; empty for the beginning.
    pub start: String,
    /// The revision; `None` for the latest.
    pub at: Option<ResourceVersion>,
    /// Maximum number of items; 0 for no limit.
    pub limit: usize,
    /// True to count the keys after the page: a back end may have to scan all of them.
    pub count: bool,
}

/// Part of a list at `revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage {
    /// The values, in key order.
    pub items: Vec<KeyValue>,
    /// The revision of the list; equals [`ListRequest::at`] if that is set.
    pub revision: ResourceVersion,
    /// True if the range has keys after the last item, at `revision`.
    pub more: bool,
    /// The number of those keys, if [`ListRequest::count`] is set.
    pub remaining: Option<u64>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageEvent {
    /// The key.
    pub key: StorageKey,
    /// The revision of the change.
    pub revision: ResourceVersion,
    /// The new value; `None` for a deletion.
    pub value: Option<Bytes>,
    /// The previous value; `None` for a creation.
    pub previous: Option<Bytes>,
}

impl StorageEvent {
    /// Returns true if the key did not exist before.
    pub fn is_create(&self) -> bool {
        self.value.is_some() && self.previous.is_none()
    }
}

/// Changes of whole revisions, in order; empty for a progress notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageBatch {
    /// The changes.
    pub events: Vec<StorageEvent>,
    /// All changes of the prefix up to and including this revision have been delivered.
    pub revision: ResourceVersion,
}

/// An open watch. Dropping the stream ends it.
pub struct StorageWatch {
    /// The batches. An error ends the stream.
    pub batches: Pin<Box<dyn Stream<Item = Result<StorageBatch, StorageError>> + Send>>,
    /// Requests progress on this watch.
    pub progress: ProgressRequester,
}

impl std::fmt::Debug for StorageWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StorageWatch")
    }
}

/// Requests progress on an open watch: a batch follows, possibly empty, with at least the store's
/// revision at the time of the request. One response answers all earlier requests. While the store
/// is still at the revision after which the watch began, a response may be missing (etcd from 3.6 on).
#[derive(Debug, Clone, Default)]
pub struct ProgressRequester(Arc<tokio::sync::Notify>);

impl ProgressRequester {
    /// Requests progress. Does nothing if the watch has ended.
    pub fn request(&self) {
        self.0.notify_one();
    }

    /// Waits for a request since the last call; for back ends.
    pub async fn requested(&self) {
        self.0.notified().await;
    }
}

/// The error of a storage request. A failed condition is not an error but an [`Outcome`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// The requested revision is compacted.
    #[error("required revision {requested} has been compacted (history begins after {compacted})")]
    Compacted {
        /// The requested revision.
        requested: ResourceVersion,
        /// The compacted revision; later revisions can be read.
        compacted: ResourceVersion,
    },
    /// The requested revision is in the future: the store has not reached it, or has lost
    /// acknowledged writes.
    #[error("revision {requested} is ahead of the store, which is at {current}")]
    Future {
        /// The requested revision.
        requested: ResourceVersion,
        /// The store's revision.
        current: ResourceVersion,
    },
    /// The value exceeds the store's limit.
    #[error("value of {key} is too large: {detail}")]
    TooLarge {
        /// The key.
        key: StorageKey,
        /// The store's message.
        detail: String,
    },
    /// The store cannot be reached, or did not respond to a read in time. A write was not executed and
    /// will not be, so the caller may repeat it.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// The store may have executed the write, or may execute it later: it received the write but did not
    /// acknowledge it. Read the key before you repeat the write.
    #[error("the outcome of the write is unknown: {0}")]
    OutcomeUnknown(String),
    /// The stored data is damaged. Damaged data is never returned.
    #[error("storage is corrupt: {0}")]
    Corrupt(String),
    /// Any other error of the store.
    #[error("storage failed: {0}")]
    Failed(String),
}

/// The parts of a backup. See [`embedded::restore`].
pub type BackupStream = Pin<Box<dyn Stream<Item = Result<Bytes, StorageError>> + Send>>;

/// A revisioned store.
#[async_trait]
pub trait Storage: Send + Sync + std::fmt::Debug + 'static {
    /// Returns the name of the back end for logs, such as `embedded`.
    fn name(&self) -> &'static str;

    /// Returns the latest value of `key` and the store's revision at the time. Linearizable.
    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError>;

    /// Returns part of a list.
    ///
    /// # Errors
    /// Returns [`StorageError::Compacted`] or [`StorageError::Future`] according to
    /// [`ListRequest::at`].
    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError>;

    /// Passes the values of `prefix`, at the latest revision, to `visitor`, and returns that revision:
    /// a list for a caller that decodes each value and does not retain it. Returns `None` if the
    /// storage has no faster way than [`list`](Self::list), before it has passed any.
    ///
    /// If the result is an error or the call is dropped, `visitor` has received some of the values,
    /// and may receive more.
    async fn visit(
        &self,
        prefix: &StorageKey,
        visitor: Arc<dyn ListVisitor>,
    ) -> Option<Result<ResourceVersion, StorageError>> {
        let _unused = (prefix, visitor);
        None
    }

    /// Writes a value if the key meets the expectation.
    async fn put(&self, put: Put) -> Result<Outcome, StorageError>;

    /// Deletes `key` if its last write was at `expect`.
    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError>;

    /// Watches changes under `prefix` after revision `after`. A future revision is an error: the
    /// store has lost it since the caller saw it.
    ///
    /// # Errors
    /// Returns [`StorageError::Future`]. [`StorageError::Compacted`] may be returned here or as the
    /// first item.
    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError>;

    /// Returns the revision of the last write acknowledged before the call. Linearizable.
    async fn current_revision(&self) -> Result<ResourceVersion, StorageError>;

    /// Returns the current revision if it is known without a request; `None` otherwise.
    fn known_revision(&self) -> Option<Result<ResourceVersion, StorageError>> {
        None
    }

    /// Compacts history: afterwards the oldest state that can be listed is that of `at`, and
    /// watches start after `at` or later.
    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError>;

    /// Returns the store's size on disk in bytes, history included; `None` if it uses no disk.
    async fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// Returns the compacted revision, so that all servers on a store reject the same versions;
    /// zero if there is none. With etcd it is the revision that the servers' compactors agreed on,
    /// cached for some seconds; manual compactions affect reads only.
    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError>;

    /// Returns the revisions of the store at past times, as far as [`Self::maintain`] records them; `None` if it
    /// records none.
    fn revision_times(&self) -> Option<Arc<RevisionTimes>> {
        None
    }

    /// Returns a number that changes when the store has been replaced by another one, for example restored from
    /// a backup: the revisions of the former may have other contents now. Zero until then.
    fn incarnation(&self) -> u64 {
        0
    }

    /// Returns a receiver that changes when an outage of the store has ended, so that a caller that waits
    /// before a retry can retry then; `None` if the store has no outages.
    fn recoveries(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Returns true if progress responses are correct (in etcd from 3.5.13 on). Otherwise a cache
    /// cannot prove that it is fresh. The result can change while watches are open;
    /// [`Self::maintain`] updates it.
    fn progress_supported(&self) -> bool;

    /// Returns a backup of the objects at the revision at which the stream is first polled, in parts;
    /// `None` if the storage has none of its own. It is read while writes go on. An error ends it.
    fn backup(self: Arc<Self>) -> Option<BackupStream> {
        None
    }

    /// Runs background tasks (compaction, expiry, version checks of members) until `cancel`; then
    /// flushes writes of interval durability.
    async fn maintain(&self, cancel: CancellationToken);
}

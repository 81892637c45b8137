//! Storage: the truth. One trait over a revisioned key-value store with etcd's semantics (one global
//! revision, compare-and-swap, lists at a revision, watches from one, compaction) and its back ends.
//! It stores bytes without looking at them: objects, resources and caches are unknown here.
//!
//! # Definitions
//!
//! - *Revision*: a `ResourceVersion`. Each successful put or delete makes a new one, one greater (or
//!   more: another writer's) than any before, over all keys. It can hold several changes, each of
//!   another key: a transaction of another client of the same etcd, or the end of a lease, which
//!   deletes every key on it.
//! - *History*: every revision back to the compacted one can be listed at and watched from.
//!
//! # Invariants, which the back ends' shared test-suite checks
//!
//! 1. An acknowledged write is seen by every later read, list, probe and watch.
//! 2. A watch after revision R delivers every change of its prefix with a revision greater than R,
//!    once, in order, or fails with [`StorageError::Compacted`]; never a gap. A batch holds all of a
//!    revision's changes of the prefix or none.
//! 3. A list is the state at exactly the revision that it reports.

pub mod embedded;
pub mod etcd3;
pub mod memory;
mod metered;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

pub use metered::Metered;

use crate::api::{ResourceVersion, StorageKey};

/// A stored value and the revisions that concern it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// Where it is.
    pub key: StorageKey,
    /// What it is.
    pub value: Bytes,
    /// The revision that created the key (after its last deletion).
    pub create_revision: ResourceVersion,
    /// The revision that wrote this value.
    pub mod_revision: ResourceVersion,
}

/// What a write demands of the key as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It does not exist.
    Absent,
    /// It exists and was last written at this revision.
    At(ResourceVersion),
}

/// A value to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// Where.
    pub key: StorageKey,
    /// What.
    pub value: Bytes,
    /// Only when.
    pub expect: Expect,
    /// Delete it after this time, give or take a lease's slack; `None` keeps it. An update without a
    /// TTL frees the key from an earlier one.
    pub ttl: Option<Duration>,
}

/// How a conditional write went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was made, at this revision.
    Done(ResourceVersion),
    /// The key was not as expected; this is how it is. A put that expected absence does not read
    /// the value: it reports `None`.
    Refused(Option<KeyValue>),
}

/// Part of a list: keys under `prefix`, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// The range: a prefix ending in `/`.
    pub prefix: StorageKey,
    /// Where in it to start (inclusive), relative to the prefix; empty for its beginning.
    pub start: String,
    /// At which state; `None` for the latest.
    pub at: Option<ResourceVersion>,
    /// At most so many; 0 for no limit.
    pub limit: usize,
    /// Whether to count what follows the page: a back end may have to walk over all of it.
    pub count: bool,
}

/// Part of a list as it was at `revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage {
    /// The values, in key order.
    pub items: Vec<KeyValue>,
    /// The state that was read. With [`ListRequest::at`] it is that revision.
    pub revision: ResourceVersion,
    /// Whether the range has keys after the last item, at `revision`.
    pub more: bool,
    /// How many; told when [`ListRequest::count`] asks for it.
    pub remaining: Option<u64>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageEvent {
    /// Which key.
    pub key: StorageKey,
    /// The revision of the change.
    pub revision: ResourceVersion,
    /// The value written; `None` is a deletion.
    pub value: Option<Bytes>,
    /// The value before; `None` for a creation.
    pub previous: Option<Bytes>,
}

impl StorageEvent {
    /// Whether the key did not exist before.
    pub fn is_create(&self) -> bool {
        self.value.is_some() && self.previous.is_none()
    }
}

/// Changes in order, revisions whole; empty when the watch only says how far it is (a progress notification).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageBatch {
    /// The changes.
    pub events: Vec<StorageEvent>,
    /// Every change of the prefix up to and including this revision has now been delivered.
    pub revision: ResourceVersion,
}

/// An open watch. Dropping the stream ends it.
pub struct StorageWatch {
    /// The batches. After an error it ends.
    pub batches: Pin<Box<dyn Stream<Item = Result<StorageBatch, StorageError>> + Send>>,
    /// Asks for progress on this watch.
    pub progress: ProgressRequester,
}

impl std::fmt::Debug for StorageWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StorageWatch")
    }
}

/// Asks an open watch to say how far it is: a batch follows, empty or not, whose revision is at
/// least that of the store when the request was made. Requests made together are answered together.
#[derive(Debug, Clone, Default)]
pub struct ProgressRequester(Arc<tokio::sync::Notify>);

impl ProgressRequester {
    /// Asks. Does nothing when the watch has ended.
    pub fn request(&self) {
        self.0.notify_one();
    }

    /// Waits until somebody has asked since the last call; for the back end's side.
    pub async fn requested(&self) {
        self.0.notified().await;
    }
}

/// Why storage did not do as asked. A refused condition is no error but an [`Outcome`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// History begins later.
    #[error("required revision {requested} has been compacted (history begins after {compacted})")]
    Compacted {
        /// What was asked.
        requested: ResourceVersion,
        /// The compacted revision; what is above it can be read.
        compacted: ResourceVersion,
    },
    /// The store is not there: not yet, or no longer, because it lost what it had acknowledged.
    #[error("revision {requested} is ahead of the store, which is at {current}")]
    Future {
        /// What was asked.
        requested: ResourceVersion,
        /// Where the store is.
        current: ResourceVersion,
    },
    /// The value is larger than the store takes.
    #[error("value of {key} is too large: {detail}")]
    TooLarge {
        /// Which.
        key: StorageKey,
        /// The store's words.
        detail: String,
    },
    /// The store cannot be reached, or did not answer in time. A write may or may not have happened.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// What the store holds is damaged. Nothing damaged is ever returned.
    #[error("storage is corrupt: {0}")]
    Corrupt(String),
    /// The store refuses for a reason of its own.
    #[error("storage failed: {0}")]
    Failed(String),
}

/// A revisioned store.
#[async_trait]
pub trait Storage: Send + Sync + std::fmt::Debug + 'static {
    /// `embedded`, `memory` or `etcd`.
    fn name(&self) -> &'static str;

    /// The latest value of `key`, and the store's revision when it was read. Linearizable.
    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError>;

    /// Part of a list.
    ///
    /// # Errors
    /// [`StorageError::Compacted`], [`StorageError::Future`] by [`ListRequest::at`].
    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError>;

    /// Writes a value if the key is as expected.
    async fn put(&self, put: Put) -> Result<Outcome, StorageError>;

    /// Deletes `key` if it was last written at `expect`.
    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError>;

    /// The changes under `prefix` after revision `after`, which the store has made: who watches after
    /// one in the future has it from a store that has lost it since.
    ///
    /// # Errors
    /// [`StorageError::Future`]. [`StorageError::Compacted`], here or as the first item.
    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError>;

    /// The revision of the last write that was acknowledged before the call. Linearizable.
    async fn current_revision(&self) -> Result<ResourceVersion, StorageError>;

    /// The same, from a store that knows without asking anybody; `None` from one that has to ask.
    fn known_revision(&self) -> Option<Result<ResourceVersion, StorageError>> {
        None
    }

    /// Forgets history: afterwards the oldest state that can be listed is that of `at`, and watches
    /// start after `at` or later.
    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError>;

    /// How many bytes of disk the store takes, history included; `None` when it takes none.
    async fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// The revision before which history is forgotten, so that every server on one store can refuse the
    /// same: zero when nothing is. With etcd it is what the servers' Compactor agreed on, known some
    /// seconds late; what somebody compacts besides shows in reads only.
    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError>;

    /// Whether a [`ProgressRequester`] is answered truthfully (etcd before 3.5.13 does not). When it
    /// is not, a cache cannot prove that it is fresh. It can change while watches are open, which then
    /// answer, or no longer do. [`Self::maintain`] keeps it up to date.
    fn progress_supported(&self) -> bool;

    /// Background duties (compaction each interval, expiry, members' versions), until `cancel`; then flushes what an
    /// interval durability still holds back.
    async fn maintain(&self, cancel: CancellationToken);
}

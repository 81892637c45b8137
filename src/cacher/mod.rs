//! The watch cache. (skeleton: signatures that other rooms build on)

use std::sync::Arc;
use std::time::Duration;

use crate::api::{
    ColumnSet, FieldRef, GetOptions, InvalidContinueToken, ListOptions, Object, ObjectKey,
    ResourceVersion, SelectionPredicate, StorageKey, WatchEvent,
};
use crate::storage::{Storage, StorageError};
use crate::tasks::Tasks;

/// What a Cacher needs to know of its resource.
#[derive(Debug, Clone)]
pub struct CachedResource {
    /// For logs and metrics: `pods`, `deployments.apps`.
    pub name: String,
    /// Where the objects are: a prefix ending in `/`.
    pub prefix: StorageKey,
    /// The selectable fields.
    pub columns: Arc<ColumnSet>,
    /// Fields that watches often pin (`spec.nodeName`): an event is only shown to watchers of its
    /// values.
    pub triggers: Vec<FieldRef>,
}

/// Limits of a Cacher.
#[derive(Debug, Clone)]
pub struct CacherConfig {
    /// How long history is kept at least, memory permitting.
    pub history_window: Duration,
    /// How much memory one resource's history may take, in bytes.
    pub history_bytes_max: usize,
    /// How long a read waits for the cache to reach a version.
    pub freshness_timeout: Duration,
    /// How long a request waits for a cold cache.
    pub start_timeout: Duration,
    /// How often an idle watch gets a bookmark.
    pub bookmark_period: Duration,
}

impl Default for CacherConfig {
    fn default() -> Self {
        Self {
            history_window: Duration::from_secs(75),
            history_bytes_max: 256 << 20,
            freshness_timeout: Duration::from_secs(3),
            start_timeout: Duration::from_secs(30),
            bookmark_period: Duration::from_secs(60),
        }
    }
}

/// Why a read was not answered. Matched once to a Status, in `http`.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// History no longer reaches back so far: 410 Expired.
    #[error("too old resource version: {requested} ({oldest})")]
    Expired {
        /// What was asked.
        requested: ResourceVersion,
        /// The oldest that can be served.
        oldest: ResourceVersion,
        /// For a continued list: a token that goes on inconsistently, at the latest state.
        fresh_token: Option<String>,
    },
    /// The version asked for has not happened yet: 504.
    #[error("Too large resource version: {requested}, current: {current}")]
    TooLargeResourceVersion {
        /// What was asked.
        requested: ResourceVersion,
        /// Where the cache is.
        current: ResourceVersion,
        /// 1 from the cache, 0 from storage.
        retry_after: Duration,
    },
    /// The cache is (re)initializing: 429.
    #[error("storage is (re)initializing: {detail}")]
    NotReady {
        /// The last error.
        detail: String,
        /// When to come back.
        retry_after: Duration,
    },
    /// 400.
    #[error("invalid continue token: {0}")]
    InvalidContinue(#[from] InvalidContinueToken),
    /// A stored object cannot be decoded: 500.
    #[error("{0}")]
    Undecodable(String),
    /// The server is shutting down: 503.
    #[error("the cache has stopped")]
    Stopped,
    /// Storage itself was asked, and failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// An answered list.
#[derive(Debug, Clone)]
pub struct ObjectList {
    /// The version of the list.
    pub resource_version: ResourceVersion,
    /// The objects, in key order.
    pub items: Vec<Arc<Object>>,
    /// Where to go on, when there is more.
    pub continue_token: Option<String>,
    /// How many objects come after the items, when that is known.
    pub remaining: Option<u64>,
}

/// What a watch has to say.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// ADDED, as part of the initial state.
    Initial(Arc<Object>),
    /// A change.
    Event(Arc<WatchEvent>),
    /// Nothing up to this version is missing.
    Bookmark {
        /// The version.
        resource_version: ResourceVersion,
        /// It ends the initial events (KEP-3157) and carries the annotation that says so.
        initial_events_end: bool,
    },
    /// The watch failed; nothing follows.
    Error(ReadError),
}

/// The cache of one resource.
#[derive(Debug)]
pub struct Cacher {}

impl Cacher {
    /// Starts to fill the cache, in tasks of `tasks`.
    pub fn start(
        _resource: CachedResource,
        _storage: Arc<dyn Storage>,
        _tasks: &Tasks,
        _config: CacherConfig,
    ) -> Arc<Self> {
        unimplemented!()
    }

    /// One object, or that there is none.
    pub async fn get(
        &self,
        _key: &ObjectKey,
        _options: GetOptions,
    ) -> Result<Option<Arc<Object>>, ReadError> {
        unimplemented!()
    }

    /// The object as the cache has it at this moment, perhaps stale: a base for an optimistic write.
    pub fn peek(&self, _key: &ObjectKey) -> Option<Arc<Object>> {
        unimplemented!()
    }

    /// A list, by the table of `src/ARCHITECTURE.md`. Uses version, match, limit and continue of the
    /// options; the selectors are in the predicate.
    pub async fn list(
        &self,
        _predicate: &SelectionPredicate,
        _options: &ListOptions,
    ) -> Result<ObjectList, ReadError> {
        unimplemented!()
    }

    /// A watch. An error here is an HTTP error; later ones are items of the watch.
    pub async fn watch(
        self: &Arc<Self>,
        _predicate: SelectionPredicate,
        _options: &ListOptions,
    ) -> Result<CacheWatcher, ReadError> {
        unimplemented!()
    }

    /// Whether the cache has its first state, and if not why.
    pub fn readiness(&self) -> Result<(), String> {
        unimplemented!()
    }
}

/// One client's watch.
#[derive(Debug)]
pub struct CacheWatcher {}

impl CacheWatcher {
    /// Waits for what comes next and returns all of it that is ready, in order; `None` when the
    /// watch has ended (its deadline, the server's shutdown, after an error). Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<WatchItem>> {
        unimplemented!()
    }
}

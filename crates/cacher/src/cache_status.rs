//! The state of a cache at one moment.

use tokio::time::Instant;

use watchet_api::ResourceVersion;

/// The size of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// The number of objects.
    pub objects: usize,
    /// The size of the objects' JSON in bytes.
    pub objects_bytes: usize,
    /// The number of watchers, live or reading history.
    pub watchers: usize,
}

/// The state of a cache at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStatus {
    /// `Ok` if the cache has its first list and follows storage, else a message with the reason.
    pub readiness: Result<(), String>,
    /// The size of the state; `None` before the first list.
    pub size: Option<CacheSize>,
    /// The version of the state; zero before the first list.
    pub at: ResourceVersion,
    /// The revision of storage; `None` if it takes a request to find it out, as with etcd.
    pub storage_at: Option<ResourceVersion>,
    /// The retained events.
    pub history: CacheHistory,
    /// How often the cache had to list storage again.
    pub relists: u64,
}

/// The retained events of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheHistory {
    /// Their number.
    pub events: usize,
    /// Their memory in bytes.
    pub bytes: usize,
    /// The oldest version after which a watch can start.
    pub reaches_back_to: ResourceVersion,
    /// When the cache applied the oldest of them; `None` if there are none.
    pub since: Option<Instant>,
}

//! The limits of a Cacher.

use std::sync::Arc;
use std::time::Duration;

use watchet_api::ServerMemory;

/// The limits of a Cacher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacherConfig {
    /// The minimum age of events before history drops them, memory permitting. Upstream's freshness
    /// window: a little more than a bookmark period, so that a client can resume from its last
    /// bookmark.
    pub history_window: Duration,
    /// The maximum memory of one resource's history, in bytes of the events' objects. Enough for
    /// the window at 2,500 changes of 1 KB objects per second; the memory is used only if needed.
    pub history_bytes_max: usize,
    /// The time that a read waits for the cache to reach a version (upstream: 3 s).
    pub freshness_timeout: Duration,
    /// The time that a request waits for a cold cache: longer than a list of a large collection
    /// takes, shorter than the request timeout.
    pub start_timeout: Duration,
    /// The interval of bookmarks on an idle watch (upstream: 1 minute).
    pub bookmark_period: Duration,
    /// The interval of consistency checks (upstream: 5 minutes); `None` disables them. A check
    /// lists the whole resource.
    pub consistency_check_period: Option<Duration>,
    /// The number of events that wait for a watcher before it is parked: it then receives nothing, and reads the missed events
    /// from history. A lower number would park healthy clients in a burst, which costs each a read of history.
    pub inbox_events_max: usize,
    /// The memory of the server: under pressure, history is shorter.
    pub memory: Arc<ServerMemory>,
}

impl Default for CacherConfig {
    fn default() -> Self {
        Self {
            history_window: Duration::from_secs(75),
            history_bytes_max: 256 << 20,
            freshness_timeout: Duration::from_secs(3),
            start_timeout: Duration::from_secs(30),
            bookmark_period: Duration::from_secs(60),
            consistency_check_period: None,
            inbox_events_max: 1024,
            memory: Arc::default(),
        }
    }
}

//! The arguments of a new `CacheWatcher`: where the watch starts, and the parts of the Cacher that it uses.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::ReadError;
use super::backfill::Backfill;
use super::dispatcher::Dispatcher;
use super::object_map::ObjectMap;
use super::watch_cache::Published;
use watchet_api::ResourceVersion;
use watchet_metrics::ResourceMetrics;

/// The start of a watch.
#[derive(Debug)]
pub(super) enum Start {
    /// The state at a version, then later events. `end_bookmark` is true if a bookmark ends the
    /// initial events.
    Initial {
        objects: ObjectMap,
        at: ResourceVersion,
        end_bookmark: bool,
    },
    /// The events after a version.
    After(ResourceVersion),
    /// A failure that the watch reports as its first item.
    Failed(ReadError),
}

/// The parts of the Cacher that a watch uses.
#[derive(Debug, Clone)]
pub(super) struct WatchContext {
    pub(super) published: Arc<Published>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) backfill: Arc<Backfill>,
    pub(super) stop: CancellationToken,
    pub(super) bookmark_period: Duration,
    pub(super) metrics: Arc<ResourceMetrics>,
}

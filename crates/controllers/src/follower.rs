//! A watch of one resource for a controller that never ends: it is resumed after a disconnect, or
//! restarted with the full state if resuming is not possible. It stores no objects.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use watchet_api::{EventType, ListOptions, Object, ResourceVersion};
use watchet_reflector::Backoff;
use watchet_registry::{CacheWatcher, ReadError, Registry, Resource, WatchItem};

/// The timeout of a watch. Resuming is cheap, so the value does not matter much.
const WATCH_TIMEOUT: Duration = Duration::from_secs(3600);

/// The minimum and maximum backoff after a failed watch (the latter is doubled by jitter).
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// An event for a controller.
#[derive(Debug, Clone)]
pub(super) enum FollowerEvent {
    /// The full state follows: objects not in it, up to [`Self::SyncComplete`], are deleted.
    SyncStarted,
    /// The object exists in this state.
    Object(Arc<Object>),
    /// The object was deleted; this was its last state.
    Deleted(Arc<Object>),
    /// The full state was sent; changes follow.
    SyncComplete,
}

/// A watch that never ends.
#[derive(Debug)]
pub(super) struct Follower {
    registry: Arc<Registry>,
    resource: Arc<Resource>,
    watcher: Option<CacheWatcher>,
    /// The version up to which all changes were returned; `None` while the state is incomplete.
    version: Option<ResourceVersion>,
    backoff: Backoff,
    /// The time of the next attempt after a failure.
    retry_at: Option<Instant>,
}

impl Follower {
    pub(super) fn new(registry: Arc<Registry>, resource: Arc<Resource>) -> Self {
        Self {
            registry,
            resource,
            watcher: None,
            version: None,
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX),
            retry_at: None,
        }
    }

    /// Returns the version up to which all changes were returned; `None` while the state is
    /// incomplete.
    pub(super) fn version(&self) -> Option<ResourceVersion> {
        self.version
    }

    /// Returns whether a watch is open.
    pub(super) fn is_open(&self) -> bool {
        self.watcher.is_some()
    }

    /// Returns the next events, possibly none. Cancel safe.
    pub(super) async fn next(&mut self) -> Vec<FollowerEvent> {
        let Some(watcher) = &mut self.watcher else {
            return self.open().await;
        };
        let Some(items) = watcher.next().await else {
            self.watcher = None;
            return Vec::new();
        };
        items
            .into_iter()
            .filter_map(|i| self.handle_item(i))
            .collect()
    }

    async fn open(&mut self) -> Vec<FollowerEvent> {
        if let Some(at) = self.retry_at {
            tokio::time::sleep_until(at).await;
            self.retry_at = None;
        }
        let options = ListOptions {
            resource_version: self.version,
            send_initial_events: self.version.is_none().then_some(true),
            allow_watch_bookmarks: true,
            timeout: Some(WATCH_TIMEOUT),
            ..ListOptions::default()
        };
        match self.registry.watch_stored(&self.resource, &options).await {
            Ok(watcher) => {
                self.watcher = Some(watcher);
                match self.version {
                    Some(_) => Vec::new(),
                    None => vec![FollowerEvent::SyncStarted],
                }
            }
            Err(error) => {
                let resource = self.resource.qualified();
                tracing::debug!(resource, %error, "cannot open the watch of a controller");
                self.fail();
                Vec::new()
            }
        }
    }

    fn handle_item(&mut self, item: WatchItem) -> Option<FollowerEvent> {
        match item {
            WatchItem::Initial(object) => Some(FollowerEvent::Object(object)),
            WatchItem::Event(event) => {
                self.version = Some(event.resource_version());
                self.backoff.succeeded();
                Some(match event.event_type() {
                    EventType::Deleted => FollowerEvent::Deleted(event.object().clone()),
                    EventType::Added | EventType::Modified => {
                        FollowerEvent::Object(event.object().clone())
                    }
                })
            }
            WatchItem::Bookmark {
                resource_version,
                initial_events_end,
            } => {
                self.version = Some(resource_version);
                initial_events_end.then_some(FollowerEvent::SyncComplete)
            }
            WatchItem::Error(error) => {
                let resource = self.resource.qualified();
                match &error {
                    // The cache has logged it, once for all of its watches.
                    ReadError::Expired { .. } => {
                        tracing::debug!(resource, %error, "the watch of a controller restarts");
                    }
                    error => tracing::warn!(resource, %error, "the watch of a controller restarts"),
                }
                self.version = None;
                self.fail();
                None
            }
        }
    }

    fn fail(&mut self) {
        let now = Instant::now();
        self.retry_at = Some(now + self.backoff.failed(now));
    }
}

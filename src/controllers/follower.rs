//! Follows one resource for a controller: its objects, and what becomes of them, for ever. A watch that
//! ends is opened again where it ended, one that cannot be is begun anew. It keeps no objects.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::{EventType, ListOptions, Object, ResourceVersion};
use crate::reflector::Backoff;
use crate::registry::{CacheWatcher, Registry, Resource, WatchItem};

/// How long a watch lasts: the end of one costs nothing, but is of no use either.
const WATCH_TIMEOUT: Duration = Duration::from_secs(3600);

/// How soon a watch that failed is opened again, and how late at most (twice that, with jitter).
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What a controller is told about a resource.
#[derive(Debug, Clone)]
pub(super) enum News {
    /// The state follows: what was told before and is not told until [`Self::Complete`] is gone.
    Begin,
    /// The object is so.
    Object(Arc<Object>),
    /// The object is gone; this was its last state.
    Deleted(Arc<Object>),
    /// The state was told; what follows are changes.
    Complete,
}

/// A watch that does not end.
#[derive(Debug)]
pub(super) struct Follower {
    registry: Arc<Registry>,
    resource: Arc<Resource>,
    watcher: Option<CacheWatcher>,
    /// The version up to which everything was told; `None` while the state is not complete.
    told: Option<ResourceVersion>,
    backoff: Backoff,
    /// When it is tried again after a failure.
    again_at: Option<Instant>,
}

impl Follower {
    pub(super) fn new(registry: Arc<Registry>, resource: Arc<Resource>) -> Self {
        Self {
            registry,
            resource,
            watcher: None,
            told: None,
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX),
            again_at: None,
        }
    }

    /// The version up to which every change was told; `None` while the state is not complete.
    pub(super) fn told(&self) -> Option<ResourceVersion> {
        self.told
    }

    /// Whether it has a watch; else it waits until it opens another.
    pub(super) fn is_open(&self) -> bool {
        self.watcher.is_some()
    }

    /// What comes next; it may be nothing. Cancel safe.
    pub(super) async fn next(&mut self) -> Vec<News> {
        let Some(watcher) = &mut self.watcher else {
            return self.open().await;
        };
        let Some(items) = watcher.next().await else {
            self.watcher = None;
            return Vec::new();
        };
        items.into_iter().filter_map(|i| self.heed(i)).collect()
    }

    async fn open(&mut self) -> Vec<News> {
        if let Some(at) = self.again_at {
            tokio::time::sleep_until(at).await;
            self.again_at = None;
        }
        let options = ListOptions {
            resource_version: self.told,
            send_initial_events: self.told.is_none().then_some(true),
            allow_watch_bookmarks: true,
            timeout: Some(WATCH_TIMEOUT),
            ..ListOptions::default()
        };
        match self.registry.watch_stored(&self.resource, &options).await {
            Ok(watcher) => {
                self.watcher = Some(watcher);
                match self.told {
                    Some(_) => Vec::new(),
                    None => vec![News::Begin],
                }
            }
            Err(error) => {
                let resource = self.resource.qualified();
                tracing::debug!(resource, %error, "cannot watch for a controller yet");
                self.fail();
                Vec::new()
            }
        }
    }

    fn heed(&mut self, item: WatchItem) -> Option<News> {
        match item {
            WatchItem::Initial(object) => Some(News::Object(object)),
            WatchItem::Event(event) => {
                self.told = Some(event.resource_version());
                self.backoff.succeeded();
                Some(match event.event_type() {
                    EventType::Deleted => News::Deleted(event.object().clone()),
                    EventType::Added | EventType::Modified => News::Object(event.object().clone()),
                })
            }
            WatchItem::Bookmark {
                resource_version,
                initial_events_end,
            } => {
                self.told = Some(resource_version);
                initial_events_end.then_some(News::Complete)
            }
            WatchItem::Error(error) => {
                let resource = self.resource.qualified();
                tracing::warn!(resource, %error, "a controller's watch begins anew");
                self.told = None;
                self.fail();
                None
            }
        }
    }

    fn fail(&mut self) {
        let now = Instant::now();
        self.again_at = Some(now + self.backoff.failed(now));
    }
}

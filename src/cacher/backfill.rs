//! `Backfill`: the history from before the cache's first list, read from storage after a restart,
//! so that a client that comes back with the last version it saw goes on without a relist. It is
//! immutable once read, and let go after the history window, when every client has come back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::StreamExt as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::event::CacheEvent;
use super::snapshot::TooOld;
use super::{CachedResource, CacherConfig};
use crate::api::{Object, ObjectKey, ResourceVersion};
use crate::reflector::{Change, SourceError};
use crate::storage::{Storage, StorageError, StorageEvent};

/// How often the watch that reads older history is asked how far it is. A store answers only when the
/// watch has caught up, so one question is not enough.
const ASK_PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Older history, once it is known.
#[derive(Debug)]
pub(super) struct Backfill {
    older: ArcSwapOption<Older>,
    /// Turns true when there is nothing more to wait for.
    settled: watch::Sender<bool>,
}

/// Events that continue one another, after `after` and up to `up_to`.
#[derive(Debug)]
struct Older {
    after: ResourceVersion,
    up_to: ResourceVersion,
    events: Arc<[Arc<CacheEvent>]>,
}

/// A view of older events from some position on.
#[derive(Debug)]
pub(super) struct OlderEvents {
    events: Arc<[Arc<CacheEvent>]>,
    first: usize,
}

impl OlderEvents {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<CacheEvent>> {
        self.events[self.first..].iter()
    }
}

impl Backfill {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            older: ArcSwapOption::empty(),
            settled: watch::Sender::new(false),
        })
    }

    /// The events after `version`, if they are known and newer history continues them, which reaches
    /// back to `newer`; and the version that they cover.
    pub(super) fn events_after(
        &self,
        version: ResourceVersion,
        newer: ResourceVersion,
    ) -> Result<(OlderEvents, ResourceVersion), TooOld> {
        let older = self.older.load_full().filter(|older| older.up_to >= newer);
        let Some(older) = older else {
            return Err(TooOld(newer));
        };
        if version < older.after {
            return Err(TooOld(older.after));
        }
        let first = older
            .events
            .partition_point(|event| event.resource_version() <= version);
        Ok((
            OlderEvents {
                events: older.events.clone(),
                first,
            },
            older.up_to,
        ))
    }

    /// Waits until older history is known, or known not to be had.
    pub(super) async fn settled(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        self.settled
            .subscribe()
            .wait_for(|settled| *settled)
            .await
            .ok();
    }

    /// Reads what storage still has from before `up_to`, then keeps it for the history window.
    pub(super) async fn run(
        self: Arc<Self>,
        resource: Arc<CachedResource>,
        storage: Arc<dyn Storage>,
        config: CacherConfig,
        up_to: ResourceVersion,
    ) {
        let read = read(&resource, &*storage, config.history_bytes_max, up_to);
        let timed_out = |_| SourceError::Unavailable {
            detail: format!("storage did not tell it within {:?}", config.start_timeout),
            retry_after: None,
        };
        let read = tokio::time::timeout(config.start_timeout, read).await;
        match read.map_err(timed_out).flatten() {
            Ok(older) => {
                let events = older.events.len();
                tracing::debug!(resource = %resource.name, after = %older.after, events, "backfilled");
                self.older.store(Some(Arc::new(older)));
            }
            Err(error) => {
                tracing::warn!(resource = %resource.name, %error, "no history from before the start");
            }
        }
        self.settled.send_replace(true);
        tokio::time::sleep(config.history_window).await;
        self.older.store(None);
    }
}

/// Reads the oldest history that there is up to `up_to`, dropping the oldest when it gets too large.
async fn read(
    resource: &CachedResource,
    storage: &dyn Storage,
    bytes_max: usize,
    up_to: ResourceVersion,
) -> Result<Older, SourceError> {
    let source_failed = |error: StorageError| SourceError::Unavailable {
        detail: error.to_string(),
        retry_after: None,
    };
    let mut after = ResourceVersion::new(1);
    'watch: loop {
        let compacted = |error| match error {
            // Compaction may go on meanwhile; each round begins later.
            StorageError::Compacted { compacted, .. } if compacted > after && compacted < up_to => {
                Ok(compacted)
            }
            error => Err(source_failed(error)),
        };
        let mut watch = match storage.watch(&resource.prefix, after).await {
            Ok(watch) => watch,
            Err(error) => {
                after = compacted(error)?;
                continue 'watch;
            }
        };
        let mut window = Window::new(after, bytes_max);
        loop {
            // Biased: what was sent comes before asking how far the watch is.
            let batch = tokio::select! {
                biased;
                batch = watch.batches.next() => batch,
                () = tokio::time::sleep(ASK_PROGRESS_EVERY) => {
                    watch.progress.request();
                    continue;
                }
            };
            let ended = || StorageError::Unavailable("the watch ended".into());
            let batch = match batch.unwrap_or_else(|| Err(ended())) {
                Ok(batch) => batch,
                Err(error) => {
                    after = compacted(error)?;
                    continue 'watch;
                }
            };
            for event in batch
                .events
                .into_iter()
                .filter(|event| event.revision <= up_to)
            {
                window.push(resource, event)?;
            }
            if batch.revision >= up_to {
                let events = Vec::from(window.events).into();
                return Ok(Older {
                    after: window.after,
                    up_to,
                    events,
                });
            }
        }
    }
}

/// The newest events that fit, and the last known state of what they are about.
struct Window {
    after: ResourceVersion,
    events: VecDeque<Arc<CacheEvent>>,
    bytes: usize,
    bytes_max: usize,
    known: HashMap<ObjectKey, Arc<Object>>,
}

impl Window {
    fn new(after: ResourceVersion, bytes_max: usize) -> Self {
        Self {
            after,
            events: VecDeque::new(),
            bytes: 0,
            bytes_max,
            known: HashMap::new(),
        }
    }

    fn push(&mut self, resource: &CachedResource, event: StorageEvent) -> Result<(), SourceError> {
        let received = Instant::now();
        let first_seen = event
            .previous
            .clone()
            .map(|value| resource.previous(&event, &value));
        let event = match resource.change(&event)? {
            Change::Added(object) | Change::Modified(object) => {
                let known = self.known.insert(object.key().clone(), object.clone());
                let previous = match known {
                    Some(known) => Some(known),
                    None => first_seen.transpose()?,
                };
                CacheEvent::put(object, previous, received)
            }
            Change::Deleted(object) => {
                let previous = match self.known.remove(object.key()) {
                    Some(known) => known,
                    None => first_seen.expect("a deletion has a previous value")?,
                };
                CacheEvent::delete(object, previous, received)
            }
        };
        self.bytes += event.memory();
        self.events.push_back(Arc::new(event));
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.memory();
            self.after = oldest.resource_version();
        }
        Ok(())
    }
}

//! `WatchCache`: the Reflector's store on the server and the only writer of the cache. It derives
//! each next `Snapshot`, publishes it and wakes waiters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::event::{CacheEvent, EventTimes};
use super::freshness::Freshness;
use super::metered::Arrival;
use super::object_map::ObjectMap;
use super::replay::{History, ReplayError};
use super::snapshot::Snapshot;
use super::{CachedResource, CacherConfig, ReadError};
#[cfg(feature = "planted-bugs")]
use watchet_api::planted_bug::{PlantedBug, is_planted};
use watchet_api::{Object, ResourceVersion};
use watchet_metrics::{LogInterval, Stage};
use watchet_reflector::{Change, ChangeBatch, ReflectorStore, SourceError};
use watchet_storage::Storage;

/// The published state, written by the `WatchCache` and read by all others.
#[derive(Debug)]
pub(super) struct Published {
    /// `None` until the first list.
    pub(super) snapshot: ArcSwapOption<Snapshot>,
    pub(super) freshness: Freshness,
    /// Notified at each new snapshot; the Dispatcher waits for it.
    pub(super) changed: Notify,
    /// The state of the source.
    pub(super) source: watch::Sender<SourceState>,
    /// The last unreadable value, if any.
    unreadable: ArcSwapOption<Unreadable>,
    /// Notified when a value is unreadable; the Dispatcher waits for it.
    pub(super) unreadable_reported: Notify,
    /// True while an unreadable value prevents the cache from following the source.
    stuck: AtomicBool,
    /// The number of lists after the first one.
    pub(super) relists: AtomicU64,
}

/// An unreadable value sent by the source. Watches that were open then end with an error, because
/// they would receive no further events.
#[derive(Debug)]
struct Unreadable {
    /// The number of such values so far, starting at 1.
    number: u64,
    detail: String,
}

/// Whether the cache has a state, and whether it can follow its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SourceState {
    /// No first list yet.
    Pending {
        since: Instant,
        error: Option<String>,
    },
    /// There is a state, and the last attempt to reach the source succeeded.
    Following,
    /// There is a state; the source has been unreachable since.
    Lost { error: String },
}

impl Published {
    pub(super) fn new() -> Self {
        let pending = SourceState::Pending {
            since: Instant::now(),
            error: None,
        };
        Self {
            snapshot: ArcSwapOption::empty(),
            freshness: Freshness::default(),
            changed: Notify::new(),
            source: watch::Sender::new(pending),
            unreadable: ArcSwapOption::empty(),
            unreadable_reported: Notify::new(),
            stuck: AtomicBool::new(false),
            relists: AtomicU64::new(0),
        }
    }

    /// Returns true if waiting for the cache is pointless: it does not follow the source until an
    /// unreadable value is deleted or repaired.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Returns the number of unreadable values so far.
    pub(super) fn times_unreadable(&self) -> u64 {
        let last = self.unreadable.load();
        last.as_ref().map_or(0, |unreadable| unreadable.number)
    }

    /// Returns the error that ends a watch if a value has become unreadable since there were
    /// `before` of them.
    pub(super) fn unreadable_since(&self, before: u64) -> Option<ReadError> {
        let last = self.unreadable.load();
        let since = last.as_ref().filter(|last| last.number > before)?;
        Some(ReadError::Undecodable(since.detail.clone()))
    }

    fn report_unreadable(&self, detail: String) {
        let number = self.times_unreadable() + 1;
        let unreadable = Unreadable { number, detail };
        self.unreadable.store(Some(Arc::new(unreadable)));
        self.unreadable_reported.notify_one();
    }

    fn publish(&self, snapshot: &Snapshot) {
        self.snapshot.store(Some(Arc::new(snapshot.clone())));
        self.freshness.reached(snapshot.at);
        self.changed.notify_one();
    }
}

/// The writer of a resource's cache, owned by its Reflector.
#[derive(Debug)]
pub(super) struct WatchCache {
    resource: Arc<CachedResource>,
    config: CacherConfig,
    /// The storage that missed events are read from.
    storage: Arc<dyn Storage>,
    published: Arc<Published>,
    /// The arrival time of the next item.
    arrival: Arrival,
    current: Option<Snapshot>,
    failure_log: LogInterval,
}

impl WatchCache {
    pub(super) fn new(
        resource: Arc<CachedResource>,
        config: CacherConfig,
        storage: Arc<dyn Storage>,
        published: Arc<Published>,
        arrival: Arrival,
    ) -> Self {
        Self {
            resource,
            config,
            storage,
            published,
            arrival,
            current: None,
            failure_log: LogInterval::growing(),
        }
    }

    fn trim_and_publish(&mut self) {
        let Some(snapshot) = &mut self.current else {
            return;
        };
        let window = self.config.history_window;
        let (configured, memory) = (self.config.history_bytes_max, &self.config.memory);
        snapshot.trim(configured, window);
        let bytes_max = memory.history_bytes_max(configured);
        if bytes_max < snapshot.history_bytes() {
            let before = snapshot.history_bytes();
            snapshot.trim(bytes_max, window);
            memory.count_history_dropped(before - snapshot.history_bytes());
        }
        self.published.publish(snapshot);
    }

    /// Returns the state of a new list of storage. It continues `snapshot` with the events that
    /// storage retains of the time in between. If some are lost, it is the start of another
    /// generation, and open watches end with 410 Expired: a difference of two states would hide
    /// events.
    async fn relist(
        &self,
        mut snapshot: Snapshot,
        objects: ObjectMap,
        at: ResourceVersion,
    ) -> Snapshot {
        let (resource, count) = (&self.resource.name, objects.len());
        let error = match self.missed(&snapshot, &objects, at).await {
            Ok(missed) => {
                let events = snapshot.extend(missed, at);
                tracing::debug!(%resource, %at, count, events, "relisted; nothing was missed");
                return snapshot;
            }
            Err(error) => error,
        };
        tracing::debug!(%resource, %error, "cannot replay missed history");
        #[cfg(feature = "planted-bugs")]
        if is_planted(PlantedBug::RelistContinuesWatches) {
            return snapshot.with_state(objects, &self.resource.triggers, at);
        }
        let outage = &self.resource.metrics.cache_outage;
        outage.history_lost(resource, snapshot.at.get(), at.get());
        self.published.freshness.restart();
        let generation = snapshot.generation + 1;
        Snapshot::new(generation, objects, &self.resource.triggers, at)
    }

    /// Returns the events that lead from `snapshot` to the listed `objects`, from storage's
    /// history.
    async fn missed(
        &self,
        snapshot: &Snapshot,
        objects: &ObjectMap,
        at: ResourceVersion,
    ) -> Result<Vec<Vec<CacheEvent>>, ReplayError> {
        let history = History {
            resource: &self.resource,
            storage: &*self.storage,
        };
        let read = history.between(snapshot, objects, at, self.config.history_bytes_max);
        let limit = self.config.start_timeout;
        let read = tokio::time::timeout(limit, read).await;
        read.unwrap_or(Err(ReplayError::TimedOut(limit)))
    }

    /// Logs an outage together with the other caches', and other errors at growing intervals.
    fn log_failure(&self, error: &SourceError) {
        let resource = &self.resource.name;
        match error {
            SourceError::Unavailable { detail, .. } => {
                self.resource.metrics.cache_outage.lost(resource, detail);
                tracing::debug!(%resource, %error, "cannot follow storage");
            }
            // The list that follows logs what it has found.
            SourceError::Expired { .. } => {
                tracing::debug!(%resource, %error, "cannot follow storage");
            }
            SourceError::Undecodable { .. } => {
                if let Some(suppressed) = self.failure_log.next() {
                    tracing::warn!(%resource, %error, suppressed, "cannot follow storage");
                }
            }
        }
    }

    fn following(&self) {
        self.published.stuck.store(false, Ordering::Relaxed);
        let changed = self.published.source.send_if_modified(|state| {
            let changed = *state != SourceState::Following;
            *state = SourceState::Following;
            changed
        });
        if changed {
            self.failure_log.reset();
            let outage = &self.resource.metrics.cache_outage;
            outage.ended(&self.resource.name);
        }
    }
}

fn version(change: &Change<Object>) -> ResourceVersion {
    let (Change::Added(object) | Change::Modified(object) | Change::Deleted(object)) = change;
    object.resource_version()
}

/// Returns the event that `change` causes. Returns `None` for the deletion of an object that does
/// not exist, which is a bug of the source but leaves the correct state.
fn event(objects: &ObjectMap, change: &Change<Object>, received: EventTimes) -> Option<CacheEvent> {
    match change {
        Change::Added(object) | Change::Modified(object) => {
            let previous = objects.get(object.key()).cloned();
            Some(CacheEvent::put(object.clone(), previous, received))
        }
        Change::Deleted(object) => {
            let previous = objects.get(object.key()).cloned();
            if previous.is_none() {
                tracing::error!(key = %object.key(), "source deleted an unknown object");
            }
            previous.map(|previous| CacheEvent::delete(object.clone(), previous, received))
        }
    }
}

impl Drop for WatchCache {
    fn drop(&mut self) {
        // The cache has been stopped, perhaps during an outage, which ends without it.
        let outage = &self.resource.metrics.cache_outage;
        outage.ended(&self.resource.name);
    }
}

impl ReflectorStore for WatchCache {
    type Object = Object;

    async fn replace(&mut self, objects: Vec<Arc<Object>>, at: ResourceVersion) {
        let count = objects.len();
        let triggers = &self.resource.triggers;
        let objects: ObjectMap = objects
            .into_iter()
            .map(|object| (object.key().clone(), object))
            .collect();
        self.current = Some(match self.current.take() {
            Some(snapshot) => {
                self.published.relists.fetch_add(1, Ordering::Relaxed);
                self.relist(snapshot, objects, at).await
            }
            None => {
                tracing::debug!(resource = %self.resource.name, %at, count, "listed");
                Snapshot::new(0, objects, triggers, at)
            }
        });
        self.trim_and_publish();
        let taken = self.arrival.get().elapsed();
        self.resource.metrics.initialized(taken);
        self.following();
    }

    async fn watching(&mut self) {
        // Not with the first change: a quiet resource may have none for a long time.
        self.following();
    }

    async fn apply(&mut self, batch: ChangeBatch<Object>) {
        let snapshot = self
            .current
            .as_mut()
            .expect("a Reflector lists before it watches");
        let received = EventTimes {
            arrived: self.arrival.get(),
            at: Instant::now(),
        };
        let metrics = &self.resource.metrics;
        let events = batch.changes.len();
        metrics.events_received.add(events);
        let waited = received.at - received.arrived;
        metrics.observe_dispatch(Stage::StorageToCache, waited, events);
        for revision in batch.changes.chunk_by(|a, b| version(a) == version(b)) {
            let events = revision
                .iter()
                .filter_map(|change| event(snapshot.objects(), change, received));
            snapshot.push(events.collect());
        }
        snapshot.advance(batch.at);
        self.trim_and_publish();
        self.following();
    }

    async fn failed(&mut self, error: &SourceError) {
        self.log_failure(error);
        let known = self.current.is_some();
        let unreadable = matches!(error, SourceError::Undecodable { .. });
        self.published.source.send_modify(|state| {
            let since = match state {
                SourceState::Pending { since, .. } => *since,
                _ => Instant::now(),
            };
            *state = if known {
                SourceState::Lost {
                    error: error.to_string(),
                }
            } else {
                SourceState::Pending {
                    since,
                    error: Some(error.to_string()),
                }
            };
        });
        // Reported once, until the source can be followed again; the snapshot is published first.
        if known && unreadable && !self.published.stuck.swap(true, Ordering::Relaxed) {
            self.published.report_unreadable(error.to_string());
        }
    }
}

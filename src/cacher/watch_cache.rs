//! `WatchCache`: the Reflector's store on the server side, and the only writer of what the cache
//! publishes. It builds each next `Snapshot`, publishes it, and wakes those who wait for it; it
//! serves no reader and feeds no watcher itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::event::{CacheEvent, Received};
use super::freshness::Freshness;
use super::metered::Arrival;
use super::relist;
use super::replay::{History, ReplayError};
use super::snapshot::{ObjectMap, Snapshot};
use super::{CachedResource, CacherConfig, ReadError};
use crate::api::{Object, ResourceVersion};
use crate::metrics::Stage;
use crate::reflector::{Change, ChangeBatch, ReflectorStore, SourceError};
use crate::storage::Storage;

/// What the writer publishes and everyone else reads.
#[derive(Debug)]
pub(super) struct Published {
    /// `None` until the first list.
    pub(super) snapshot: ArcSwapOption<Snapshot>,
    pub(super) freshness: Freshness,
    /// Told at each new snapshot; the Dispatcher waits for it.
    pub(super) changed: Notify,
    /// How the source was last found.
    pub(super) source: watch::Sender<SourceState>,
    /// What could not be read when that last happened.
    unreadable: ArcSwapOption<Unreadable>,
    /// Told when it happens; the Dispatcher waits for it.
    pub(super) unreadable_told: Notify,
    /// It is still there, so that the source is not followed.
    stuck: AtomicBool,
}

/// What the source sent and nobody can read. The watches that were open then end with it, so that
/// their clients do not take the silence that follows for peace.
#[derive(Debug)]
struct Unreadable {
    /// Of those that there were, the first is 1.
    number: u64,
    detail: String,
}

/// Whether the cache has a state, and whether its source can be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SourceState {
    /// No first list yet.
    Pending {
        since: Instant,
        error: Option<String>,
    },
    /// There is a state, and the source was reached when last tried.
    Following,
    /// There is a state; the source could not be followed since.
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
            unreadable_told: Notify::new(),
            stuck: AtomicBool::new(false),
        }
    }

    /// Whether it is in vain to wait for the cache: until what cannot be read is gone, nobody follows
    /// the source.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// How often the source sent what cannot be read.
    pub(super) fn times_unreadable(&self) -> u64 {
        let last = self.unreadable.load();
        last.as_ref().map_or(0, |unreadable| unreadable.number)
    }

    /// What ends a watch that began when there were `before` of them.
    pub(super) fn unreadable_since(&self, before: u64) -> Option<ReadError> {
        let last = self.unreadable.load();
        let since = last.as_ref().filter(|last| last.number > before)?;
        Some(ReadError::Undecodable(since.detail.clone()))
    }

    fn tell_unreadable(&self, detail: String) {
        let number = self.times_unreadable() + 1;
        let unreadable = Unreadable { number, detail };
        self.unreadable.store(Some(Arc::new(unreadable)));
        self.unreadable_told.notify_one();
    }

    fn publish(&self, snapshot: &Snapshot) {
        self.snapshot.store(Some(Arc::new(snapshot.clone())));
        self.freshness.reached(snapshot.at);
        self.changed.notify_one();
    }
}

/// The writer. There is one for each resource; its Reflector owns it.
#[derive(Debug)]
pub(super) struct WatchCache {
    resource: Arc<CachedResource>,
    config: CacherConfig,
    /// Where what was missed is read from.
    storage: Arc<dyn Storage>,
    published: Arc<Published>,
    /// Of what is taken in next.
    arrival: Arrival,
    current: Option<Snapshot>,
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
        }
    }

    fn trim_and_publish(&mut self) {
        let Some(snapshot) = &mut self.current else {
            return;
        };
        snapshot.trim(self.config.history_bytes_max, self.config.history_window);
        self.published.publish(snapshot);
    }

    /// What follows `snapshot` when storage was listed again: every event that storage still has, or the
    /// difference, or another generation.
    async fn relist(
        &self,
        mut snapshot: Snapshot,
        objects: ObjectMap,
        at: ResourceVersion,
    ) -> Snapshot {
        let (resource, count) = (&self.resource.name, objects.len());
        match self.missed(&snapshot, &objects, at).await {
            Ok(missed) => {
                let told: usize = missed.iter().map(Vec::len).sum();
                for revision in missed {
                    snapshot.push(revision);
                }
                snapshot.advance(at);
                tracing::info!(%resource, %at, count, told, "relisted; nothing was missed");
                return snapshot;
            }
            Err(error) => tracing::info!(%resource, %error, "missed history cannot be replayed"),
        }
        let Some(changes) = relist::changes(&snapshot, &objects, at) else {
            tracing::warn!(
                %resource, %at, was = %snapshot.at,
                "relisted; the gap cannot be told, watches end"
            );
            self.published.freshness.restart();
            let generation = snapshot.generation + 1;
            return Snapshot::new(generation, objects, &self.resource.triggers, at);
        };
        let told: usize = changes.iter().map(Vec::len).sum();
        let from = snapshot.at;
        for revision in changes {
            snapshot.push(revision);
        }
        snapshot.relisted(from, at);
        tracing::info!(%resource, %at, count, told, "relisted");
        snapshot
    }

    /// The events that lead from `snapshot` to the listed `objects`, from storage's history.
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

    fn following(&self) {
        self.published.stuck.store(false, Ordering::Relaxed);
        self.published.source.send_if_modified(|state| {
            let changed = *state != SourceState::Following;
            *state = SourceState::Following;
            changed
        });
    }
}

fn version(change: &Change<Object>) -> ResourceVersion {
    let (Change::Added(object) | Change::Modified(object) | Change::Deleted(object)) = change;
    object.resource_version()
}

/// What `change` makes of these objects. Nothing for the deletion of what is not there: the source
/// tells deletions of what exists, so that is its bug, and the state is the one it wants anyway.
fn event(objects: &ObjectMap, change: &Change<Object>, received: Received) -> Option<CacheEvent> {
    match change {
        Change::Added(object) | Change::Modified(object) => {
            let previous = objects.get(object.key()).cloned();
            Some(CacheEvent::put(object.clone(), previous, received))
        }
        Change::Deleted(object) => {
            let previous = objects.get(object.key()).cloned();
            if previous.is_none() {
                tracing::error!(key = %object.key(), "deletion of an unknown object");
            }
            previous.map(|previous| CacheEvent::delete(object.clone(), previous, received))
        }
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
            Some(snapshot) => self.relist(snapshot, objects, at).await,
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
        // Not with the first change: a quiet resource can be long without one.
        self.following();
    }

    async fn apply(&mut self, batch: ChangeBatch<Object>) {
        let snapshot = self
            .current
            .as_mut()
            .expect("a Reflector lists before it watches");
        let received = Received {
            arrived: self.arrival.get(),
            at: Instant::now(),
        };
        let metrics = &self.resource.metrics;
        let events = batch.changes.len();
        metrics.events_received.add(events);
        let waited = received.at - received.arrived;
        metrics.dispatched(Stage::StorageToCache, waited, events);
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
        tracing::warn!(resource = %self.resource.name, %error, "cannot follow storage");
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
        // Once, until the source is followed again. Who is told finds the state that goes with it.
        if known && unreadable && !self.published.stuck.swap(true, Ordering::Relaxed) {
            self.published.tell_unreadable(error.to_string());
        }
    }
}

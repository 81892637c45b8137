//! Replays the events that the cache missed while it could not follow storage, from storage's own
//! history, when the cache lists again. They lead from the old state to the new list, so that
//! watches and resuming clients miss nothing. Values that cannot be decoded are skipped, and so are
//! their deletions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::CachedResource;
use super::event::CacheEvent;
use super::object_map::ObjectMap;
use super::snapshot::Snapshot;
use super::unreadable::Unreadable;
use watchet_api::{ObjectKey, ResourceVersion};
use watchet_reflector::Change;
use watchet_storage::{Storage, StorageError, StorageEvent};

/// The interval of progress requests on a watch that reads history. A store responds only once the
/// watch has caught up, so one request is not enough.
const PROGRESS_REQUEST_INTERVAL: Duration = Duration::from_millis(100);

/// The pause after a lost connection. The total time is limited, so there is no exponential
/// back-off.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The reason why the events between two states are unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplayError {
    /// Storage has compacted them or cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// They exceed the memory limit of history.
    #[error("the events take more than {0} bytes")]
    TooLarge(usize),
    /// They do not lead from one state to the other: an event differs from storage's state.
    #[error("the events do not lead to the listed state")]
    Contradiction,
    /// Reading them took longer than this.
    #[error("the events were not read within {0:?}")]
    TimedOut(Duration),
}

/// The storage and the resource to read events from.
#[derive(Debug, Clone, Copy)]
pub(super) struct History<'a> {
    pub(super) resource: &'a CachedResource,
    pub(super) storage: &'a dyn Storage,
}

impl<'a> History<'a> {
    /// Calls `each` for every event after `from` and up to `to`, in order, until it breaks.
    ///
    /// # Errors
    /// Returns an error if storage has compacted some of them or cannot be read.
    pub(super) async fn follow(
        self,
        from: ResourceVersion,
        to: ResourceVersion,
        mut each: impl FnMut(&StorageEvent) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        let mut watch = self.storage.watch(&self.resource.prefix, from).await?;
        loop {
            // Biased: events come before the next progress request.
            let batch = tokio::select! {
                biased;
                batch = watch.batches.next() => batch,
                () = tokio::time::sleep(PROGRESS_REQUEST_INTERVAL) => {
                    watch.progress.request();
                    continue;
                }
            };
            let ended = || StorageError::Unavailable("the watch ended".into());
            let batch = batch.unwrap_or_else(|| Err(ended()))?;
            for event in batch.events.iter().filter(|event| event.revision <= to) {
                if each(event).is_break() {
                    return Ok(());
                }
            }
            if batch.revision >= to {
                return Ok(());
            }
        }
    }

    /// Returns the revisions that lead from `old` to `listed`, the state at `at`.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub(super) async fn between(
        self,
        old: &Snapshot,
        listed: &ObjectMap,
        at: ResourceVersion,
        bytes_max: usize,
    ) -> Result<Vec<Vec<CacheEvent>>, ReplayError> {
        if at < old.at {
            return Err(ReplayError::Contradiction);
        }
        let mut fold = self.fold(old, bytes_max);
        let mut is_complete = old.at == at;
        while !is_complete {
            let read = self.follow(old.at, at, |event| fold.take(event)).await;
            match read {
                Ok(()) => is_complete = true,
                Err(StorageError::Unavailable(reason)) => {
                    let resource = &self.resource.name;
                    tracing::debug!(%resource, reason, "retrying the read of missed history");
                    fold = self.fold(old, bytes_max);
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if fold.bytes > bytes_max {
            return Err(ReplayError::TooLarge(bytes_max));
        }
        match are_equal(&fold.objects, listed) {
            true => Ok(fold.revisions.into_values().collect()),
            false => Err(ReplayError::Contradiction),
        }
    }

    fn fold(self, old: &Snapshot, bytes_max: usize) -> Fold<'a> {
        Fold {
            resource: self.resource,
            objects: old.objects().clone(),
            revisions: BTreeMap::new(),
            bytes: 0,
            bytes_max,
        }
    }
}

/// Returns true if both states have the same objects at the same versions.
fn are_equal(one: &ObjectMap, other: &ObjectMap) -> bool {
    fn versions(objects: &ObjectMap) -> impl Iterator<Item = (&ObjectKey, ResourceVersion)> {
        let objects = objects.iter();
        objects.map(|(key, object)| (key, object.resource_version()))
    }
    one.len() == other.len() && versions(one).eq(versions(other))
}

/// A state and the events that led to it.
struct Fold<'a> {
    resource: &'a CachedResource,
    objects: ObjectMap,
    revisions: BTreeMap<ResourceVersion, Vec<CacheEvent>>,
    /// The memory use of the events.
    bytes: usize,
    bytes_max: usize,
}

impl Fold<'_> {
    fn take(&mut self, event: &StorageEvent) -> ControlFlow<()> {
        let Some(event) = self.event(event) else {
            return ControlFlow::Continue(());
        };
        self.bytes += event.memory();
        if self.bytes > self.bytes_max {
            return ControlFlow::Break(());
        }
        let version = event.resource_version();
        self.revisions.entry(version).or_default().push(event);
        ControlFlow::Continue(())
    }

    /// Applies `event`; returns `None` if it does not change any readable object.
    fn event(&mut self, event: &StorageEvent) -> Option<CacheEvent> {
        let received = Instant::now();
        let key = self.resource.key_of(&event.key).ok()?;
        if event.value.is_none() {
            let previous = self.objects.remove(&key)?;
            // If the last value is unreadable, the object is the last readable one.
            let object = match self.resource.change(event) {
                Ok(Change::Deleted(object)) => object,
                _ => previous.deleted_at(event.revision),
            };
            return Some(CacheEvent::delete(object, previous, received));
        }
        match self.resource.change(event) {
            Ok(Change::Added(object) | Change::Modified(object)) => {
                let previous = self.objects.insert(key, object.clone());
                Some(CacheEvent::put(object, previous, received))
            }
            Ok(Change::Deleted(_)) => None,
            Err(Unreadable { key, detail }) => {
                tracing::debug!(%key, detail, "skipping an unreadable value");
                None
            }
        }
    }
}

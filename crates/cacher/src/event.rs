//! `CacheEvent`: one change in history with the object before and after it, and the three watch
//! events that watchers can receive for it.

use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

#[cfg(feature = "planted-bugs")]
use watchet_api::planted_bug::{PlantedBug, is_planted};
use watchet_api::{EventType, Object, ResourceVersion, SelectionPredicate, WatchEvent};

/// The times of a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventTimes {
    /// When it arrived from storage.
    pub(super) arrived: Instant,
    /// When the cache applied it.
    pub(super) at: Instant,
}

impl From<Instant> for EventTimes {
    fn from(at: Instant) -> Self {
        Self { arrived: at, at }
    }
}

/// A change of the cached collection. Immutable; shared by history and all inboxes.
#[derive(Debug)]
pub(super) struct CacheEvent {
    /// The new state; for a deletion the last state at the version of the deletion.
    object: Arc<Object>,
    /// The state before; `None` for a creation.
    previous: Option<Arc<Object>>,
    deleted: bool,
    pub(super) received: EventTimes,
    /// Each watch event is created when the first watcher needs it: `object` as ADDED or MODIFIED,
    /// and the deletion.
    added: OnceLock<Arc<WatchEvent>>,
    modified: OnceLock<Arc<WatchEvent>>,
    removed: OnceLock<Arc<WatchEvent>>,
}

impl CacheEvent {
    pub(super) fn put(
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        received: impl Into<EventTimes>,
    ) -> Self {
        Self::new(object, previous, false, received.into())
    }

    pub(super) fn delete(
        object: Arc<Object>,
        previous: Arc<Object>,
        received: impl Into<EventTimes>,
    ) -> Self {
        Self::new(object, Some(previous), true, received.into())
    }

    fn new(
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        deleted: bool,
        received: EventTimes,
    ) -> Self {
        debug_assert!(
            previous
                .as_ref()
                .is_none_or(|p| p.resource_version() < object.resource_version())
        );
        let (added, modified, removed) = Default::default();
        Self {
            object,
            previous,
            deleted,
            received,
            added,
            modified,
            removed,
        }
    }

    pub(super) fn resource_version(&self) -> ResourceVersion {
        self.object.resource_version()
    }

    /// Returns the object after the change; `None` if it was deleted.
    pub(super) fn current(&self) -> Option<&Arc<Object>> {
        (!self.deleted).then_some(&self.object)
    }

    /// Returns the object before the change.
    pub(super) fn previous(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    /// Returns the changed object. Use it for key and scope, which no change alters.
    pub(super) fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Returns the approximate memory use in bytes. It excludes the previous state, which is the
    /// object of an older event or at most one state per key, and the deletions from a selection,
    /// of which an event has at most one.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.object.memory()
    }

    /// Drops the frames in formats other than JSON; live watchers have sent them by now. Readers of
    /// history encode them again.
    pub(super) fn drop_encoded_frames(&self) {
        for view in [&self.added, &self.modified, &self.removed] {
            if let Some(event) = view.get() {
                event.forget_frames();
            }
        }
    }

    /// Returns the event for a watcher with this predicate: an object that starts to match is
    /// ADDED, one that stops matching is DELETED with its last matching state.
    pub(super) fn watch_event_for(
        &self,
        predicate: &SelectionPredicate,
    ) -> Option<Arc<WatchEvent>> {
        let now = self
            .current()
            .is_some_and(|object| predicate.matches(object));
        let before = self
            .previous()
            .is_some_and(|object| predicate.matches(object));
        let event = match (before, now) {
            (false, true) => self.added.get_or_init(|| self.view(EventType::Added)),
            (true, true) => self.modified.get_or_init(|| self.view(EventType::Modified)),
            (true, false) => self.removed.get_or_init(|| self.removal()),
            (false, false) => return None,
        };
        Some(event.clone())
    }

    /// Returns true if a watcher with this predicate would receive the event without its shard
    /// selector, but does not.
    pub(super) fn is_of_another_shard(&self, predicate: &SelectionPredicate) -> bool {
        predicate.shard.is_some()
            && [self.current(), self.previous()]
                .into_iter()
                .flatten()
                .any(|object| predicate.matches_ignoring_shard(object))
    }

    fn view(&self, event_type: EventType) -> Arc<WatchEvent> {
        let event = WatchEvent::new(event_type, self.object.clone());
        Arc::new(event.after(self.previous.clone()))
    }

    /// Returns the deletion, real or from a selection. In both cases the object is the last
    /// matching state at the event's version.
    fn removal(&self) -> Arc<WatchEvent> {
        let object = match &self.previous {
            Some(previous) if !self.deleted => previous.deleted_at(self.resource_version()),
            _ => self.object.clone(),
        };
        // The event's frame has the version of the state before.
        #[cfg(feature = "planted-bugs")]
        if is_planted(PlantedBug::DeletionAtOldVersion) {
            let event = WatchEvent::new(EventType::Deleted, object);
            return Arc::new(event.after(self.previous.clone()));
        }
        Arc::new(WatchEvent::new(EventType::Deleted, object))
    }
}

//! `CacheEvent`: one change in history, with what was there before, and the three ways that
//! watchers can see it. Which watcher sees it which way is its predicate's verdict.

use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use crate::api::{EventType, Object, ResourceVersion, SelectionPredicate, WatchEvent};

/// When a change came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    /// From storage.
    pub(super) arrived: Instant,
    /// And the cache took it in.
    pub(super) at: Instant,
}

impl From<Instant> for Received {
    fn from(at: Instant) -> Self {
        Self { arrived: at, at }
    }
}

/// A change of the cached collection. Immutable; shared by history and every inbox.
#[derive(Debug)]
pub(super) struct CacheEvent {
    /// The new state, or for a deletion the last state at the version of the deletion.
    object: Arc<Object>,
    /// The state before; `None` for a creation.
    previous: Option<Arc<Object>>,
    deleted: bool,
    pub(super) received: Received,
    /// Each view is made when the first watcher needs it and shared by all: `object` as ADDED or
    /// MODIFIED, and the deletion.
    added: OnceLock<Arc<WatchEvent>>,
    modified: OnceLock<Arc<WatchEvent>>,
    removed: OnceLock<Arc<WatchEvent>>,
}

impl CacheEvent {
    pub(super) fn put(
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        received: impl Into<Received>,
    ) -> Self {
        Self::new(object, previous, false, received.into())
    }

    pub(super) fn delete(
        object: Arc<Object>,
        previous: Arc<Object>,
        received: impl Into<Received>,
    ) -> Self {
        Self::new(object, Some(previous), true, received.into())
    }

    fn new(
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        deleted: bool,
        received: Received,
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

    /// The object after the change; `None` when it is gone.
    pub(super) fn current(&self) -> Option<&Arc<Object>> {
        (!self.deleted).then_some(&self.object)
    }

    /// The object before the change.
    pub(super) fn previous(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    /// Which object changed; for key and scope, which no change alters.
    pub(super) fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Roughly what keeping the event costs, in bytes. The previous state is not counted: it is the
    /// object of an older event, or one state of a key at most. Nor are the deletions out of a
    /// selection, which some events have, at most one each.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.object.memory()
    }

    /// Lets go of the frames in other formats than JSON, which live watchers have sent by now. Who
    /// still reads the event from history makes them again.
    pub(super) fn forget_frames(&self) {
        for view in [&self.added, &self.modified, &self.removed] {
            if let Some(event) = view.get() {
                event.forget_frames();
            }
        }
    }

    /// How a watcher of this predicate sees the change: entering the selection is ADDED, leaving it is
    /// DELETED with the last matching state.
    pub(super) fn seen_by(&self, predicate: &SelectionPredicate) -> Option<Arc<WatchEvent>> {
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

    /// Whether a watcher of this predicate, which does not see the change, would without its shard.
    pub(super) fn is_of_another_shard(&self, predicate: &SelectionPredicate) -> bool {
        predicate.shard.is_some()
            && [self.current(), self.previous()]
                .into_iter()
                .flatten()
                .any(|object| predicate.matches_but_for_shard(object))
    }

    fn view(&self, event_type: EventType) -> Arc<WatchEvent> {
        let event = WatchEvent::new(event_type, self.object.clone());
        Arc::new(event.after(self.previous.clone()))
    }

    /// The deletion, real or out of a selection. In both cases the body is the last state that
    /// matched, at the version of the event.
    fn removal(&self) -> Arc<WatchEvent> {
        let object = match &self.previous {
            Some(previous) if !self.deleted => previous.deleted_at(self.resource_version()),
            _ => self.object.clone(),
        };
        Arc::new(WatchEvent::new(EventType::Deleted, object))
    }
}

//! `Snapshot`: the immutable state of one resource's cache at one version: the objects and the
//! history that led to them. The writer derives each snapshot from the previous one (the maps share
//! structure) and publishes it atomically; readers take no lock.
//!
//! # Definitions
//!
//! - `at`: `objects` includes every change up to and including this version.
//! - History *reaches back to* V if it holds every event after V up to `at`.
//! - A *revision* is the set of events with one version, each for another object. History grows and
//!   shrinks by whole revisions, and a reader stops only at the *boundary* between two, because a
//!   position inside a revision has the same version as one at its end.
//!
//! # Invariants
//!
//! 1. `objects` is the fold of any state at V and the events after V, for every V that history
//!    reaches back to.
//! 2. Event versions never decrease and are at most `at`; a published snapshot ends at a boundary.
//! 3. Checkpoints are ordered by version, and each is the exact state at its version.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use imbl::Vector;
use tokio::time::Instant;

use super::cacher::CacheHistory;
use super::event::CacheEvent;
use super::index::{self, IndexedObjects};
use super::object_map::{ObjectMap, lookup};
#[cfg(feature = "planted-bugs")]
use watchet_api::planted_bug::{PlantedBug, is_planted};
use watchet_api::{FieldRef, Object, ObjectKey, ResourceVersion, SelectionPredicate};

/// Events between two retained states: a read at an exact version undoes half as many on average,
/// at worst in about half a millisecond; a thousand retained states take 6 to 11 MB.
pub(super) const CHECKPOINT_EVERY: usize = 256;

/// Events that history retains regardless of age, so that clients of a quiet resource can resume.
/// Upstream's minimum capacity.
pub(super) const HISTORY_EVENTS_MIN: usize = 100;

/// The time that an event retains encoded frames. A live watcher that has not sent them by then is
/// a slow reader.
const FRAME_RETENTION: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    /// Snapshots of different generations have unrelated histories; a watch cannot continue from
    /// one to the other.
    pub(super) generation: u64,
    pub(super) at: ResourceVersion,
    /// By key, with an index per trigger column.
    objects: IndexedObjects,
    /// Oldest first.
    history: Vector<Arc<CacheEvent>>,
    /// The version that history reaches back to.
    reaches_back_to: ResourceVersion,
    /// The sum of the events' memory use.
    history_bytes: usize,
    /// The sum of the objects' JSON sizes.
    objects_bytes: usize,
    /// Events up to this version have no encoded frames.
    frameless: ResourceVersion,
    checkpoints: Vector<(ResourceVersion, ObjectMap)>,
    events_since_checkpoint: usize,
}

/// History does not reach back to the requested version, only to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooOld(pub(super) ResourceVersion);

impl Snapshot {
    /// Returns the state after a list that starts a new history, with an index for each trigger
    /// column.
    pub(super) fn new(
        generation: u64,
        objects: ObjectMap,
        triggers: &[FieldRef],
        at: ResourceVersion,
    ) -> Self {
        Self {
            generation,
            at,
            objects_bytes: objects.values().map(json_bytes).sum(),
            objects: index::indexed(triggers, objects),
            history: Vector::new(),
            reaches_back_to: at,
            history_bytes: 0,
            frameless: at,
            checkpoints: Vector::new(),
            events_since_checkpoint: 0,
        }
    }

    /// Returns the objects by key.
    pub(super) fn objects(&self) -> &ObjectMap {
        self.objects.objects()
    }

    /// Returns the total size of the objects' JSON in bytes.
    pub(super) fn objects_bytes(&self) -> usize {
        self.objects_bytes
    }

    /// Returns the memory of the events in history in bytes.
    pub(super) fn history_bytes(&self) -> usize {
        self.history_bytes
    }

    /// Returns the number of events in history.
    pub(super) fn history_len(&self) -> usize {
        self.history.len()
    }

    /// Returns a description of the retained events.
    pub(super) fn history(&self) -> CacheHistory {
        CacheHistory {
            events: self.history.len(),
            bytes: self.history_bytes,
            reaches_back_to: self.reaches_back_to,
            since: self.history.front().map(|event| event.received.at),
        }
    }

    pub(super) fn reaches_back_to(&self) -> ResourceVersion {
        self.reaches_back_to
    }

    /// Returns the version of the last change; `at` may be later because of progress notifications.
    pub(super) fn changed_at(&self) -> ResourceVersion {
        let last = self.history.last();
        last.map_or(self.reaches_back_to, |event| event.resource_version())
    }

    /// Appends a whole revision and applies it.
    ///
    /// # Panics
    /// Panics if the revision is not newer than the snapshot, or has several versions.
    pub(super) fn push(&mut self, revision: Vec<CacheEvent>) {
        let Some(version) = revision.first().map(CacheEvent::resource_version) else {
            return;
        };
        assert!(
            version > self.at,
            "revision {version} is not newer than the state at {}",
            self.at
        );
        if self.events_since_checkpoint >= CHECKPOINT_EVERY {
            let objects = self.objects().clone();
            self.checkpoints.push_back((self.at, objects));
            self.events_since_checkpoint = 0;
        }
        self.at = version;
        self.events_since_checkpoint += revision.len();
        for event in revision {
            assert_eq!(event.resource_version(), version, "two revisions in one");
            let before = match event.current() {
                Some(object) => self.objects.insert(object.key(), object),
                None => self.objects.remove(event.object().key().as_str()),
            };
            self.objects_bytes += event.current().map_or(0, json_bytes);
            self.objects_bytes -= before.as_ref().map_or(0, json_bytes);
            self.history_bytes += event.memory();
            self.history.push_back(Arc::new(event));
        }
    }

    /// Returns the objects that may match `predicate`, and the number of the index used, if any:
    /// the objects of an index if the predicate fixes an indexed field, one object if `only` is its
    /// key, else all.
    pub(super) fn candidates(
        &self,
        predicate: &SelectionPredicate,
        only: Option<&ObjectKey>,
    ) -> (ObjectMap, Option<usize>) {
        if let Some(key) = only {
            return (lookup(self.objects(), key), None);
        }
        match index::indexed_candidates(&self.objects, predicate) {
            Some((objects, index)) => (objects, Some(index)),
            None => (self.objects().clone(), None),
        }
    }

    /// Appends all events up to `at`, by revision. Returns the number of events.
    pub(super) fn extend(&mut self, revisions: Vec<Vec<CacheEvent>>, at: ResourceVersion) -> usize {
        let events = revisions.iter().map(Vec::len).sum();
        for revision in revisions {
            self.push(revision);
        }
        self.advance(at);
        events
    }

    /// Advances the version: nothing changed up to `at`.
    pub(super) fn advance(&mut self, at: ResourceVersion) {
        self.at = self.at.max(at);
    }

    /// Returns the snapshot with another state at `at`, without the events that led to it.
    #[cfg(feature = "planted-bugs")]
    pub(super) fn with_state(
        self,
        objects: ObjectMap,
        triggers: &[FieldRef],
        at: ResourceVersion,
    ) -> Self {
        let new = Self::new(self.generation, objects, triggers, at);
        Self {
            at,
            objects: new.objects,
            objects_bytes: new.objects_bytes,
            checkpoints: Vector::new(),
            ..self
        }
    }

    /// Drops the oldest revisions while history exceeds `bytes_max`, or while the oldest is older
    /// than `window` and more than the minimum number of events remains.
    pub(super) fn trim(&mut self, bytes_max: usize, window: Duration) {
        let now = Instant::now();
        self.drop_encoded_frames(now);
        while let Some(oldest) = self.history.front() {
            let version = oldest.resource_version();
            let events = self.first_after(version);
            let expired = now - oldest.received.at > window;
            let surplus = expired && self.history.len() - events >= HISTORY_EVENTS_MIN;
            if self.history_bytes <= bytes_max && !surplus {
                break;
            }
            for event in self.history.slice(..events) {
                self.history_bytes -= event.memory();
            }
            self.reaches_back_to = version;
        }
        while self
            .checkpoints
            .front()
            .is_some_and(|(at, _)| *at < self.reaches_back_to)
        {
            self.checkpoints.pop_front();
        }
    }

    fn drop_encoded_frames(&mut self, now: Instant) {
        let first = self.first_after(self.frameless);
        for event in self.history.focus().narrow(first..).into_iter() {
            if now - event.received.at <= FRAME_RETENTION {
                break;
            }
            event.drop_encoded_frames();
            self.frameless = event.resource_version();
        }
    }

    /// Returns the events after `version`, oldest first.
    pub(super) fn events_after(
        &self,
        version: ResourceVersion,
    ) -> Result<impl ExactSizeIterator<Item = &Arc<CacheEvent>>, TooOld> {
        // The list at `reaches_back_to` has the event that the watch is to begin with.
        #[cfg(feature = "planted-bugs")]
        let version = match is_planted(PlantedBug::EmptyHistoryOffByOne)
            && self.history.is_empty()
            && version.next() == self.reaches_back_to
        {
            true => self.reaches_back_to,
            false => version,
        };
        if version < self.reaches_back_to {
            return Err(TooOld(self.reaches_back_to));
        }
        let first = self.first_after(version);
        Ok(self.history.focus().narrow(first..).into_iter())
    }

    /// Returns the number of events with at most this version.
    fn first_after(&self, version: ResourceVersion) -> usize {
        // Never returns Equal: several events can have the same version.
        let compared = self.history.binary_search_by(|event| {
            let older = event.resource_version() <= version;
            if older {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        });
        compared.unwrap_or_else(|border| border)
    }

    /// Returns the state at exactly `version`, which is not after `at`: the nearest retained state
    /// after it with the events in between undone.
    pub(super) fn objects_at(&self, version: ResourceVersion) -> Result<ObjectMap, TooOld> {
        debug_assert!(version <= self.at);
        if version < self.reaches_back_to {
            return Err(TooOld(self.reaches_back_to));
        }
        let checkpoint = self.checkpoints.iter().find(|(at, _)| *at >= version);
        let (from, mut objects) = match checkpoint {
            Some((at, objects)) => (*at, objects.clone()),
            None => (self.at, self.objects().clone()),
        };
        let undo = self.first_after(version)..self.first_after(from);
        for event in self.history.focus().narrow(undo).into_iter().rev() {
            match event.previous() {
                Some(previous) => objects.insert(previous.key().clone(), previous.clone()),
                None => objects.remove(event.object().key()),
            };
        }
        Ok(objects)
    }
}

fn json_bytes(object: &Arc<Object>) -> usize {
    object.body_slice().len()
}

#[cfg(test)]
mod tests;

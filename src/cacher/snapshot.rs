//! `Snapshot`: the whole cache of one resource at one version, immutable: the objects, and the
//! history that led to them. The writer makes the next one from the last (the maps share structure)
//! and publishes it whole; readers never see half of a change and never take a lock.
//!
//! # Definitions
//!
//! - `at`: every change up to and including this version is in `objects`.
//! - History *reaches back to* V when it holds every event after V up to `at`.
//! - A *revision* is all events of one version, each about another object. History grows and shrinks
//!   by whole revisions, and whoever reads part of it ends at the *border* between two: a position
//!   within a revision could not be told from one at its end.
//!
//! # Invariants
//!
//! 1. `objects` is the fold of any state at V and the events after V, for every V that history
//!    reaches back to.
//! 2. Event versions never decrease and are at most `at`; what is published ends at a border.
//! 3. Checkpoints increase, and each is the state at its version exactly.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use imbl::Vector;
use tokio::time::Instant;

use super::delegator::lookup;
use super::event::CacheEvent;
use super::index::{self, IndexedObjects};
use crate::api::{FieldRef, Object, ObjectKey, ResourceVersion, SelectionPredicate};
use crate::reflector;

/// The objects of a resource by key, in key order.
pub(super) type ObjectMap = reflector::ObjectMap<Object>;

/// A retained state is kept every so many events: an exact-version read undoes half as many on
/// average, about half a millisecond at the worst, and a thousand of them cost 6 to 11 MB.
pub(super) const CHECKPOINT_EVERY: usize = 256;

/// Events that history keeps however old they are, so that clients of a quiet resource resume.
/// Upstream's smallest ring.
pub(super) const HISTORY_EVENTS_MIN: usize = 100;

/// Gaps of a resource that is so quiet that its history, and they with it, never age.
const GAPS_MAX: usize = 64;

/// How long an event keeps the frames that were made of it: a live watcher that has not sent them
/// after this time reads slowly.
const FRAMES_KEPT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    /// Another one says that history did not go on: watches of the last one cannot.
    pub(super) generation: u64,
    pub(super) at: ResourceVersion,
    /// By key, and by the fields that reads often pin.
    objects: IndexedObjects,
    /// Oldest first.
    history: Vector<Arc<CacheEvent>>,
    /// What history reaches back to.
    reaches_back_to: ResourceVersion,
    /// Sum of the events' memory.
    history_bytes: usize,
    /// Sum of the objects' JSON.
    objects_bytes: usize,
    /// Events up to this version keep no frames.
    frameless: ResourceVersion,
    /// Where history tells the changes but not each state in between: as far as it reaches back.
    gaps: Vec<Gap>,
    /// How often that has happened. A reader that goes on from one snapshot to another of the same
    /// number crosses no gap.
    pub(super) relists: u64,
    checkpoints: Vector<(ResourceVersion, ObjectMap)>,
    events_since_checkpoint: usize,
}

/// What a relist bridged: history leads from the state at `from` to that at `to`, but the states in
/// between are not those that were.
#[derive(Debug, Clone, Copy)]
struct Gap {
    from: ResourceVersion,
    to: ResourceVersion,
    /// Which relist made it: the first is 1.
    relist: u64,
}

/// Which snapshots a watch goes on with, and which gaps were there before it: those of the snapshot that it
/// found when it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lineage {
    pub(super) generation: u64,
    relists: u64,
}

impl Gap {
    fn hides(self, version: ResourceVersion) -> bool {
        self.from < version && version < self.to
    }
}

/// History does not reach back so far; it does to this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooOld(pub(super) ResourceVersion);

impl Snapshot {
    /// The state after a list that begins a new history, with an index for each trigger.
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
            gaps: Vec::new(),
            relists: 0,
            checkpoints: Vector::new(),
            events_since_checkpoint: 0,
        }
    }

    /// The objects by key.
    pub(super) fn objects(&self) -> &ObjectMap {
        self.objects.objects()
    }

    /// How many bytes of JSON the objects are.
    pub(super) fn objects_bytes(&self) -> usize {
        self.objects_bytes
    }

    /// How many events history holds.
    pub(super) fn history_len(&self) -> usize {
        self.history.len()
    }

    pub(super) fn reaches_back_to(&self) -> ResourceVersion {
        self.reaches_back_to
    }

    /// The version of the last change: since then `at` alone has moved.
    pub(super) fn changed_at(&self) -> ResourceVersion {
        let last = self.history.last();
        last.map_or(self.reaches_back_to, |event| event.resource_version())
    }

    /// Appends a revision, all of it, and applies it.
    ///
    /// # Panics
    /// When it is not newer than the snapshot, or not one revision.
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

    /// The objects among which all are that `predicate` selects: those of an index if it pins a field
    /// that has one, `only` one if it names its key, else all. And which index they are from, if any.
    pub(super) fn candidates(
        &self,
        predicate: &SelectionPredicate,
        only: Option<&ObjectKey>,
    ) -> (ObjectMap, Option<usize>) {
        if let Some(key) = only {
            return (lookup(self.objects(), key), None);
        }
        match index::pinned(&self.objects, predicate) {
            Some((objects, index)) => (objects, Some(index)),
            None => (self.objects().clone(), None),
        }
    }

    /// Moves the version without a change: nothing happened up to `at`.
    pub(super) fn advance(&mut self, at: ResourceVersion) {
        self.at = self.at.max(at);
    }

    /// The state is now that of a relist at `at`; the events since `from` lead to it.
    pub(super) fn relisted(&mut self, from: ResourceVersion, at: ResourceVersion) {
        self.advance(at);
        self.relists += 1;
        if from < self.at {
            let (to, relist) = (self.at, self.relists);
            self.gaps.push(Gap { from, to, relist });
        }
        if self.gaps.len() > GAPS_MAX {
            // The two oldest become one, which hides what was between them too.
            let oldest = self.gaps.remove(0);
            self.gaps[0].from = oldest.from;
        }
    }

    /// Whether the state at `version` is one that history cannot tell. A client that has it from
    /// elsewhere (storage, another replica) cannot go on from it here: a deletion that it has not
    /// seen may be told at an earlier version than its own. The version to begin with instead.
    pub(super) fn hidden(&self, version: ResourceVersion) -> Option<TooOld> {
        self.gaps
            .iter()
            .find(|gap| gap.hides(version))
            .map(|gap| TooOld(gap.to))
    }

    pub(super) fn lineage(&self) -> Lineage {
        Lineage {
            generation: self.generation,
            relists: self.relists,
        }
    }

    /// Whether a watch that began after `origin` cannot go on here, and the version to begin with instead. A
    /// watch gets the difference that a relist found if it was open when that happened. One that began
    /// later would take the difference for every event since its version, which some are missing of.
    pub(super) fn refuses(&self, origin: ResourceVersion, watch: Lineage) -> Option<TooOld> {
        let refuses =
            |gap: &&Gap| gap.hides(origin) || (gap.relist <= watch.relists && origin < gap.to);
        let gap = self.gaps.iter().rev().find(refuses)?;
        Some(TooOld(gap.to))
    }

    /// Drops the oldest revisions while history takes more than `bytes_max`, or while the oldest is
    /// older than `window` and the minimum is kept without it.
    pub(super) fn trim(&mut self, bytes_max: usize, window: Duration) {
        let now = Instant::now();
        self.forget_frames(now);
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
        self.gaps.retain(|gap| gap.to > self.reaches_back_to);
        while self
            .checkpoints
            .front()
            .is_some_and(|(at, _)| *at < self.reaches_back_to)
        {
            self.checkpoints.pop_front();
        }
    }

    fn forget_frames(&mut self, now: Instant) {
        let first = self.first_after(self.frameless);
        for event in self.history.focus().narrow(first..).into_iter() {
            if now - event.received.at <= FRAMES_KEPT {
                break;
            }
            event.forget_frames();
            self.frameless = event.resource_version();
        }
    }

    /// The events after `version`, oldest first.
    pub(super) fn events_after(
        &self,
        version: ResourceVersion,
    ) -> Result<impl ExactSizeIterator<Item = &Arc<CacheEvent>>, TooOld> {
        if version < self.reaches_back_to {
            return Err(TooOld(self.reaches_back_to));
        }
        let first = self.first_after(version);
        Ok(self.history.focus().narrow(first..).into_iter())
    }

    /// How many events have at most this version.
    fn first_after(&self, version: ResourceVersion) -> usize {
        // Never equal: of several events of one version any could be the one that is found.
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

    /// The state at exactly `version`, which is not after `at`: the nearest state known after it,
    /// with the events in between undone.
    pub(super) fn objects_at(&self, version: ResourceVersion) -> Result<ObjectMap, TooOld> {
        debug_assert!(version <= self.at);
        if let Some(hidden) = self.hidden(version) {
            return Err(hidden);
        }
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

//! Relist without harm: when the storage watch was lost beyond its history, the new list is compared
//! with the state, and the difference told as honest events, so that watches go on. What happened in
//! between and left no trace is not told; that is what a watch from a list allows.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::event::CacheEvent;
use super::snapshot::{ObjectMap, Snapshot};
use crate::api::{Object, ResourceVersion};

/// The events that lead from `old` to `new` at `at`, in order, or `None` when they cannot be told
/// truthfully: storage went back in time, or holds versions that contradict the state.
///
/// An object that changed is told at its own version. A deletion's version is not known; it was one
/// that no listed object bears, after the state's and at most the list's, and each deletion had its
/// own. The latest free ones are taken: a client that has seen version V of any kind and resumes
/// there then misses nothing. An object that was deleted and made anew (another uid) is told as both.
pub(super) fn changes(
    old: &Snapshot,
    new: &ObjectMap,
    at: ResourceVersion,
) -> Option<Vec<CacheEvent>> {
    if at < old.at {
        return None;
    }
    let mut versions = FreeVersions::new(old.at, at);
    let mut puts = Vec::new();
    let mut deletions = Vec::new();
    for (key, object) in new {
        let before = old.objects.get(key);
        if before.is_some_and(|b| b.resource_version() == object.resource_version()) {
            continue;
        }
        if !versions.take(object.resource_version()) {
            return None;
        }
        match before {
            Some(before) if before.uid() != object.uid() => {
                deletions.push((before, object.resource_version()));
                puts.push((object, None));
            }
            before => puts.push((object, before)),
        }
    }
    for (key, before) in &old.objects {
        if !new.contains_key(key) {
            deletions.push((before, at.next()));
        }
    }
    // The tightest deadlines choose first among the latest versions before them.
    deletions.sort_by_key(|(_, deadline)| *deadline);
    let received = Instant::now();
    let mut events = Vec::with_capacity(puts.len() + deletions.len());
    for (before, deadline) in deletions {
        let object = before
            .deleted_at(versions.take_latest_before(deadline)?)
            .ok()?;
        events.push(CacheEvent::delete(object, before.clone(), received));
    }
    for (object, before) in puts {
        let before: Option<Arc<Object>> = before.cloned();
        events.push(CacheEvent::put(object.clone(), before, received));
    }
    events.sort_by_key(CacheEvent::resource_version);
    Some(events)
}

/// The versions after one and up to another that no event has yet.
struct FreeVersions {
    after: ResourceVersion,
    up_to: ResourceVersion,
    taken: BTreeSet<ResourceVersion>,
}

impl FreeVersions {
    fn new(after: ResourceVersion, up_to: ResourceVersion) -> Self {
        Self {
            after,
            up_to,
            taken: BTreeSet::new(),
        }
    }

    fn take(&mut self, version: ResourceVersion) -> bool {
        version > self.after && version <= self.up_to && self.taken.insert(version)
    }

    fn take_latest_before(&mut self, deadline: ResourceVersion) -> Option<ResourceVersion> {
        let mut candidate = ResourceVersion::new(deadline.get() - 1);
        // Walks down over the taken ones just below the deadline.
        for taken in self.taken.range(..deadline).rev() {
            if *taken != candidate {
                break;
            }
            candidate = ResourceVersion::new(candidate.get() - 1);
        }
        self.take(candidate).then_some(candidate)
    }
}

//! Relist without harm: when the storage watch was lost beyond its history, the new list is compared
//! with the state, and the difference told as honest events, so that watches go on. What happened in
//! between and left no trace is not told; that is what a watch from a list allows.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::event::CacheEvent;
use super::snapshot::{ObjectMap, Snapshot};
use crate::api::{Object, ResourceVersion};

/// The revisions that lead from `old` to `new` at `at`, in order, or `None` when they cannot be told
/// truthfully: storage went back in time, or holds versions that contradict the state.
///
/// An object that changed is told at its own version, and an object that was deleted and made anew
/// (another uid) as both. When a deletion happened is not known. All are told at the earliest version
/// that there can be: a client that was told part of this and resumes where the truth is known then
/// has every deletion that happened before, and is at worst told one twice. Told late, a deletion
/// could be before the version it resumes at and never be told.
pub(super) fn changes(
    old: &Snapshot,
    new: &ObjectMap,
    at: ResourceVersion,
) -> Option<Vec<Vec<CacheEvent>>> {
    if at < old.at {
        return None;
    }
    let received = Instant::now();
    let earliest = old.at.next();
    let mut revisions: BTreeMap<ResourceVersion, Vec<CacheEvent>> = BTreeMap::new();
    let mut tell = |event: CacheEvent| {
        let version = event.resource_version();
        revisions.entry(version).or_default().push(event);
    };
    let delete = |object: &Arc<Object>| {
        CacheEvent::delete(object.deleted_at(earliest), object.clone(), received)
    };
    for (key, object) in new {
        let version = object.resource_version();
        let mut before = old.objects().get(key);
        if before.is_some_and(|before| before.resource_version() == version) {
            continue;
        }
        if version < earliest || version > at {
            return None;
        }
        // At the earliest version there is no room for a deletion before it: it was written over.
        if version > earliest
            && let Some(gone) = before.take_if(|before| before.uid() != object.uid())
        {
            tell(delete(gone));
        }
        tell(CacheEvent::put(object.clone(), before.cloned(), received));
    }
    for (key, object) in old.objects() {
        if !new.contains_key(key) {
            if earliest > at {
                return None;
            }
            tell(delete(object));
        }
    }
    Some(revisions.into_values().collect())
}

#[cfg(test)]
mod tests;

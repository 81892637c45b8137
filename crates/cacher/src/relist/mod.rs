//! Converts a relist into events: if the storage watch was lost and storage has compacted the
//! events, the differences between the state and the new list become events, so that client watches
//! continue. Intermediate changes are not reported; the watch API does not guarantee them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::event::CacheEvent;
use super::object_map::ObjectMap;
use super::snapshot::Snapshot;
use watchet_api::{Object, ResourceVersion};

/// Returns the revisions that lead from `old` to `new` at `at`, in order. Returns `None` if there
/// is no correct sequence: storage went back in time, or has versions that contradict the state.
///
/// A changed object is reported at its own version; an object with another uid is reported as
/// deleted and created. The version of a deletion is unknown, so all deletions are reported at the
/// earliest possible version: a client that receives part of the events and resumes at another
/// replica then misses none of its deletions, and sees one twice at worst. With a later version it
/// could resume after a deletion that it never received.
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
    let mut push = |event: CacheEvent| {
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
        // No deletion fits before the earliest version: the object was overwritten.
        if version > earliest
            && let Some(replaced) = before.take_if(|before| before.uid() != object.uid())
        {
            push(delete(replaced));
        }
        push(CacheEvent::put(object.clone(), before.cloned(), received));
    }
    for (key, object) in old.objects() {
        if !new.contains_key(key) {
            if earliest > at {
                return None;
            }
            push(delete(object));
        }
    }
    Some(revisions.into_values().collect())
}

#[cfg(test)]
mod tests;

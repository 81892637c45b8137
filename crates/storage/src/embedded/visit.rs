//! Visits of a whole list, on all processors. The threads take the next keys in turn, and each reads
//! the values of its keys and passes them to the visitor while they are in the processor's cache.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

use parking_lot::Mutex;

use super::codec::{Head, Record};
use super::error::{Fault, catch_damage, catch_failure};
use super::snapshot::{Snapshot, misplaced, missing};
use crate::{ListVisitor, StorageError, VisitedValue};
use watchet_api::{ResourceVersion, StorageKey};

/// The number of keys of a part: few, so that the pages of their values, two each for a usual pod,
/// stay in the processor's cache; many compared to the cost of a lock.
const PART_KEYS: usize = 32;

/// Maximum number of helper threads of one visit. More would take the processors from the caches of
/// other resources, which are filled at the same time.
const HELPERS_MAX: usize = 7;

/// A key and the revision of its value.
type LiveKey = (StorageKey, u64);

/// The limits of all visits of a store.
#[derive(Debug)]
pub(super) struct VisitLimits {
    /// The number of helper threads that may be started now.
    helpers: AtomicUsize,
    is_stopped: AtomicBool,
}

impl Default for VisitLimits {
    /// Allows a helper thread for each processor but one, which the thread of the visit uses.
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            helpers: AtomicUsize::new(processors - 1),
            is_stopped: AtomicBool::new(false),
        }
    }
}

impl VisitLimits {
    /// Ends all visits with an error, each after the parts that its threads read.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Allows visits again.
    pub(super) fn resume(&self) {
        self.is_stopped.store(false, Ordering::Relaxed);
    }

    /// Returns a permit for a helper thread, unless all are in use.
    fn permit(&self) -> Option<Permit<'_>> {
        let take = |free: usize| free.checked_sub(1);
        let taken = self
            .helpers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.ok().map(|_| Permit(&self.helpers))
    }
}

/// Allows one helper thread. Dropping it returns it.
struct Permit<'a>(&'a AtomicUsize);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Passes the latest values of `prefix` to `visitor`, and returns the revision of `snapshot`.
pub(super) fn visit(
    snapshot: &Snapshot,
    limits: &VisitLimits,
    prefix: &StorageKey,
    visitor: &dyn ListVisitor,
) -> Result<ResourceVersion, Fault> {
    let heads = snapshot.heads_from(prefix.as_str())?;
    let covered = heads.take_while(|entry| match entry {
        Ok((key, _)) => prefix.covers(key.as_str()),
        Err(_) => true,
    });
    let live = covered.filter_map(|entry| match entry {
        Ok((key, head @ Head { live: true, .. })) => Some(Ok((key, head.modified))),
        Ok(_) => None,
        Err(fault) => Some(Err(fault)),
    });
    let visit = Visit {
        snapshot,
        limits,
        visitor,
        parts: Mutex::new(Parts {
            live,
            next: 0,
            is_last: false,
        }),
        has_failed: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let mut helpers = Vec::new();
        let visited =
            visit.visit_parts(|| helpers.extend(visit.start_helper(scope, helpers.len())));
        helpers.into_iter().fold(visited, |visited, helper| {
            let panicked = |_| {
                Err(Fault::Failed(
                    "a thread that reads a list panicked".to_owned(),
                ))
            };
            visited.and(helper.join().unwrap_or_else(panicked))
        })
    })?;
    Ok(ResourceVersion::new(snapshot.position.revision))
}

/// The parts that no thread has taken.
struct Parts<I> {
    live: I,
    next: usize,
    is_last: bool,
}

impl<I: Iterator<Item = Result<LiveKey, Fault>>> Parts<I> {
    /// Takes the next part and its index; `None` after the last part. Only the last one has fewer than
    /// `PART_KEYS` keys, and it may have none.
    fn next_part(&mut self) -> Result<Option<(usize, Vec<LiveKey>)>, Fault> {
        if self.is_last {
            return Ok(None);
        }
        let keys: Vec<_> = self
            .live
            .by_ref()
            .take(PART_KEYS)
            .collect::<Result<_, _>>()?;
        let index = self.next;
        self.next += 1;
        self.is_last = keys.len() < PART_KEYS;
        Ok(Some((index, keys)))
    }
}

/// A running visit.
struct Visit<'a, I> {
    snapshot: &'a Snapshot,
    limits: &'a VisitLimits,
    visitor: &'a dyn ListVisitor,
    parts: Mutex<Parts<I>>,
    /// True if one of the threads has failed, so that the others end.
    has_failed: AtomicBool,
}

impl<I: Iterator<Item = Result<LiveKey, Fault>> + Send> Visit<'_, I> {
    /// Visits parts until none is left. Calls `on_more` before each part after which there may be more.
    fn visit_parts(&self, mut on_more: impl FnMut()) -> Result<(), Fault> {
        // A panic in a helper thread would not be caught by the caller.
        let visited = catch_damage(|| {
            while !self.has_failed.load(Ordering::Relaxed) {
                if self.limits.is_stopped.load(Ordering::Relaxed) {
                    let detail = "the list ended early, because the store is being closed, or opened \
                                  again after a failure: try again";
                    return Err(StorageError::Unavailable(detail.to_owned()).into());
                }
                let part = self.parts.lock().next_part()?;
                let Some((index, keys)) = part else { break };
                if keys.len() == PART_KEYS {
                    on_more();
                }
                visit_part(self.snapshot, index, &keys, self.visitor)?;
            }
            Ok(())
        });
        if visited.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        visited
    }

    /// Starts a helper thread of this visit, which has started `helpers`, if the limits allow it and
    /// the system has a thread.
    fn start_helper<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        helpers: usize,
    ) -> Option<ScopedJoinHandle<'scope, Result<(), Fault>>> {
        if helpers == HELPERS_MAX {
            return None;
        }
        let permit = self.limits.permit()?;
        let help = move || {
            let _permit = permit;
            self.visit_parts(|| {})
        };
        let thread = thread::Builder::new().name("visit".to_owned());
        thread.spawn_scoped(scope, help).ok()
    }
}

/// Passes the values of one part to `visitor`.
fn visit_part(
    snapshot: &Snapshot,
    index: usize,
    keys: &[LiveKey],
    visitor: &dyn ListVisitor,
) -> Result<(), Fault> {
    let records = keys.iter().map(|(key, modified)| {
        let record = snapshot.record(*modified)?;
        record.ok_or_else(|| missing(key.as_str(), *modified))
    });
    let records: Vec<_> = records.collect::<Result<_, _>>()?;
    let values = keys.iter().zip(&records).map(|((key, modified), record)| {
        let record = Record::decode(*modified, record.get())?;
        match record.value {
            Some(value) if record.key == key.as_str() => Ok(VisitedValue {
                key,
                value,
                mod_revision: ResourceVersion::new(*modified),
            }),
            _ => Err(misplaced(key.as_str(), *modified)),
        }
    });
    let values: Vec<_> = values.collect::<Result<_, Fault>>()?;
    catch_failure(|| visitor.visit(index, &values))
}

//! The pending notifications of a handler, in bounded memory however slow it is.
//!
//! # Definitions
//!
//! Up to [`EXACT_MAX`] notifications are stored as received. Beyond that, those of the same object
//! are *merged* into at most one deletion followed by at most one addition or update, until all
//! pending ones are delivered.
//!
//! ```text
//! Added(a), Updated(a, b)            = Added(b)
//! Updated(a, b), Updated(b, c)       = Updated(a, c)
//! Updated(a, b), Deleted(b)          = Deleted(b)
//! Deleted(a), Added(b)               = Deleted(a), Added(b)    another object with the same name
//! Added(a), Deleted(a)               = nothing                 the handler never received it
//! ```
//!
//! # Invariants
//!
//! 1. Delivered in order, the pending notifications lead from what the handler has received to the
//!    state of the indexer.
//! 2. Each object that the handler received and that no longer exists is delivered as deleted.
//! 3. There are at most [`EXACT_MAX`] notifications, or two per key that the handler has received
//!    or that exists, however many changes there are.
//! 4. The oldest is delivered first; merged notifications have the position of their oldest.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::{Deleted, KubeObject, Notification, key_of};
use watchet_api::ObjectKey;

/// Above this number, notifications of the same object are merged. A handler as fast as its source
/// receives each of them: this many may accumulate during a slow call.
pub(super) const EXACT_MAX: usize = 1024;

/// The position of a notification in the order of receipt.
pub(super) type Ordinal = u64;

#[derive(Debug)]
pub(super) struct Pending<T> {
    notifications: Notifications<T>,
    next: Ordinal,
    exact_max: usize,
}

#[derive(Debug)]
enum Notifications<T> {
    /// As received.
    Exact(VecDeque<(Ordinal, Notification<T>)>),
    /// One entry per key.
    Merged(Merged<T>),
}

#[derive(Debug)]
struct Merged<T> {
    order: BTreeMap<Ordinal, ObjectKey>,
    entries: HashMap<ObjectKey, (Ordinal, MergedEntry<T>)>,
}

/// The merged notifications of one key, at least one.
#[derive(Debug)]
struct MergedEntry<T> {
    deleted: Option<Deleted<T>>,
    then: Option<LiveChange<T>>,
}

#[derive(Debug)]
enum LiveChange<T> {
    Added {
        object: Arc<T>,
        is_in_initial_list: bool,
    },
    Updated {
        old: Arc<T>,
        new: Arc<T>,
    },
}

impl<T: KubeObject> Pending<T> {
    /// Creates an empty queue that merges above `exact_max` notifications.
    pub(super) fn new(exact_max: usize) -> Self {
        Self {
            notifications: Notifications::Exact(VecDeque::new()),
            next: 0,
            exact_max,
        }
    }

    /// Returns the position of the next notification: all pending ones have smaller positions.
    pub(super) fn next(&self) -> Ordinal {
        self.next
    }

    /// Returns the position of the oldest.
    pub(super) fn oldest(&self) -> Option<Ordinal> {
        match &self.notifications {
            Notifications::Exact(queue) => queue.front().map(|(ordinal, _)| *ordinal),
            Notifications::Merged(merged) => {
                merged.order.first_key_value().map(|(ordinal, _)| *ordinal)
            }
        }
    }

    /// Returns the number of notifications, or of objects if they are merged.
    pub(super) fn len(&self) -> usize {
        match &self.notifications {
            Notifications::Exact(queue) => queue.len(),
            Notifications::Merged(merged) => merged.order.len(),
        }
    }

    pub(super) fn push(&mut self, notification: Notification<T>) {
        let ordinal = self.next;
        self.next += 1;
        match &mut self.notifications {
            Notifications::Exact(queue) => {
                queue.push_back((ordinal, notification));
                if queue.len() > self.exact_max {
                    let mut merged = Merged::default();
                    for (ordinal, notification) in queue.drain(..) {
                        merged.push(ordinal, notification);
                    }
                    self.notifications = Notifications::Merged(merged);
                }
            }
            Notifications::Merged(merged) => merged.push(ordinal, notification),
        }
    }

    /// Removes the oldest notification.
    pub(super) fn pop(&mut self) -> Option<Notification<T>> {
        match &mut self.notifications {
            Notifications::Exact(queue) => queue.pop_front().map(|(_, notification)| notification),
            Notifications::Merged(merged) => {
                let popped = merged.pop();
                if merged.order.is_empty() {
                    self.notifications = Notifications::Exact(VecDeque::new());
                }
                popped
            }
        }
    }

    /// Drops all notifications.
    pub(super) fn clear(&mut self) {
        self.notifications = Notifications::Exact(VecDeque::new());
    }
}

impl<T> Default for Merged<T> {
    fn default() -> Self {
        Self {
            order: BTreeMap::new(),
            entries: HashMap::new(),
        }
    }
}

impl<T: KubeObject> Merged<T> {
    fn push(&mut self, ordinal: Ordinal, notification: Notification<T>) {
        let key = match &notification {
            Notification::Added { object, .. } => key_of(&**object),
            Notification::Updated { new, .. } => key_of(&**new),
            Notification::Deleted(Deleted::Observed(object)) => key_of(&**object),
            Notification::Deleted(Deleted::Unknown(tombstone)) => tombstone.key.clone(),
        };
        let (key, (place, entry)) = match self.entries.remove_entry(&key) {
            Some((key, (place, entry))) => (key, (place, entry.and(notification))),
            None => (key, (ordinal, Some(MergedEntry::first(notification)))),
        };
        match entry {
            Some(entry) => {
                self.order.entry(place).or_insert_with(|| key.clone());
                self.entries.insert(key, (place, entry));
            }
            None => {
                self.order.remove(&place);
            }
        }
    }

    fn pop(&mut self) -> Option<Notification<T>> {
        let first = self.order.first_entry()?;
        let (_, entry) = self
            .entries
            .get_mut(first.get())
            .expect("keys in order have notifications");
        if let Some(deleted) = entry.deleted.take() {
            if entry.then.is_none() {
                self.entries.remove(&first.remove());
            }
            return Some(Notification::Deleted(deleted));
        }
        let (_, (_, entry)) = self.entries.remove_entry(&first.remove())?;
        entry.then.map(LiveChange::into)
    }
}

impl<T> MergedEntry<T> {
    fn first(notification: Notification<T>) -> Self {
        let (deleted, then) = match notification {
            Notification::Deleted(deleted) => (Some(deleted), None),
            Notification::Added {
                object,
                is_in_initial_list,
            } => (
                None,
                Some(LiveChange::Added {
                    object,
                    is_in_initial_list,
                }),
            ),
            Notification::Updated { old, new } => (None, Some(LiveChange::Updated { old, new })),
        };
        Self { deleted, then }
    }

    /// Appends `notification`; returns `None` if the handler never received the object.
    fn and(self, notification: Notification<T>) -> Option<Self> {
        let Self { deleted, then } = self;
        let next = Self::first(notification);
        match (next.deleted, next.then) {
            (None, Some(next)) => {
                let then = match then {
                    Some(earlier) => earlier.up_to(next.object()),
                    None => next,
                };
                Some(Self {
                    deleted,
                    then: Some(then),
                })
            }
            (last, _) => {
                let was_received = !matches!(then, Some(LiveChange::Added { .. }));
                // A pending deletion is that of the object that the handler has received.
                let deleted = deleted.or(last.filter(|_| was_received));
                deleted.map(|deleted| Self {
                    deleted: Some(deleted),
                    then: None,
                })
            }
        }
    }
}

impl<T> LiveChange<T> {
    fn object(self) -> Arc<T> {
        match self {
            Self::Added { object, .. } | Self::Updated { new: object, .. } => object,
        }
    }

    /// Returns the update that leads from before this one to a later state.
    fn up_to(self, later: Arc<T>) -> Self {
        match self {
            Self::Updated { old, .. } => Self::Updated { old, new: later },
            Self::Added {
                is_in_initial_list, ..
            } => Self::Added {
                object: later,
                is_in_initial_list,
            },
        }
    }
}

impl<T> From<LiveChange<T>> for Notification<T> {
    fn from(change: LiveChange<T>) -> Self {
        match change {
            LiveChange::Added {
                object,
                is_in_initial_list,
            } => Self::Added {
                object,
                is_in_initial_list,
            },
            LiveChange::Updated { old, new } => Self::Updated { old, new },
        }
    }
}

#[cfg(test)]
mod tests;

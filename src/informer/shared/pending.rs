//! What a handler has yet to be told, in bounded memory however slow it is. It does not know who tells
//! it, nor when.
//!
//! # Definitions
//!
//! Notifications are kept as they came while there are at most [`EXACT_MAX`]. One more, and those of the
//! same object are *folded* into what its handler is *owed*: at most one deletion and, after it, at most
//! one addition or update. It stays so until all is told.
//!
//! ```text
//! Added(a), Updated(a, b)            = Added(b)
//! Updated(a, b), Updated(b, c)       = Updated(a, c)
//! Updated(a, b), Deleted(b)          = Deleted(b)
//! Deleted(a), Added(b)               = Deleted(a), Added(b)    another object of the same name
//! Added(a), Deleted(a)               = nothing                 it was never told of it
//! ```
//!
//! # Invariants
//!
//! 1. Told one after the other, what is pending takes the handler from what it was told to the state
//!    that the indexer has.
//! 2. Each object that it was told of and that is gone is told as deleted.
//! 3. The notifications kept are at most [`EXACT_MAX`], or two for each key that the handler was told of
//!    or that exists: churn makes them no more.
//! 4. What is told next is the oldest; an object has the place of the oldest that it is owed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::api::ObjectKey;
use crate::informer::{Deleted, KubeObject, Notification, key_of};

/// Above this, notifications of the same object are folded. A handler that is as fast as its source is
/// told each of them: so many gather while it does one slow thing.
pub(super) const EXACT_MAX: usize = 1024;

/// Counts what was put in, so that a place in the order has a number.
pub(super) type Ordinal = u64;

#[derive(Debug)]
pub(super) struct Pending<T> {
    kept: Kept<T>,
    next: Ordinal,
    exact_max: usize,
}

#[derive(Debug)]
enum Kept<T> {
    /// As they came.
    Exact(VecDeque<(Ordinal, Notification<T>)>),
    /// A key once.
    Folded(Folded<T>),
}

#[derive(Debug)]
struct Folded<T> {
    order: BTreeMap<Ordinal, ObjectKey>,
    owed: HashMap<ObjectKey, (Ordinal, Owed<T>)>,
}

/// What is owed of one key; not nothing.
#[derive(Debug)]
struct Owed<T> {
    deleted: Option<Deleted<T>>,
    then: Option<News<T>>,
}

#[derive(Debug)]
enum News<T> {
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
    /// Nothing, of which more than `exact_max` will be folded.
    pub(super) fn new(exact_max: usize) -> Self {
        Self {
            kept: Kept::Exact(VecDeque::new()),
            next: 0,
            exact_max,
        }
    }

    /// The number that the next one gets: all that is pending now has a smaller one.
    pub(super) fn next(&self) -> Ordinal {
        self.next
    }

    /// The number of the oldest.
    pub(super) fn oldest(&self) -> Option<Ordinal> {
        match &self.kept {
            Kept::Exact(queue) => queue.front().map(|(ordinal, _)| *ordinal),
            Kept::Folded(folded) => folded.order.first_key_value().map(|(ordinal, _)| *ordinal),
        }
    }

    /// How many there are; when they are folded, of how many objects.
    pub(super) fn len(&self) -> usize {
        match &self.kept {
            Kept::Exact(queue) => queue.len(),
            Kept::Folded(folded) => folded.order.len(),
        }
    }

    pub(super) fn push(&mut self, notification: Notification<T>) {
        let ordinal = self.next;
        self.next += 1;
        match &mut self.kept {
            Kept::Exact(queue) => {
                queue.push_back((ordinal, notification));
                if queue.len() > self.exact_max {
                    let mut folded = Folded::default();
                    for (ordinal, notification) in queue.drain(..) {
                        folded.push(ordinal, notification);
                    }
                    self.kept = Kept::Folded(folded);
                }
            }
            Kept::Folded(folded) => folded.push(ordinal, notification),
        }
    }

    /// The oldest, to be told.
    pub(super) fn pop(&mut self) -> Option<Notification<T>> {
        match &mut self.kept {
            Kept::Exact(queue) => queue.pop_front().map(|(_, notification)| notification),
            Kept::Folded(folded) => {
                let popped = folded.pop();
                if folded.order.is_empty() {
                    self.kept = Kept::Exact(VecDeque::new());
                }
                popped
            }
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.kept = Kept::Exact(VecDeque::new());
    }
}

impl<T> Default for Folded<T> {
    fn default() -> Self {
        Self {
            order: BTreeMap::new(),
            owed: HashMap::new(),
        }
    }
}

impl<T: KubeObject> Folded<T> {
    fn push(&mut self, ordinal: Ordinal, notification: Notification<T>) {
        let key = match &notification {
            Notification::Added { object, .. } => key_of(&**object),
            Notification::Updated { new, .. } => key_of(&**new),
            Notification::Deleted(Deleted::Observed(object)) => key_of(&**object),
            Notification::Deleted(Deleted::Unknown(tombstone)) => tombstone.key.clone(),
        };
        let (key, (place, owed)) = match self.owed.remove_entry(&key) {
            Some((key, (place, owed))) => (key, (place, owed.and(notification))),
            None => (key, (ordinal, Some(Owed::first(notification)))),
        };
        match owed {
            Some(owed) => {
                self.order.entry(place).or_insert_with(|| key.clone());
                self.owed.insert(key, (place, owed));
            }
            None => {
                self.order.remove(&place);
            }
        }
    }

    fn pop(&mut self) -> Option<Notification<T>> {
        let first = self.order.first_entry()?;
        let (_, owed) = self
            .owed
            .get_mut(first.get())
            .expect("what is in order is owed");
        if let Some(deleted) = owed.deleted.take() {
            if owed.then.is_none() {
                self.owed.remove(&first.remove());
            }
            return Some(Notification::Deleted(deleted));
        }
        let (_, (_, owed)) = self.owed.remove_entry(&first.remove())?;
        owed.then.map(News::into)
    }
}

impl<T> Owed<T> {
    fn first(notification: Notification<T>) -> Self {
        let (deleted, then) = match notification {
            Notification::Deleted(deleted) => (Some(deleted), None),
            Notification::Added {
                object,
                is_in_initial_list,
            } => (
                None,
                Some(News::Added {
                    object,
                    is_in_initial_list,
                }),
            ),
            Notification::Updated { old, new } => (None, Some(News::Updated { old, new })),
        };
        Self { deleted, then }
    }

    /// This and then `notification`: nothing, if the handler was never told of the object.
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
                let told_of = !matches!(then, Some(News::Added { .. }));
                // If it is owed a deletion already then that is of the object that it was told of.
                let deleted = deleted.or(last.filter(|_| told_of));
                deleted.map(|deleted| Self {
                    deleted: Some(deleted),
                    then: None,
                })
            }
        }
    }
}

impl<T> News<T> {
    fn object(self) -> Arc<T> {
        match self {
            Self::Added { object, .. } | Self::Updated { new: object, .. } => object,
        }
    }

    /// What brings a handler from before this to a later state.
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

impl<T> From<News<T>> for Notification<T> {
    fn from(news: News<T>) -> Self {
        match news {
            News::Added {
                object,
                is_in_initial_list,
            } => Self::Added {
                object,
                is_in_initial_list,
            },
            News::Updated { old, new } => Self::Updated { old, new },
        }
    }
}

#[cfg(test)]
mod tests;

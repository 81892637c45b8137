//! `Delta`: what happened to an object, as a `DeltaFifo` tells it, and `Deltas`: what happened to one since
//! it was last looked at. When they are queued and told is the queue's business.

use std::fmt;
use std::sync::Arc;

use crate::api::ObjectKey;

/// What happened to an object.
pub enum Delta<T> {
    /// The source says that it is new.
    Added(Arc<T>),
    /// The source says that it changed.
    Updated(Arc<T>),
    /// It is gone.
    Deleted(Deleted<T>),
    /// It was in a list, so whether it changed is not known.
    Replaced(Arc<T>),
    /// Nothing: it is told again, as it is known.
    Sync(Arc<T>),
}

/// An object that is gone.
pub enum Deleted<T> {
    /// The source told the deletion, and the object as it then was.
    Observed(Arc<T>),
    /// The deletion was missed, and found out by a list that has it no more.
    Unknown(DeletedFinalStateUnknown<T>),
}

/// The tombstone of an object whose deletion was missed: what it was like in the end is not known.
pub struct DeletedFinalStateUnknown<T> {
    /// Its key.
    pub key: ObjectKey,
    /// The object as it was last known.
    pub object: Arc<T>,
}

impl<T> Deleted<T> {
    /// The object as it was in the end, or was last known.
    pub fn object(&self) -> &Arc<T> {
        match self {
            Self::Observed(object) => object,
            Self::Unknown(tombstone) => &tombstone.object,
        }
    }
}

impl<T> Delta<T> {
    /// The object of which it tells.
    pub fn object(&self) -> &Arc<T> {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced(object)
            | Self::Sync(object) => object,
            Self::Deleted(deleted) => deleted.object(),
        }
    }

    /// Its name, as in client-go.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Added(_) => "Added",
            Self::Updated(_) => "Updated",
            Self::Deleted(_) => "Deleted",
            Self::Replaced(_) => "Replaced",
            Self::Sync(_) => "Sync",
        }
    }

    /// This one and a newer as one, neither of which is a deletion: the newer object, and the word that
    /// keeps the news from nobody. (A Sync is told to some handlers only.)
    fn merged(self, newer: Self) -> Self {
        match (self, newer) {
            (Self::Added(_), newer) => Self::Added(newer.object().clone()),
            (Self::Updated(_), Self::Replaced(object) | Self::Sync(object)) => {
                Self::Updated(object)
            }
            (Self::Replaced(_), Self::Sync(object)) => Self::Replaced(object),
            (_, newer) => newer,
        }
    }
}

/// What happened to one object, oldest first. There is one at least.
pub struct Deltas<T> {
    key: ObjectKey,
    /// It is of the first list.
    pub(super) initial: bool,
    /// All but the newest. Most often there are none, and then this takes no memory of its own.
    older: Vec<Delta<T>>,
    newest: Delta<T>,
}

impl<T> Deltas<T> {
    pub(super) fn new(key: ObjectKey, initial: bool, first: Delta<T>) -> Self {
        Self {
            key,
            initial,
            older: Vec::new(),
            newest: first,
        }
    }

    /// The object's key.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The first.
    pub fn oldest(&self) -> &Delta<T> {
        self.older.first().unwrap_or(&self.newest)
    }

    /// The last: what there is to be known.
    pub fn newest(&self) -> &Delta<T> {
        &self.newest
    }

    /// They, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Delta<T>> {
        self.older.iter().chain([&self.newest])
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "they are never empty")]
    pub fn len(&self) -> usize {
        self.older.len() + 1
    }

    /// Appends one. Of two deletions in a row one is kept: the older, unless that is a tombstone.
    pub(super) fn push(&mut self, delta: Delta<T>) {
        match (&self.newest, &delta) {
            (Delta::Deleted(Deleted::Unknown(_)), Delta::Deleted(_)) => self.newest = delta,
            (Delta::Deleted(_), Delta::Deleted(_)) => {}
            _ => self.older.push(std::mem::replace(&mut self.newest, delta)),
        }
    }

    /// Makes them three at most, which lead from the same beginning to the same end: what was there until
    /// a deletion, the deletion, and what is there since. Lives that began and ended in between are left
    /// out.
    pub(super) fn compress(&mut self) {
        let (mut before, mut deletion, mut since) = (None, None, None);
        let older = std::mem::take(&mut self.older);
        for delta in older.into_iter().chain([self.newest.clone()]) {
            let place = match delta {
                Delta::Deleted(_) => {
                    since = None;
                    deletion.get_or_insert(delta);
                    continue;
                }
                _ if deletion.is_some() => &mut since,
                _ => &mut before,
            };
            *place = Some(match place.take() {
                Some(last) => Delta::merged(last, delta),
                None => delta,
            });
        }
        self.older = [before, deletion, since].into_iter().flatten().collect();
        self.newest = self.older.pop().expect("there was one");
    }
}

impl<T> Clone for Delta<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(object.clone()),
            Self::Updated(object) => Self::Updated(object.clone()),
            Self::Deleted(deleted) => Self::Deleted(deleted.clone()),
            Self::Replaced(object) => Self::Replaced(object.clone()),
            Self::Sync(object) => Self::Sync(object.clone()),
        }
    }
}

impl<T> Clone for Deleted<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Observed(object) => Self::Observed(object.clone()),
            Self::Unknown(tombstone) => Self::Unknown(tombstone.clone()),
        }
    }
}

impl<T> Clone for DeletedFinalStateUnknown<T> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            object: self.object.clone(),
        }
    }
}

impl<T> fmt::Debug for Delta<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Deleted(Deleted::Unknown(tombstone)) => write!(f, "({tombstone:?})"),
            _ => Ok(()),
        }
    }
}

impl<T> fmt::Debug for Deleted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed(_) => f.write_str("Observed"),
            Self::Unknown(tombstone) => tombstone.fmt(f),
        }
    }
}

impl<T> fmt::Debug for DeletedFinalStateUnknown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeletedFinalStateUnknown {{ {} }}", self.key)
    }
}

impl<T> fmt::Debug for Deltas<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.key)?;
        f.debug_list().entries(self.iter()).finish()
    }
}

//! `Delta`: a change of an object, and `Deltas`: the changes of an object since it was last popped.

use std::fmt;
use std::sync::Arc;

use watchet_api::ObjectKey;

/// A change of an object.
pub enum Delta<T> {
    /// The watch reports an added object.
    Added(Arc<T>),
    /// The watch reports an updated object.
    Updated(Arc<T>),
    /// The object was deleted.
    Deleted(Deleted<T>),
    /// The object is in a list; whether it changed is unknown.
    Replaced(Arc<T>),
    /// A resync of an unchanged object.
    Sync(Arc<T>),
}

/// A deleted object.
pub enum Deleted<T> {
    /// The watch reports the deletion, with the final state.
    Observed(Arc<T>),
    /// The watch missed the deletion; a list no longer contains the object.
    Unknown(DeletedFinalStateUnknown<T>),
}

/// The tombstone of an object whose deletion was missed: the final state is unknown.
pub struct DeletedFinalStateUnknown<T> {
    /// The key of the object.
    pub key: ObjectKey,
    /// The last known state.
    pub object: Arc<T>,
}

impl<T> Deleted<T> {
    /// Returns the final or last known state.
    pub fn object(&self) -> &Arc<T> {
        match self {
            Self::Observed(object) => object,
            Self::Unknown(tombstone) => &tombstone.object,
        }
    }
}

impl<T> Delta<T> {
    /// Returns the object of the delta.
    pub fn object(&self) -> &Arc<T> {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced(object)
            | Self::Sync(object) => object,
            Self::Deleted(deleted) => deleted.object(),
        }
    }

    /// Returns the name of the type, as in client-go.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Added(_) => "Added",
            Self::Updated(_) => "Updated",
            Self::Deleted(_) => "Deleted",
            Self::Replaced(_) => "Replaced",
            Self::Sync(_) => "Sync",
        }
    }

    /// Merges this delta with a newer one, neither of which is a deletion: the newer object, with
    /// the type that reaches more handlers (a Sync reaches only some).
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

/// The deltas of one object, oldest first; at least one.
pub struct Deltas<T> {
    key: ObjectKey,
    /// Whether the object is part of the first list.
    pub(super) initial: bool,
    /// All but the newest. Usually empty, without an allocation.
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

    /// Returns the key of the object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the oldest delta.
    pub fn oldest(&self) -> &Delta<T> {
        self.older.first().unwrap_or(&self.newest)
    }

    /// Returns the newest delta.
    pub fn newest(&self) -> &Delta<T> {
        &self.newest
    }

    /// Returns the deltas, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Delta<T>> {
        self.older.iter().chain([&self.newest])
    }

    /// Returns the number of deltas.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.older.len() + 1
    }

    /// Appends a delta. Of two consecutive deletions only the older is retained, unless that is a
    /// tombstone.
    pub(super) fn push(&mut self, delta: Delta<T>) {
        match (&self.newest, &delta) {
            (Delta::Deleted(Deleted::Unknown(_)), Delta::Deleted(_)) => self.newest = delta,
            (Delta::Deleted(_), Delta::Deleted(_)) => {}
            _ => self.older.push(std::mem::replace(&mut self.newest, delta)),
        }
    }

    /// Compresses the deltas to at most three with the same start and end: the last state before
    /// the first deletion, the deletion, and the current state.
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
        self.newest = self.older.pop().expect("there was at least one");
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

//! `Indexer`: the objects of a collection by key and by the values of indexes. Its maps are
//! persistent: a clone is cheap and shares structure, so a state can be retained or read while the
//! next one is built. It has no lock; indexes are identified by number.
//!
//! # Definitions
//!
//! - An *index* maps an object to values by its [`IndexFunc`]: one, several, or none.
//!
//! # Invariants
//!
//! 1. An index has an object under each of the object's values and under no other.
//! 2. An index has no value without objects.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;
use imbl::OrdMap;

use watchet_api::ObjectKey;

/// Objects in key order.
pub type ObjectMap<T> = OrdMap<ObjectKey, Arc<T>>;

/// The function of an index. It must be deterministic.
pub trait IndexFunc<T> {
    /// The values of one object.
    type Values<'a>: AsRef<[Self::Value<'a>]>
    where
        Self: 'a,
        T: 'a;
    /// One value.
    type Value<'a>: AsRef<str>
    where
        Self: 'a,
        T: 'a;

    /// Returns the values of `object`.
    fn values<'a>(&'a self, object: &'a T) -> Self::Values<'a>;
}

/// Objects by key and by the values of each index. The number of an index identifies it.
///
/// ```
/// use std::sync::Arc;
/// use watchet_api::ObjectKey;
/// use watchet_reflector::{IndexFunc, Indexer};
///
/// /// Indexes strings by their characters.
/// #[derive(Clone)]
/// struct ByCharacter;
/// impl IndexFunc<String> for ByCharacter {
///     type Values<'a> = Vec<String>;
///     type Value<'a> = String;
///     fn values(&self, word: &String) -> Vec<String> {
///         word.chars().map(String::from).collect()
///     }
/// }
///
/// let mut strings = Indexer::new([ByCharacter], Default::default());
/// strings.insert(&ObjectKey::from("1"), &Arc::new("ab".to_owned()));
/// strings.insert(&ObjectKey::from("2"), &Arc::new("bc".to_owned()));
/// assert_eq!(strings.by_index(0, "b").unwrap().len(), 2);
/// let before = strings.clone();
/// strings.remove("1");
/// assert!(strings.by_index(0, "a").is_none());
/// assert_eq!(before.by_index(0, "a").unwrap().len(), 1);
/// ```
pub struct Indexer<T, F> {
    objects: ObjectMap<T>,
    indexes: Vec<Index<T, F>>,
}

struct Index<T, F> {
    func: F,
    by_value: OrdMap<Arc<str>, ObjectMap<T>>,
}

impl<T, F: IndexFunc<T>> Index<T, F> {
    fn new(func: F, objects: &ObjectMap<T>) -> Self {
        // Grouped first: filling a small map is cheaper than finding it in a large one.
        let mut groups: HashMap<Arc<str>, ObjectMap<T>, RandomState> = HashMap::default();
        for (key, object) in objects {
            for value in func.values(object).as_ref() {
                let value = value.as_ref();
                match groups.get_mut(value) {
                    Some(group) => drop(group.insert(key.clone(), object.clone())),
                    None => {
                        let group = ObjectMap::unit(key.clone(), object.clone());
                        groups.insert(value.into(), group);
                    }
                }
            }
        }
        Self {
            func,
            by_value: groups.into_iter().collect(),
        }
    }

    /// Updates the index for an object that changed, was added or removed. Unchanged values are not
    /// touched.
    fn changed(&mut self, key: &ObjectKey, before: Option<&Arc<T>>, now: Option<&Arc<T>>) {
        let values = now.map(|now| self.func.values(now));
        let values = values.as_ref().map_or(&[][..], AsRef::as_ref);
        if let Some(before) = before {
            for left in self.func.values(before).as_ref() {
                let left = left.as_ref();
                if values.iter().all(|kept| kept.as_ref() != left)
                    && let Some(objects) = self.by_value.get_mut(left)
                {
                    objects.remove(key);
                    if objects.is_empty() {
                        self.by_value.remove(left);
                    }
                }
            }
        }
        let Some(now) = now else { return };
        for value in values {
            let value = value.as_ref();
            match self.by_value.get_mut(value) {
                Some(objects) => drop(objects.insert(key.clone(), now.clone())),
                None => {
                    let objects = ObjectMap::unit(key.clone(), now.clone());
                    self.by_value.insert(value.into(), objects);
                }
            }
        }
    }
}

impl<T, F: IndexFunc<T>> Indexer<T, F> {
    /// Returns an indexer of these objects with an index per function.
    pub fn new(funcs: impl IntoIterator<Item = F>, objects: ObjectMap<T>) -> Self {
        let index = |func| Index::new(func, &objects);
        Self {
            indexes: funcs.into_iter().map(index).collect(),
            objects,
        }
    }

    /// Adds an index of the current objects.
    pub fn add_index(&mut self, func: F) {
        self.indexes.push(Index::new(func, &self.objects));
    }

    /// Replaces all objects and rebuilds the indexes.
    pub fn replace(&mut self, objects: ObjectMap<T>) {
        let funcs = std::mem::take(&mut self.indexes);
        *self = Self::new(funcs.into_iter().map(|index| index.func), objects);
    }

    /// Inserts an object and returns the one that it replaces.
    pub fn insert(&mut self, key: &ObjectKey, object: &Arc<T>) -> Option<Arc<T>> {
        let before = self.objects.insert(key.clone(), object.clone());
        for index in &mut self.indexes {
            index.changed(key, before.as_ref(), Some(object));
        }
        before
    }

    /// Removes and returns an object.
    pub fn remove(&mut self, key: &str) -> Option<Arc<T>> {
        let (key, before) = self.objects.remove_with_key(key)?;
        for index in &mut self.indexes {
            index.changed(&key, Some(&before), None);
        }
        Some(before)
    }

    /// Returns the objects by key.
    pub fn objects(&self) -> &ObjectMap<T> {
        &self.objects
    }

    /// Returns the functions of the indexes, by number.
    pub fn funcs(&self) -> impl ExactSizeIterator<Item = &F> {
        self.indexes.iter().map(|index| &index.func)
    }

    /// Returns the objects with a value in an index; `None` if there are none.
    ///
    /// # Panics
    /// Panics if the index does not exist.
    pub fn by_index(&self, index: usize, value: &str) -> Option<&ObjectMap<T>> {
        self.indexes[index].by_value.get(value)
    }

    /// Returns the values of an index, in order, each with its objects.
    ///
    /// # Panics
    /// Panics if the index does not exist.
    pub fn values(&self, index: usize) -> impl Iterator<Item = (&Arc<str>, &ObjectMap<T>)> {
        self.indexes[index].by_value.iter()
    }
}

impl<T, F: Clone> Clone for Indexer<T, F> {
    fn clone(&self) -> Self {
        let clone = |index: &Index<T, F>| Index {
            func: index.func.clone(),
            by_value: index.by_value.clone(),
        };
        Self {
            objects: self.objects.clone(),
            indexes: self.indexes.iter().map(clone).collect(),
        }
    }
}

impl<T, F: fmt::Debug> fmt::Debug for Indexer<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indexes = self.indexes.iter();
        let indexes = indexes.map(|index| (&index.func, index.by_value.len()));
        f.debug_struct("Indexer")
            .field("objects", &self.objects.len())
            .field("values", &indexes.collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests;

//! `Indexer`: the objects of a collection by key and, for each index, by value. Its maps are persistent:
//! a clone takes no time and shares what does not change, so that a state can be kept, or read for long,
//! while the next one is made. It has no lock and no name for an index: those are its owner's.
//!
//! # Definitions
//!
//! - An *index* finds the values of an object by its [`IndexFunc`]: one, several, or none.
//!
//! # Invariants
//!
//! 1. An object is in an index under each of its values, and under no other.
//! 2. No value without objects is kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;
use imbl::OrdMap;

use crate::api::ObjectKey;

/// Objects by key, in key order.
pub type ObjectMap<T> = OrdMap<ObjectKey, Arc<T>>;

/// How an index finds the values of an object. It has to find the same ones each time.
pub trait IndexFunc<T> {
    /// The values of one object.
    type Values<'a>: AsRef<[Self::Value<'a>]>
    where
        Self: 'a,
        T: 'a;
    /// One of them.
    type Value<'a>: AsRef<str>
    where
        Self: 'a,
        T: 'a;

    /// The values of `object`.
    fn values<'a>(&'a self, object: &'a T) -> Self::Values<'a>;
}

/// Objects by key and by the values of each index, of which one is called by its number.
///
/// ```
/// use std::sync::Arc;
/// use watchet::api::ObjectKey;
/// use watchet::reflector::{IndexFunc, Indexer};
///
/// /// Words by their letters.
/// #[derive(Clone)]
/// struct Letters;
/// impl IndexFunc<String> for Letters {
///     type Values<'a> = Vec<String>;
///     type Value<'a> = String;
///     fn values(&self, word: &String) -> Vec<String> {
///         word.chars().map(String::from).collect()
///     }
/// }
///
/// let mut words = Indexer::new([Letters], Default::default());
/// words.insert(&ObjectKey::from("1"), &Arc::new("ab".to_owned()));
/// words.insert(&ObjectKey::from("2"), &Arc::new("bc".to_owned()));
/// assert_eq!(words.by_index(0, "b").unwrap().len(), 2);
/// let before = words.clone();
/// words.remove("1");
/// assert!(words.by_index(0, "a").is_none());
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
        // Grouped first: to find a small map in a large one costs more than to fill it.
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

    /// One object changed, came or went. Values that it keeps are not left and entered again.
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
    /// These objects, with an index by each of these functions.
    pub fn new(funcs: impl IntoIterator<Item = F>, objects: ObjectMap<T>) -> Self {
        let index = |func| Index::new(func, &objects);
        Self {
            indexes: funcs.into_iter().map(index).collect(),
            objects,
        }
    }

    /// Adds an index, into which the objects are taken that there are.
    pub fn add_index(&mut self, func: F) {
        self.indexes.push(Index::new(func, &self.objects));
    }

    /// The objects are now exactly these; the indexes are built anew.
    pub fn replace(&mut self, objects: ObjectMap<T>) {
        let funcs = std::mem::take(&mut self.indexes);
        *self = Self::new(funcs.into_iter().map(|index| index.func), objects);
    }

    /// Puts an object in the place of the one with its key, which is returned.
    pub fn insert(&mut self, key: &ObjectKey, object: &Arc<T>) -> Option<Arc<T>> {
        let before = self.objects.insert(key.clone(), object.clone());
        for index in &mut self.indexes {
            index.changed(key, before.as_ref(), Some(object));
        }
        before
    }

    /// Takes an object out.
    pub fn remove(&mut self, key: &str) -> Option<Arc<T>> {
        let (key, before) = self.objects.remove_with_key(key)?;
        for index in &mut self.indexes {
            index.changed(&key, Some(&before), None);
        }
        Some(before)
    }

    /// The objects by key.
    pub fn objects(&self) -> &ObjectMap<T> {
        &self.objects
    }

    /// The functions of the indexes, by number.
    pub fn funcs(&self) -> impl ExactSizeIterator<Item = &F> {
        self.indexes.iter().map(|index| &index.func)
    }

    /// The objects that have a value in an index; `None` when there are none.
    ///
    /// # Panics
    /// When there is no such index.
    pub fn by_index(&self, index: usize, value: &str) -> Option<&ObjectMap<T>> {
        self.indexes[index].by_value.get(value)
    }

    /// The values of an index, in order, each with the objects that have it.
    ///
    /// # Panics
    /// When there is no such index.
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

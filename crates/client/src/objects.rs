//! `Objects`: an immutable snapshot of a store, in constant time however many objects there are.

use std::fmt;
use std::sync::Arc;

use watchet_api::ObjectKey;
use watchet_reflector::ObjectMap;

/// A snapshot of the objects of a store, in key order.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Node;
/// use watchet_client::ThreadSafeStore;
///
/// let store = ThreadSafeStore::<Node>::default();
/// let mut node = Node::default();
/// node.metadata.name = Some("n1".into());
/// store.add(Arc::new(node));
/// let nodes = store.list();
/// store.delete_by_key("n1");
/// for node in &nodes {
///     assert_eq!(node.metadata.name.as_deref(), Some("n1"));
/// }
/// assert!(store.is_empty());
/// ```
pub struct Objects<T>(ObjectMap<T>);

impl<T> Objects<T> {
    pub(super) fn new(objects: ObjectMap<T>) -> Self {
        Self(objects)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the object with this key.
    pub fn get(&self, key: &str) -> Option<&Arc<T>> {
        self.0.get(key)
    }

    /// Returns the keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.keys()
    }

    /// Returns the objects, in key order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.0.values()
    }

    /// Returns the keys and objects, in key order.
    pub fn entries(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<T>)> {
        self.0.iter()
    }

    /// Returns the objects as a vector, in key order.
    pub fn to_vec(&self) -> Vec<Arc<T>> {
        self.iter().cloned().collect()
    }
}

impl<T> Clone for Objects<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self(ObjectMap::new())
    }
}

impl<T> fmt::Debug for Objects<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys()).finish()
    }
}

impl<'a, T> IntoIterator for &'a Objects<T> {
    type Item = &'a Arc<T>;
    type IntoIter = imbl::ordmap::Values<'a, ObjectKey, Arc<T>, imbl::shared_ptr::DefaultSharedPtr>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.values()
    }
}

//! The objects of a state, by key.

use watchet_api::{Object, ObjectKey};

/// The objects of a resource in key order.
pub(super) type ObjectMap = watchet_reflector::ObjectMap<Object>;

/// Returns the object of this key, or an empty map.
pub(super) fn lookup(objects: &ObjectMap, key: &ObjectKey) -> ObjectMap {
    objects
        .get(key)
        .map(|object| ObjectMap::unit(key.clone(), object.clone()))
        .unwrap_or_default()
}

//! The indexes of a state: by each field that reads often pin (`spec.nodeName`), so that a node's agent
//! costs its own pods and not everybody's. How they are kept is the [`Indexer`]'s business; they narrow
//! where to look, and the predicate still decides.

use super::CachedResource;
use super::snapshot::ObjectMap;
use crate::api::{FieldRef, Object, SelectionPredicate};
use crate::reflector::{IndexFunc, Indexer};

/// The objects of a state, with an index for each trigger that is a column. (Names need none: the key
/// is one.)
pub(super) type IndexedObjects = Indexer<Object, FieldRef>;

impl IndexFunc<Object> for FieldRef {
    type Values<'a> = [&'a str; 1];
    type Value<'a> = &'a str;

    fn values<'a>(&'a self, object: &'a Object) -> [&'a str; 1] {
        [object.field(*self)]
    }
}

/// These objects, with the indexes of these triggers.
pub(super) fn indexed(triggers: &[FieldRef], objects: ObjectMap) -> IndexedObjects {
    Indexer::new(columns(triggers).map(FieldRef::Column), objects)
}

/// What the indexes of a resource are called (upstream's names), in their order.
pub(super) fn names(resource: &CachedResource) -> Vec<String> {
    let fields = resource.columns.fields();
    columns(&resource.triggers)
        .map(|column| format!("f:{}", fields[column].label))
        .collect()
}

/// The objects that have the value of a field that `predicate` pins, when it pins one that has an index;
/// and which index has them.
pub(super) fn pinned(
    objects: &IndexedObjects,
    predicate: &SelectionPredicate,
) -> Option<(ObjectMap, usize)> {
    objects.funcs().enumerate().find_map(|(index, field)| {
        let value = predicate.fields.exact(*field)?;
        let found = objects.by_index(index, value).cloned();
        Some((found.unwrap_or_default(), index))
    })
}

fn columns(triggers: &[FieldRef]) -> impl Iterator<Item = usize> {
    triggers.iter().filter_map(|field| match field {
        FieldRef::Column(column) => Some(*column),
        FieldRef::Name | FieldRef::Namespace => None,
    })
}

//! The indexes of a snapshot, one per trigger column (`spec.nodeName`), so that a kubelet's reads
//! touch its own pods only. Candidates of an index still have to match the predicate.

use super::CachedResource;
use super::object_map::ObjectMap;
use watchet_api::{FieldRef, Object, SelectionPredicate};
use watchet_reflector::{IndexFunc, Indexer};

/// The objects of a snapshot with an index for each trigger column. (Names need none: the key is
/// one.)
pub(super) type IndexedObjects = Indexer<Object, TriggerField>;

/// The selectable field that an index is on.
#[derive(Debug, Clone, Copy)]
pub(super) struct TriggerField(FieldRef);

impl IndexFunc<Object> for TriggerField {
    type Values<'a> = [&'a str; 1];
    type Value<'a> = &'a str;

    fn values<'a>(&'a self, object: &'a Object) -> [&'a str; 1] {
        [object.field(self.0)]
    }
}

/// Returns `objects` with the indexes of these triggers.
pub(super) fn indexed(triggers: &[FieldRef], objects: ObjectMap) -> IndexedObjects {
    Indexer::new(
        columns(triggers).map(|column| TriggerField(FieldRef::Column(column))),
        objects,
    )
}

/// Returns the names of a resource's indexes (upstream's names), in order.
pub(super) fn names(resource: &CachedResource) -> Vec<String> {
    let fields = resource.columns.fields();
    columns(&resource.triggers)
        .map(|column| format!("f:{}", fields[column].label))
        .collect()
}

/// Returns the objects with the value that `predicate` requires of an indexed column, and the
/// number of the index, if there is one.
pub(super) fn indexed_candidates(
    objects: &IndexedObjects,
    predicate: &SelectionPredicate,
) -> Option<(ObjectMap, usize)> {
    objects.funcs().enumerate().find_map(|(index, field)| {
        let value = predicate.fields.exact(field.0)?;
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

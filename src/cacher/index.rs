//! `Indexes`: the objects of a state by the value of each field that reads often pin
//! (`spec.nodeName`), so that a node's agent costs its own pods and not everybody's. Persistent, as
//! the state is, and changed with it by the one writer. It narrows where to look; the predicate
//! still decides.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use imbl::OrdMap;

use super::CachedResource;
use super::snapshot::ObjectMap;
use crate::api::{FieldRef, Object, SelectionPredicate};

/// An index for each trigger that is a column. (Names need none: the key is one.)
#[derive(Debug, Clone)]
pub(super) struct Indexes(Vec<Index>);

#[derive(Debug, Clone)]
struct Index {
    field: FieldRef,
    /// No value without objects.
    by_value: OrdMap<Arc<str>, ObjectMap>,
}

impl Indexes {
    pub(super) fn new(triggers: &[FieldRef], objects: &ObjectMap) -> Self {
        let index = |column| {
            let field = FieldRef::Column(column);
            // Grouped first: to find a small map in a large one costs more than to fill it.
            let mut groups: HashMap<&str, ObjectMap, RandomState> = HashMap::default();
            for (key, object) in objects {
                let group = groups.entry(object.field(field)).or_default();
                group.insert(key.clone(), object.clone());
            }
            Index {
                field,
                by_value: groups.into_iter().collect(),
            }
        };
        Self(columns(triggers).map(index).collect())
    }

    /// What the indexes of a resource are called (upstream's names), in their order.
    pub(super) fn names(resource: &CachedResource) -> Vec<String> {
        let fields = resource.columns.fields();
        columns(&resource.triggers)
            .map(|column| format!("f:{}", fields[column].label))
            .collect()
    }

    /// One object changed, came or went.
    pub(super) fn changed(&mut self, before: Option<&Arc<Object>>, now: Option<&Arc<Object>>) {
        for Index { field, by_value } in &mut self.0 {
            if let Some(before) = before
                && now.is_none_or(|now| now.field(*field) != before.field(*field))
                && let Some(objects) = by_value.get_mut(before.field(*field))
            {
                objects.remove(before.key());
                if objects.is_empty() {
                    by_value.remove(before.field(*field));
                }
            }
            let Some(now) = now else { continue };
            match by_value.get_mut(now.field(*field)) {
                Some(objects) => drop(objects.insert(now.key().clone(), now.clone())),
                None => {
                    let objects = ObjectMap::unit(now.key().clone(), now.clone());
                    by_value.insert(now.field(*field).into(), objects);
                }
            }
        }
    }

    /// The objects that have the value of a field that `predicate` pins, when it pins one of ours; and
    /// which index has them.
    pub(super) fn pinned(&self, predicate: &SelectionPredicate) -> Option<(ObjectMap, usize)> {
        self.0.iter().enumerate().find_map(|(number, index)| {
            let value = predicate.fields.exact(index.field)?;
            let objects = index.by_value.get(value).cloned();
            Some((objects.unwrap_or_default(), number))
        })
    }
}

fn columns(triggers: &[FieldRef]) -> impl Iterator<Item = usize> {
    triggers.iter().filter_map(|field| match field {
        FieldRef::Column(column) => Some(*column),
        FieldRef::Name | FieldRef::Namespace => None,
    })
}

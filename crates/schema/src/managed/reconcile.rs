//! Adapts field sets to a changed type: the parts of a list or map that has become atomic become
//! one leaf. In the opposite case nothing changes: a manager of the whole remains its manager and
//! owns none of the parts.

use super::field_set::FieldSet;
use super::typed::{Atom, Type};

/// Returns `fields` adapted to the current type.
pub(super) fn reconcile(fields: FieldSet, ty: Type) -> FieldSet {
    let atom = match ty.is_deduced() {
        true => return fields,
        false => ty.atom(None, None),
    };
    let mut all = FieldSet::default();
    for node in fields.into_nodes() {
        let ty = match (atom, node.element.field_name()) {
            (Atom::Map(map), Some(name)) => map.get(name).0,
            (Atom::List(list), _) => list.item,
            _ => Type::Deduced,
        };
        let is_leaf = !ty.is_deduced() && matches!(ty.atom(None, None), Atom::Leaf);
        match is_leaf && !node.below.is_empty() {
            true => all.push(node.element, true, FieldSet::default()),
            false => all.push(node.element, node.member, reconcile(node.below, ty)),
        }
    }
    all
}

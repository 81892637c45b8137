//! What becomes of somebody's fields when the type has changed since they were written: a list or a map
//! that had a manager for each part has one as a whole. The other way round nothing is to be done:
//! whoever had the whole has it still, and none of the parts.

use super::set::Set;
use super::typed::{Atom, Type};

/// `fields` as their type has them now.
pub(super) fn reconcile(fields: Set, ty: Type) -> Set {
    let atom = match ty.is_deduced() {
        true => return fields,
        false => ty.atom(None, None),
    };
    let mut all = Set::default();
    for node in fields.into_nodes() {
        let ty = match (atom, node.element.field_name()) {
            (Atom::Map(map), Some(name)) => map.get(name).0,
            (Atom::List(list), _) => list.item,
            _ => Type::Deduced,
        };
        let is_leaf = !ty.is_deduced() && matches!(ty.atom(None, None), Atom::Leaf);
        match is_leaf && !node.below.is_empty() {
            true => all.push(node.element, true, Set::default()),
            false => all.push(node.element, node.member, reconcile(node.below, ty)),
        }
    }
    all
}

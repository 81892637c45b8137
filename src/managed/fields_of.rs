//! The fields that a value has: what an applier says it manages. And which fields stand above others
//! without being named.

use serde_json::Value;

use super::element::{Element, Malformed};
use super::set::Set;
use super::typed::{Atom, Items, Members, Type, items};

/// Every field and item of `value`.
///
/// # Errors
/// A list whose items cannot be told apart, though its type says how.
pub(super) fn fields_of(value: &Value, ty: Type) -> Result<Set, Malformed> {
    Ok(at(value, ty)?.1)
}

/// Whether the value is a field itself, and those below it.
fn at(value: &Value, ty: Type) -> Result<(bool, Set), Malformed> {
    match ty.atom(Some(value), None) {
        Atom::Leaf => Ok((true, Set::default())),
        Atom::List(list) => Ok((false, of_list(items(Some(value)), list)?)),
        Atom::Map(map) => Ok((false, of_map(value, map)?)),
    }
}

fn of_map(value: &Value, map: Members) -> Result<Set, Malformed> {
    let mut all = Set::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let (ty, is_field) = map.get(name);
        let (leaf, below) = at(value, ty)?;
        let empty = value.is_null() || value.as_object().is_some_and(|map| map.is_empty());
        all.push(Element::field(name), leaf || empty || !is_field, below);
    }
    Ok(all)
}

fn of_list(values: &[Value], list: Items) -> Result<Set, Malformed> {
    let index = list.index(values)?;
    let mut elements: Vec<&Element> = index.order.iter().collect();
    elements.sort_unstable();
    elements.dedup();
    let mut all = Set::default();
    for element in elements {
        // Duplicates are one leaf together.
        let below = match index.get(element) {
            [one] => at(one, list.item)?.1,
            _ => Set::default(),
        };
        all.push(element.clone(), true, below);
    }
    Ok(all)
}

/// The same with each field that has members below it. An object's own fields are not named by those
/// who manage what is below; the keys of a map are.
pub(super) fn with_fields_above(set: &Set, ty: Type) -> Set {
    let atom = match ty {
        // What only the value shows has no fields of its own.
        Type::Deduced => return set.clone(),
        Type::Known(_) => ty.atom(None, None),
    };
    let mut all = Set::default();
    for node in set.nodes() {
        let (below, is_field) = match (atom, node.element.field_name()) {
            (Atom::Map(map), Some(name)) => map.get(name),
            (Atom::List(list), _) => (list.item, false),
            _ => (Type::Deduced, false),
        };
        all.push(
            node.element.clone(),
            node.member || (is_field && !node.below.is_empty()),
            with_fields_above(&node.below, below),
        );
    }
    all
}

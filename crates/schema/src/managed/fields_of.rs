//! The set of fields of a value.

use serde_json::Value;

use super::field_set::FieldSet;
use super::path_element::{Malformed, PathElement};
use super::typed::{Atom, Items, Members, Type, items};

/// Returns every field and item of `value`.
///
/// # Errors
/// Returns an error for a list with missing or invalid keys.
pub(super) fn fields_of(value: &Value, ty: Type) -> Result<FieldSet, Malformed> {
    Ok(at(value, ty)?.1)
}

/// Returns true if the value itself is a field, and the fields below it.
fn at(value: &Value, ty: Type) -> Result<(bool, FieldSet), Malformed> {
    match ty.atom(Some(value), None) {
        Atom::Leaf => Ok((true, FieldSet::default())),
        Atom::List(list) => Ok((false, of_list(items(Some(value)), list)?)),
        Atom::Map(map) => Ok((false, of_map(value, map)?)),
    }
}

fn of_map(value: &Value, map: Members) -> Result<FieldSet, Malformed> {
    let mut all = FieldSet::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let (ty, is_field) = map.get(name);
        let (leaf, below) = at(value, ty)?;
        let empty = value.is_null() || value.as_object().is_some_and(|map| map.is_empty());
        all.push(PathElement::field(name), leaf || empty || !is_field, below);
    }
    Ok(all)
}

fn of_list(values: &[Value], list: Items) -> Result<FieldSet, Malformed> {
    let index = list.index(values)?;
    let mut all = FieldSet::default();
    for element in index.distinct_elements() {
        // Duplicates count as one leaf.
        let below = match index.get(element) {
            [one] => at(one, list.item)?.1,
            _ => FieldSet::default(),
        };
        all.push(element.clone(), true, below);
    }
    Ok(all)
}

/// Adds the named parents of each field, as upstream's `EnsureNamedFieldsAreMembers`: map keys and
/// list items, but not the struct fields above them.
pub(super) fn with_parent_fields(set: &FieldSet, ty: Type) -> FieldSet {
    let atom = match ty {
        // A deduced type has no named fields.
        Type::Deduced => return set.clone(),
        Type::Schema(_) => ty.atom(None, None),
    };
    let mut all = FieldSet::default();
    for node in set.nodes() {
        let (below, is_field) = match (atom, node.element.field_name()) {
            (Atom::Map(map), Some(name)) => map.get(name),
            (Atom::List(list), _) => (list.item, false),
            _ => (Type::Deduced, false),
        };
        all.push(
            node.element.clone(),
            node.member || (is_field && !node.below.is_empty()),
            with_parent_fields(&node.below, below),
        );
    }
    all
}

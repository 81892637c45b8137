//! Taking fields out of a value.

use serde_json::Value;

use super::element::{Element, Malformed};
use super::set::Set;
use super::typed::{Atom, Type};

/// Removes the members of `fields` from `value`. What has nothing left by that goes too.
///
/// # Errors
/// A list whose items cannot be told apart, though its type says how.
pub(super) fn remove(value: &mut Value, fields: &Set, ty: Type) -> Result<(), Malformed> {
    at(value, fields, ty).map(drop)
}

/// Says whether something is left.
fn at(value: &mut Value, fields: &Set, ty: Type) -> Result<bool, Malformed> {
    match (ty.atom(Some(value), None), value) {
        (Atom::Map(map), Value::Object(members)) => {
            let mut wrong = None;
            members.retain(|name, value| match fields.get(&Element::field(name)) {
                None => true,
                Some(node) if node.member => false,
                Some(node) => at(value, &node.below, map.get(name).0).unwrap_or_else(|error| {
                    wrong = Some(error);
                    true
                }),
            });
            wrong.map_or(Ok(!members.is_empty()), Err)
        }
        (Atom::List(list), Value::Array(items)) => {
            let mut wrong = None;
            items.retain_mut(|item| {
                let left = list
                    .element(item)
                    .and_then(|element| match fields.get(&element) {
                        None => Ok(true),
                        Some(node) if node.member => Ok(false),
                        Some(node) => at(item, &node.below, list.item),
                    });
                left.unwrap_or_else(|error| {
                    wrong = Some(error);
                    true
                })
            });
            wrong.map_or(Ok(!items.is_empty()), Err)
        }
        // There are fields below what is a leaf: it was none when they were written.
        (Atom::Leaf, Value::Array(_) | Value::Object(_)) => Ok(false),
        _ => Ok(true),
    }
}

//! Removes fields from a value.

use serde_json::Value;

use super::field_set::FieldSet;
use super::path_element::{Malformed, PathElement};
use super::typed::{Atom, Type};

/// Removes `fields` from `value`, with parents that become empty.
///
/// # Errors
/// Returns an error for a list with missing or invalid keys.
pub(super) fn remove(value: &mut Value, fields: &FieldSet, ty: Type) -> Result<(), Malformed> {
    at(value, fields, ty).map(drop)
}

/// Returns true if something remains.
fn at(value: &mut Value, fields: &FieldSet, ty: Type) -> Result<bool, Malformed> {
    match (ty.atom(Some(value), None), value) {
        (Atom::Map(map), Value::Object(members)) => {
            let mut wrong = None;
            members.retain(|name, value| match fields.get(&PathElement::field(name)) {
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
                let left =
                    list.stored_element(item)
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
        // The fields are below a leaf, which had parts when they were recorded.
        (Atom::Leaf, Value::Array(_) | Value::Object(_)) => Ok(false),
        _ => Ok(true),
    }
}

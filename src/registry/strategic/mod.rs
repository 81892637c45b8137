//! Strategic merge patch: a merge patch that knows which lists are maps in disguise. It works on
//! JSON and a type's merge rules; it knows no resource beyond that, and no storage.
//!
//! # Definitions
//!
//! - *Merge key*: the member by which the objects of a list are told apart.
//! - *Directive*: a member of a patch that says what to do instead of what to set: `$patch`,
//!   `$retainKeys`, `$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>`.

mod format;
mod list;

pub(crate) use format::GoFormat;

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::schema::{Fields, Shape, TypeRef};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";

/// Why a patch cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StrategicError {
    /// It is wrong in itself.
    #[error("invalid strategic merge patch: {0}")]
    Malformed(String),
    /// It does not fit the object.
    #[error("unable to apply strategic merge patch: {0}")]
    Inapplicable(String),
}
use StrategicError::{Inapplicable, Malformed};

/// How one member is merged.
#[derive(Debug, Clone, Copy)]
enum Rule<'a> {
    /// An object, whose members are known or not.
    Map(Option<Fields<'a>>),
    /// An object that a patch replaces.
    ReplaceMap,
    /// A list of objects, told apart by this member.
    List(&'a str, Option<Fields<'a>>),
    /// A list of primitives, merged as a set.
    Set,
}

/// The members of an object type; those of a map are not known by name.
fn fields_of(of: TypeRef<'_>) -> Option<Fields<'_>> {
    match of.shape() {
        Shape::Object { fields, .. } => Some(fields),
        _ => None,
    }
}

/// The rule of one member; `None`: a list is replaced, an object is merged.
fn rule<'a>(fields: Option<Fields<'a>>, member: &str) -> Option<Rule<'a>> {
    let member = fields?.get(member)?;
    let rule = member.merge_rule();
    match (member.shape(), rule.key) {
        (Shape::List { item, .. }, Some(key)) => Some(Rule::List(key, fields_of(item))),
        (Shape::List { .. }, None) => rule.merge.then_some(Rule::Set),
        _ if rule.replace => Some(Rule::ReplaceMap),
        _ => Some(Rule::Map(fields_of(member))),
    }
}

/// Merges `patch` into `object`, which is of the type `of` if anybody knows.
///
/// # Errors
/// [`StrategicError`]; `object` may then be changed in part.
pub(crate) fn merge(
    object: &mut Value,
    patch: &Value,
    of: Option<TypeRef<'_>>,
) -> Result<(), StrategicError> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(Malformed("the patch must be an object".to_owned()));
    };
    merge_map(object, patch.clone(), of.and_then(fields_of))
}

fn merge_map(
    object: &mut Map<String, Value>,
    mut patch: Map<String, Value>,
    fields: Option<Fields<'_>>,
) -> Result<(), StrategicError> {
    match patch.remove(PATCH) {
        None => {}
        Some(Value::String(directive)) => match &*directive {
            "merge" => {}
            "replace" => {
                *object = without_directives_in(patch);
                return Ok(());
            }
            "delete" => {
                object.clear();
                return Ok(());
            }
            other => return Err(unknown_directive(other)),
        },
        Some(other) => return Err(unknown_directive(&other.to_string())),
    }
    retain_keys(object, &mut patch)?;
    merge_ordered_lists(object, &mut patch, fields)?;
    for (member, value) in patch {
        if let Some(list) = member.strip_prefix(DELETE_FROM_PRIMITIVE_LIST) {
            list::delete_primitives(object, list, &value)?;
        } else if value.is_null() {
            object.remove(&member);
        } else {
            merge_member(object, member, value, fields)?;
        }
    }
    Ok(())
}

fn merge_member(
    object: &mut Map<String, Value>,
    member: String,
    value: Value,
    fields: Option<Fields<'_>>,
) -> Result<(), StrategicError> {
    let rule = rule(fields, &member);
    match (object.get_mut(&member), value) {
        (Some(Value::Object(old)), Value::Object(new)) => match rule {
            Some(Rule::Map(fields)) => merge_map(old, new, fields)?,
            Some(Rule::ReplaceMap) => *old = without_directives_in(new),
            _ => merge_map(old, new, None)?,
        },
        (Some(Value::Array(old)), Value::Array(new)) => {
            *old = list::merge(std::mem::take(old), new, rule)?;
        }
        (_, value) => {
            if let Some(value) = without_directives(value) {
                object.insert(member, value);
            }
        }
    }
    Ok(())
}

/// `$retainKeys`: the members that stay; a patch that sets another contradicts itself.
fn retain_keys(
    object: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), StrategicError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad = || Malformed(format!("{RETAIN_KEYS} must be a list of member names"));
    let list = directive.as_array().ok_or_else(bad)?;
    let names: Option<HashSet<&str>> = list.iter().map(Value::as_str).collect();
    let names = names.ok_or_else(bad)?;
    let strays = |(member, value): &(&String, &Value)| {
        !value.is_null() && !member.starts_with('$') && !names.contains(member.as_str())
    };
    if let Some((member, _)) = patch.iter().find(strays) {
        return Err(Malformed(format!(
            "the patch sets {member:?}, which {RETAIN_KEYS} does not list"
        )));
    }
    object.retain(|member, _| names.contains(member.as_str()));
    Ok(())
}

/// Merges the lists that come with a `$setElementOrder` and takes them out of the patch.
fn merge_ordered_lists(
    object: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    fields: Option<Fields<'_>>,
) -> Result<(), StrategicError> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|member| member.starts_with(SET_ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let name = directive[SET_ELEMENT_ORDER.len()..].to_owned();
        let bad = || Malformed(format!("{directive} must be a list"));
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            _ => return Err(bad()),
        };
        let rule = rule(fields, &name);
        let new = match patch.get(&name) {
            Some(Value::Array(_)) => match patch.remove(&name) {
                Some(Value::Array(list)) => Some(list),
                _ => None,
            },
            // A null deletes the list and anything else replaces it: no order then.
            Some(_) => continue,
            None => None,
        };
        let old = match object.get(&name) {
            Some(Value::Array(list)) => Some(list.clone()),
            _ => None,
        };
        // What is deleted by the same patch is not in the order that it sets.
        if let Some(gone) = patch.remove(&format!("{DELETE_FROM_PRIMITIVE_LIST}{name}")) {
            list::delete_primitives(object, &name, &gone)?;
        }
        let live = match object.get(&name) {
            Some(Value::Array(list)) => Some(list.clone()),
            _ => None,
        };
        if let Some(new) = &new {
            list::check_order(new, &order, rule)?;
        }
        let merged = match (live, new) {
            (None, None) => continue,
            (live, new) => list::merge(live.unwrap_or_default(), new.unwrap_or_default(), rule)?,
        };
        let ordered = list::ordered(merged, &order, &old.unwrap_or_default(), rule);
        object.insert(name, Value::Array(ordered));
    }
    Ok(())
}

fn unknown_directive(directive: &str) -> StrategicError {
    Malformed(format!(
        "unknown {PATCH} directive {directive}: it must be \"merge\", \"replace\" or \"delete\""
    ))
}

fn without_directives_in(map: Map<String, Value>) -> Map<String, Value> {
    map.into_iter()
        .filter(|(member, value)| !is_directive(member) && !value.is_null())
        .filter_map(|(member, value)| Some((member, without_directives(value)?)))
        .collect()
}

/// A value that is set where there was none: nothing of it is an instruction any more. `None` when
/// all that it said was that something be deleted.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) => match map.get(PATCH).and_then(Value::as_str) {
            Some("delete") => None,
            _ => Some(Value::Object(without_directives_in(map))),
        },
        Value::Array(list) => Some(Value::Array(
            list.into_iter().filter_map(without_directives).collect(),
        )),
        other => Some(other),
    }
}

fn is_directive(member: &str) -> bool {
    member == PATCH
        || member == RETAIN_KEYS
        || member.starts_with(SET_ELEMENT_ORDER)
        || member.starts_with(DELETE_FROM_PRIMITIVE_LIST)
}

#[cfg(test)]
mod tests;

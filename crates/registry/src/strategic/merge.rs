//! The merge of a strategic merge patch into an object.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::directives::StrategicError::{self, Inapplicable, Malformed};
use super::directives::{
    DELETE_FROM_PRIMITIVE_LIST, PATCH, RETAIN_KEYS, SET_ELEMENT_ORDER, unknown_directive,
    without_directives, without_directives_in,
};
use super::order::{check_order, ordered};
use super::rule::{Rule, fields_of, rule};
use watchet_schema::{Fields, TypeRef};

/// Merges `patch` into `object`, which is of the type `of`, if that is known.
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
            delete_primitives(object, list, &value)?;
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
            *old = merge_list(std::mem::take(old), new, rule)?;
        }
        (_, value) => {
            if let Some(value) = without_directives(value) {
                object.insert(member, value);
            }
        }
    }
    Ok(())
}

/// Removes the members that `$retainKeys` does not list.
///
/// # Errors
/// The patch sets a member that is not listed.
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

/// Merges the lists that have a `$setElementOrder`, and removes them from the patch.
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
            // A null deletes the list and any other value replaces it, so there is no order.
            Some(_) => continue,
            None => None,
        };
        let old = match object.get(&name) {
            Some(Value::Array(list)) => Some(list.clone()),
            _ => None,
        };
        // Items that the same patch deletes are not in its order.
        if let Some(deleted) = patch.remove(&format!("{DELETE_FROM_PRIMITIVE_LIST}{name}")) {
            delete_primitives(object, &name, &deleted)?;
        }
        let live = match object.get(&name) {
            Some(Value::Array(list)) => Some(list.clone()),
            _ => None,
        };
        if let Some(new) = &new {
            check_order(new, &order, rule)?;
        }
        let merged = match (live, new) {
            (None, None) => continue,
            (live, new) => merge_list(live.unwrap_or_default(), new.unwrap_or_default(), rule)?,
        };
        let ordered = ordered(merged, &order, &old.unwrap_or_default(), rule);
        object.insert(name, Value::Array(ordered));
    }
    Ok(())
}

/// Merges the patch list `new` into `old` by the member's rule. Lists come from clients and can have hundreds of thousands
/// of items: items are looked up by hash, because comparing each pair would block a thread for minutes.
fn merge_list(
    old: Vec<Value>,
    new: Vec<Value>,
    rule: Option<Rule<'_>>,
) -> Result<Vec<Value>, StrategicError> {
    match rule {
        Some(Rule::List(key, items)) => merge_by_key(old, new, key, items),
        Some(Rule::Set) => {
            check_alike(old.iter().chain(&new))?;
            Ok(merge_set(old, new))
        }
        _ => Ok(new.into_iter().filter_map(without_directives).collect()),
    }
}

/// Checks that the items of a list have one type and are not lists, because the union of others is undefined.
fn check_alike<'a>(mut items: impl Iterator<Item = &'a Value>) -> Result<(), StrategicError> {
    let Some(first) = items.next() else {
        return Ok(());
    };
    if first.is_array() {
        return Err(Inapplicable("lists of lists are not supported".to_owned()));
    }
    let kind = std::mem::discriminant(first);
    match items.find(|item| std::mem::discriminant(*item) != kind) {
        None => Ok(()),
        Some(other) => Err(Inapplicable(format!(
            "list element types are not identical: {first} and {other}"
        ))),
    }
}

fn merge_set(old: Vec<Value>, new: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::with_capacity(old.len() + new.len());
    let all = old.iter().chain(&new);
    let merged = all.filter(|item| seen.insert(*item)).cloned().collect();
    ordered(merged, &new, &old, Some(Rule::Set))
}

fn merge_by_key(
    old: Vec<Value>,
    new: Vec<Value>,
    key: &str,
    items: Option<Fields<'_>>,
) -> Result<Vec<Value>, StrategicError> {
    let mut live = old.clone();
    let mut replaced = false;
    let mut deleted = HashSet::new();
    let mut patches: Vec<Map<String, Value>> = Vec::with_capacity(new.len());
    for item in new {
        let Value::Object(mut item) = item else {
            return Err(Malformed(format!(
                "a list merged by {key:?} must hold objects, not {item}"
            )));
        };
        match item
            .get(PATCH)
            .map(|d| d.as_str().unwrap_or_default().to_owned())
        {
            None => patches.push(item),
            Some(directive) => match &*directive {
                "delete" => {
                    deleted.insert(key_of(&item, key)?);
                }
                "replace" => {
                    item.remove(PATCH);
                    replaced = true;
                    if !item.is_empty() {
                        patches.push(item);
                    }
                }
                "merge" => {
                    item.remove(PATCH);
                    patches.push(item);
                }
                other => return Err(unknown_directive(other)),
            },
        }
    }
    if replaced {
        let items = patches.into_iter().map(without_directives_in);
        return Ok(items.map(Value::Object).collect());
    }
    live.retain(|item| item.get(key).is_none_or(|id| !deleted.contains(id)));
    let mut positions: HashMap<Value, usize> = HashMap::with_capacity(live.len());
    for (position, item) in live.iter().enumerate() {
        if let Some(id) = item.get(key) {
            positions.entry(id.clone()).or_insert(position);
        }
    }
    let mut order = Vec::with_capacity(patches.len());
    for patch in patches {
        let id = key_of(&patch, key)?;
        order.push(Value::Object(Map::from_iter([(
            key.to_owned(),
            id.clone(),
        )])));
        match positions.get(&id).map(|position| &mut live[*position]) {
            Some(Value::Object(item)) => merge_map(item, patch, items)?,
            _ => {
                positions.insert(id, live.len());
                live.push(Value::Object(without_directives_in(patch)));
            }
        }
    }
    Ok(ordered(live, &order, &old, Some(Rule::List(key, items))))
}

fn key_of(item: &Map<String, Value>, key: &str) -> Result<Value, StrategicError> {
    item.get(key).cloned().ok_or_else(|| {
        let item = Value::Object(item.clone());
        Inapplicable(format!(
            "map: {item} does not contain declared merge key: {key}"
        ))
    })
}

/// Removes the primitives in `deleted` from the list `name`.
fn delete_primitives(
    object: &mut Map<String, Value>,
    name: &str,
    deleted: &Value,
) -> Result<(), StrategicError> {
    let Some(deleted) = deleted.as_array() else {
        return Err(Malformed(format!(
            "{DELETE_FROM_PRIMITIVE_LIST}{name} must be a list"
        )));
    };
    if let Some(Value::Array(list)) = object.get_mut(name) {
        let deleted: HashSet<&Value> = deleted.iter().collect();
        list.retain(|item| !deleted.contains(item));
    }
    Ok(())
}

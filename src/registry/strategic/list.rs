//! Strategic merges of lists: by key, as sets, and the order in which the items end up. Lists come
//! from clients and may hold hundreds of thousands of items: items are looked up by hash, because to
//! compare each with each would block a thread for minutes.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{Fields, merge_map, unknown_directive, without_directives, without_directives_in};
use super::{Inapplicable, Malformed, PATCH, Rule, StrategicError};

/// `old` after the patch list `new`, by the member's rule.
pub(super) fn merge(
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

/// Refuses lists whose items are not all of one type, or are lists themselves: there is no telling what their
/// union is.
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
    let mut gone = HashSet::new();
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
                    gone.insert(key_of(&item, key)?);
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
    live.retain(|item| item.get(key).is_none_or(|id| !gone.contains(id)));
    let mut places: HashMap<Value, usize> = HashMap::with_capacity(live.len());
    for (place, item) in live.iter().enumerate() {
        if let Some(id) = item.get(key) {
            places.entry(id.clone()).or_insert(place);
        }
    }
    let mut order = Vec::with_capacity(patches.len());
    for patch in patches {
        let id = key_of(&patch, key)?;
        order.push(Value::Object(Map::from_iter([(
            key.to_owned(),
            id.clone(),
        )])));
        match places.get(&id).map(|place| &mut live[*place]) {
            Some(Value::Object(item)) => merge_map(item, patch, items)?,
            _ => {
                places.insert(id, live.len());
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

/// Removes the primitives in `gone` from the list `name`.
pub(super) fn delete_primitives(
    object: &mut Map<String, Value>,
    name: &str,
    gone: &Value,
) -> Result<(), StrategicError> {
    let Some(gone) = gone.as_array() else {
        return Err(Malformed(format!(
            "{}{name} must be a list",
            crate::registry::strategic::DELETE_FROM_PRIMITIVE_LIST
        )));
    };
    if let Some(Value::Array(list)) = object.get_mut(name) {
        let gone: HashSet<&Value> = gone.iter().collect();
        list.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// What tells an item apart from its neighbours.
fn identity<'a>(item: &'a Value, rule: Option<Rule<'_>>) -> &'a Value {
    match rule {
        Some(Rule::List(key, _)) => &item[key],
        _ => item,
    }
}

/// Where each item of a list is first.
struct Places<'a> {
    places: HashMap<&'a Value, usize>,
    rule: Option<Rule<'a>>,
}

impl<'a> Places<'a> {
    fn new(list: &'a [Value], rule: Option<Rule<'a>>) -> Self {
        let mut places = HashMap::with_capacity(list.len());
        for (place, item) in list.iter().enumerate() {
            places.entry(identity(item, rule)).or_insert(place);
        }
        Self { places, rule }
    }

    fn of(&self, item: &Value) -> Option<usize> {
        self.places.get(identity(item, self.rule)).copied()
    }
}

fn position(list: &[Value], item: &Value, rule: Option<Rule<'_>>) -> Option<usize> {
    let wanted = identity(item, rule);
    list.iter()
        .position(|other| identity(other, rule) == wanted)
}

/// Refuses a patch list that `$setElementOrder` does not list in the same order.
pub(super) fn check_order(
    new: &[Value],
    order: &[Value],
    rule: Option<Rule<'_>>,
) -> Result<(), StrategicError> {
    let mut from = 0;
    for item in new.iter().filter(|item| item.get(PATCH).is_none()) {
        match position(&order[from..], item, rule) {
            Some(at) => from += at + 1,
            None => {
                return Err(Malformed(format!(
                    "the order in the patch list {} doesn't match the order set {}",
                    Value::from(new.to_vec()),
                    Value::from(order.to_vec())
                )));
            }
        }
    }
    Ok(())
}

/// Arranges `merged`: the items of `order` in that order, and between them those that only the
/// server has, each before the first of the others that followed it in the list `before`.
pub(super) fn ordered(
    merged: Vec<Value>,
    order: &[Value],
    before: &[Value],
    rule: Option<Rule<'_>>,
) -> Vec<Value> {
    let (order, before) = (Places::new(order, rule), Places::new(before, rule));
    let (mut patched, mut others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| order.of(item).is_some());
    patched.sort_by_key(|item| order.of(item));
    others.sort_by_key(|item| before.of(item).unwrap_or(usize::MAX));
    let mut arranged = Vec::with_capacity(patched.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in patched {
        while let Some(other) = others.next_if(|other| {
            let (o, i) = (before.of(other), before.of(&item));
            matches!((o, i), (Some(o), Some(i)) if o < i)
        }) {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others);
    arranged
}

//! The order of the items of a merged list (`$setElementOrder`).

use std::collections::HashMap;

use serde_json::Value;

use super::directives::{PATCH, StrategicError};
use super::rule::Rule;

/// Returns the identity of an item in its list.
fn identity<'a>(item: &'a Value, rule: Option<Rule<'_>>) -> &'a Value {
    match rule {
        Some(Rule::List(key, _)) => &item[key],
        _ => item,
    }
}

/// The first position of each item of a list.
struct Positions<'a> {
    positions: HashMap<&'a Value, usize>,
    rule: Option<Rule<'a>>,
}

impl<'a> Positions<'a> {
    fn new(list: &'a [Value], rule: Option<Rule<'a>>) -> Self {
        let mut positions = HashMap::with_capacity(list.len());
        for (position, item) in list.iter().enumerate() {
            positions.entry(identity(item, rule)).or_insert(position);
        }
        Self { positions, rule }
    }

    fn of(&self, item: &Value) -> Option<usize> {
        self.positions.get(identity(item, self.rule)).copied()
    }
}

fn position(list: &[Value], item: &Value, rule: Option<Rule<'_>>) -> Option<usize> {
    let expected = identity(item, rule);
    list.iter()
        .position(|other| identity(other, rule) == expected)
}

/// Checks that `$setElementOrder` lists the items of a patch list in the same order.
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
                return Err(StrategicError::Malformed(format!(
                    "the order in the patch list {} doesn't match the order set {}",
                    Value::from(new.to_vec()),
                    Value::from(order.to_vec())
                )));
            }
        }
    }
    Ok(())
}

/// Sorts `merged`: the items of `order` in that order, and between them those that only the server has, each before the
/// first item of `order` that followed it in the list `before`.
pub(super) fn ordered(
    merged: Vec<Value>,
    order: &[Value],
    before: &[Value],
    rule: Option<Rule<'_>>,
) -> Vec<Value> {
    let (order, before) = (Positions::new(order, rule), Positions::new(before, rule));
    let (mut patched, mut others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| order.of(item).is_some());
    patched.sort_by_key(|item| order.of(item));
    others.sort_by_key(|item| before.of(item).unwrap_or(usize::MAX));
    let mut sorted = Vec::with_capacity(patched.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in patched {
        while let Some(other) = others.next_if(|other| {
            let (o, i) = (before.of(other), before.of(&item));
            matches!((o, i), (Some(o), Some(i)) if o < i)
        }) {
            sorted.push(other);
        }
        sorted.push(item);
    }
    sorted.extend(others);
    sorted
}

//! Merges an applied configuration into an object: it removes nothing, values of the configuration
//! win, and its list order is used.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::path_element::{Malformed, PathElement};
use super::typed::{Atom, Items, Members, Type, items, members, zip};

/// Merges `config` into `live`.
///
/// # Errors
/// Returns an error for a list with missing or invalid keys, or with duplicates in the
/// configuration.
pub(super) fn merge(live: &Value, config: &Value, ty: Type) -> Result<Value, Malformed> {
    values(Some(live), Some(config), ty)
}

/// Merges two values, of which at least one exists.
fn values(live: Option<&Value>, config: Option<&Value>, ty: Type) -> Result<Value, Malformed> {
    let whole = || Ok(config.or(live).cloned().unwrap_or_default());
    match ty.atom(live, config) {
        Atom::Leaf => whole(),
        Atom::List(list) => match (items(live), items(config)) {
            ([], []) => whole(),
            (live, config) => lists(live, config, list).map(Value::Array),
        },
        Atom::Map(map) => {
            let replaces = |v: &Value| !v.is_object() && !v.is_null();
            match (members(live), members(config)) {
                (None, None) => whole(),
                // A value replaces a map of deduced type.
                (Some(_), None) if ty.is_deduced() && config.is_some_and(replaces) => whole(),
                (live, config) => maps(live, config, map).map(Value::Object),
            }
        }
    }
}

fn maps(
    live: Option<&Map<String, Value>>,
    config: Option<&Map<String, Value>>,
    map: Members,
) -> Result<Map<String, Value>, Malformed> {
    let mut merged = Map::new();
    zip(live, config, |name, live, config| {
        let value = match (live, config) {
            (Some(live), None) => live.clone(),
            _ => values(live, config, map.get(name).0)?,
        };
        merged.insert(name.to_owned(), value);
        Ok(())
    })?;
    Ok(merged)
}

/// Merges lists. Items of both have the configuration's order; items of the object only stay after
/// their predecessors where possible.
fn lists(live: &[Value], config: &[Value], list: Items) -> Result<Vec<Value>, Malformed> {
    let (ours, theirs) = (list.index(live)?, list.index(config)?);
    if let Some(again) = theirs.order.iter().find(|e| theirs.get(e).len() > 1) {
        return Err(Malformed(format!("duplicate entries for key {again}")));
    }
    let mut merged = Vec::with_capacity(live.len().max(config.len()));
    let mut done: HashSet<&PathElement> = HashSet::with_capacity(config.len());
    // The next common item in the configuration's order.
    let mut shared = theirs.order.iter().filter(|e| !ours.get(e).is_empty());
    let mut next_shared = shared.next();
    let (mut l, mut r) = (0, 0);
    while l < ours.order.len() || r < theirs.order.len() {
        let (our, their) = (ours.order.get(l), theirs.order.get(r));
        if let (Some(our), Some(their)) = (our, their)
            && our != their
            && !theirs.get(our).is_empty()
            && next_shared.is_some_and(|next| next != our)
        {
            // A common item that the configuration has later.
            l += 1;
            continue;
        }
        if let Some(our) = our.filter(|our| Some(*our) != their) {
            if theirs.get(our).is_empty() {
                merged.push(live[l].clone());
                l += 1;
                continue;
            }
            if done.contains(our) {
                l += 1;
            }
        }
        if let Some(their) = their {
            // Duplicates are not merged: the configuration's item replaces them.
            let same = match ours.get(their) {
                [one] => Some(*one),
                _ => None,
            };
            merged.push(values(same, Some(&config[r]), list.item)?);
            done.insert(their);
            r += 1;
            if our == Some(their) {
                l += 1;
                next_shared = shared.next();
            } else if next_shared == Some(their) {
                next_shared = shared.next();
            }
        }
    }
    Ok(merged)
}

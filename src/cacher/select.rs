//! Selecting from a state: ranges, limits, what comes after. Which objects there are to look at (all,
//! those of an index, one) is decided where the state is; here is only a map in key order.

use std::ops::Bound;
use std::sync::Arc;

use super::snapshot::ObjectMap;
use crate::api::{Object, ObjectKey, SelectionPredicate};

/// Objects looked at in one go, about a millisecond's work. A selector that few objects match must
/// not keep a thread from everybody else while a large collection is searched.
pub(super) const EXAMINED_MAX: usize = 4096;

/// Part of what a predicate selects.
#[derive(Debug)]
pub(super) struct Part {
    /// Objects looked at.
    pub(super) examined: usize,
    pub(super) items: Vec<Arc<Object>>,
    /// The last key examined, when objects of the scope come after it.
    pub(super) more_after: Option<ObjectKey>,
}

/// The first `items_max` objects, or the fewer ones among [`EXAMINED_MAX`], that `predicate` selects
/// from key `start` on.
pub(super) fn select(
    objects: &ObjectMap,
    predicate: &SelectionPredicate,
    start: &str,
    items_max: usize,
) -> Part {
    let mut range = range(objects, predicate, start).peekable();
    let mut part = Part {
        examined: 0,
        items: Vec::new(),
        more_after: None,
    };
    let mut last = None;
    for (key, object) in range.by_ref().take(EXAMINED_MAX) {
        last = Some(key);
        part.examined += 1;
        if predicate.matches(object) {
            part.items.push(object.clone());
            if part.items.len() == items_max {
                break;
            }
        }
    }
    part.more_after = last.filter(|_| range.peek().is_some()).cloned();
    part
}

/// How many objects there are in the predicate's scope from key `start` on, whatever else it selects.
pub(super) fn count(objects: &ObjectMap, predicate: &SelectionPredicate, start: &str) -> u64 {
    let everything = start.is_empty() && predicate.scope.key_prefix().is_empty();
    let count = if everything {
        objects.len()
    } else {
        range(objects, predicate, start).count()
    };
    count as u64
}

/// The objects whose keys the predicate's scope may cover, from `start` on.
fn range<'a>(
    objects: &'a ObjectMap,
    predicate: &SelectionPredicate,
    start: &str,
) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Object>)> {
    let prefix = predicate.scope.key_prefix();
    let from = start.max(&prefix);
    objects
        .range::<_, str>((Bound::Included(from), Bound::Unbounded))
        // Without a prefix no key has to be read, which is a cache miss each.
        .take_while(move |(key, _)| prefix.is_empty() || key.as_str().starts_with(&prefix))
}

#[cfg(test)]
mod tests;

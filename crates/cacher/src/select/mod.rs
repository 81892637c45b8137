//! Selects objects from a map in key order: ranges, limits, and the position of the next page. The
//! caller chooses the candidates (all objects, an index, or a single object).

use std::ops::Bound;
use std::sync::Arc;

use super::object_map::ObjectMap;
use watchet_api::{Object, ObjectKey, SelectionPredicate};

/// Objects examined per call, about a millisecond of work, so that a selector with few matches does
/// not block the thread.
pub(super) const EXAMINED_MAX: usize = 4096;

/// Part of the objects that a predicate selects.
#[derive(Debug)]
pub(super) struct Part {
    /// The number of examined objects.
    pub(super) examined: usize,
    pub(super) items: Vec<Arc<Object>>,
    /// The last examined key, if objects in scope follow it.
    pub(super) more_after: Option<ObjectKey>,
}

/// Returns the objects that `predicate` selects from key `start` on: at most `items_max`, and only
/// among the first [`EXAMINED_MAX`].
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

/// Returns the number of objects in the predicate's scope from key `start` on, regardless of its
/// selectors.
pub(super) fn count(objects: &ObjectMap, predicate: &SelectionPredicate, start: &str) -> u64 {
    let everything = start.is_empty() && predicate.scope.key_prefix().is_empty();
    let count = if everything {
        objects.len()
    } else {
        range(objects, predicate, start).count()
    };
    count as u64
}

/// Returns the objects whose keys may be in the predicate's scope, from `start` on.
fn range<'a>(
    objects: &'a ObjectMap,
    predicate: &SelectionPredicate,
    start: &str,
) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Object>)> {
    let prefix = predicate.scope.key_prefix();
    let from = start.max(&prefix);
    objects
        .range::<_, str>((Bound::Included(from), Bound::Unbounded))
        // Without a prefix no key has to be compared, which would cost a cache miss each.
        .take_while(move |(key, _)| prefix.is_empty() || key.as_str().starts_with(&prefix))
}

#[cfg(test)]
mod tests;

//! Compares two states of an object: the fields that were added, modified and removed.

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::path_element::{Malformed, PathElement};
use super::typed::{Atom, Items, Members, Type, items, members, zip};

/// The fields in which two objects differ; each is in one of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Fields that only the right object has.
    pub(super) added: FieldSet,
    /// Fields that both have with different values.
    pub(super) modified: FieldSet,
    /// Fields that only the left object has.
    pub(super) removed: FieldSet,
}

/// The change of a field itself, regardless of the fields below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Added,
    Modified,
    Removed,
}

/// Compares `right` with `left`, its previous state.
///
/// # Errors
/// Returns an error for a list with missing or invalid keys.
pub(super) fn compare(left: &Value, right: &Value, ty: Type) -> Result<Comparison, Malformed> {
    Ok(values(Some(left), Some(right), ty)?.1)
}

/// Compares a value, which one of the objects may lack.
fn values(
    left: Option<&Value>,
    right: Option<&Value>,
    ty: Type,
) -> Result<(Change, Comparison), Malformed> {
    let mut comparison = Comparison::default();
    let change = match (left, right) {
        (Some(left), Some(right)) => return both(left, right, ty),
        (None, Some(value)) => {
            comparison.added = all_paths_below(value, ty)?;
            Change::Added
        }
        (Some(value), None) => {
            comparison.removed = all_paths_below(value, ty)?;
            Change::Removed
        }
        (None, None) => Change::None,
    };
    Ok((change, comparison))
}

/// Compares a value that both objects have.
fn both(left: &Value, right: &Value, ty: Type) -> Result<(Change, Comparison), Malformed> {
    let compare_as_leaf = || {
        let change = match ty.same(left, right) {
            true => Change::None,
            false => Change::Modified,
        };
        Ok((change, Comparison::default()))
    };
    match ty.atom(Some(left), Some(right)) {
        Atom::Leaf => compare_as_leaf(),
        Atom::List(list) => match (items(Some(left)), items(Some(right))) {
            ([], []) => compare_as_leaf(),
            (l, r) => Ok((Change::None, lists(l, r, list)?)),
        },
        Atom::Map(map) => match (members(Some(left)), members(Some(right))) {
            (None, None) => compare_as_leaf(),
            (l, r) => {
                let below = maps(l, r, map)?;
                // A value replaced a map, or a map replaced a value.
                let is_other = |value: &Value| !value.is_object() && !value.is_null();
                match ty.is_deduced() && (is_other(left) || is_other(right)) {
                    true => Ok((Change::Modified, below)),
                    false => Ok((Change::None, below)),
                }
            }
        },
    }
}

/// Returns every path below `value`, including those of maps and lists. [`super::fields_of::fields_of`] omits a struct field that
/// is a list or a non-empty map.
fn all_paths_below(value: &Value, ty: Type) -> Result<FieldSet, Malformed> {
    match ty.atom(Some(value), None) {
        Atom::Leaf => Ok(FieldSet::default()),
        Atom::List(list) => {
            let index = list.index(items(Some(value)))?;
            let mut all = FieldSet::with_capacity(index.order.len());
            for element in index.distinct_elements() {
                // Duplicates count as one leaf.
                let below = match index.get(element) {
                    [one] => all_paths_below(one, list.item)?,
                    _ => FieldSet::default(),
                };
                all.push(element.clone(), true, below);
            }
            Ok(all)
        }
        Atom::Map(map) => {
            let members = value.as_object();
            let mut all = FieldSet::with_capacity(members.map_or(0, Map::len));
            for (name, member) in members.into_iter().flatten() {
                let below = all_paths_below(member, map.get(name).0)?;
                all.push(PathElement::field(name), true, below);
            }
            Ok(all)
        }
    }
}

fn maps(
    left: Option<&Map<String, Value>>,
    right: Option<&Map<String, Value>>,
    map: Members,
) -> Result<Comparison, Malformed> {
    let mut all = Comparison::default();
    zip(left, right, |name, left, right| {
        // Most of an object is unchanged.
        if left != right {
            let (change, below) = values(left, right, map.get(name).0)?;
            all.push(PathElement::field(name), &[change], below);
        }
        Ok(())
    })?;
    Ok(all)
}

fn lists(left: &[Value], right: &[Value], list: Items) -> Result<Comparison, Malformed> {
    let (left, right) = (list.index(left)?, list.index(right)?);
    let elements = left.distinct_elements().chain(right.distinct_elements());
    let mut elements: Vec<&PathElement> = elements.collect();
    elements.sort_unstable();
    // An element can be in both lists.
    elements.dedup();
    let mut all = Comparison::default();
    for element in elements {
        let (l, r) = (left.get(element), right.get(element));
        let ((change, below), again) = match (l.len(), r.len()) {
            (0 | 1, 0 | 1) => {
                let item = values(l.first().copied(), r.first().copied(), list.item)?;
                (item, Change::None)
            }
            // Duplicates count as one leaf.
            (2.., 2..) => {
                let equal =
                    l.len() == r.len() && l.iter().zip(r).all(|(l, r)| list.item.same(l, r));
                let change = if equal {
                    Change::None
                } else {
                    Change::Modified
                };
                ((change, Comparison::default()), Change::None)
            }
            // Duplicates on one side, and at most one item on the other.
            (2.., _) => {
                let item = values(None, r.first().copied(), list.item)?;
                (item, Change::Removed)
            }
            _ => {
                let item = values(l.first().copied(), None, list.item)?;
                (item, Change::Added)
            }
        };
        all.push(element.clone(), &[change, again], below);
    }
    Ok(all)
}

impl Comparison {
    /// Adds the changes at the next path element.
    fn push(&mut self, element: PathElement, changes: &[Change], below: Self) {
        let is = |change| changes.contains(&change);
        let parts = [
            (&mut self.added, Change::Added, below.added),
            (&mut self.modified, Change::Modified, below.modified),
            (&mut self.removed, Change::Removed, below.removed),
        ];
        let mut parts = parts
            .into_iter()
            .filter(|(_, change, below)| is(*change) || !below.is_empty());
        // Moves the element into the last set: most elements are in one set only, and are not cloned.
        let last = parts.next_back();
        for (set, change, below) in parts {
            set.push(element.clone(), is(change), below);
        }
        if let Some((set, change, below)) = last {
            set.push(element, is(change), below);
        }
    }

    /// Applies `to` to each of the sets.
    pub(super) fn each(&mut self, mut to: impl FnMut(&mut FieldSet)) {
        to(&mut self.added);
        to(&mut self.modified);
        to(&mut self.removed);
    }

    /// Returns the added and modified fields.
    pub(super) fn into_added_or_modified(self) -> FieldSet {
        self.added.union(self.modified)
    }

    /// Returns all fields that differ.
    pub(super) fn into_all(self) -> FieldSet {
        self.added.union(self.modified).union(self.removed)
    }
}

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

fn values(
    left: Option<&Value>,
    right: Option<&Value>,
    ty: Type,
) -> Result<(Change, Comparison), Malformed> {
    let whole = || Ok((leaf(left, right, ty), Comparison::default()));
    match ty.atom(left, right) {
        Atom::Leaf => whole(),
        Atom::List(list) => match (items(left), items(right)) {
            ([], []) => whole(),
            (l, r) => Ok((presence(left, right), lists(l, r, list)?)),
        },
        Atom::Map(map) => match (members(left), members(right)) {
            (None, None) => whole(),
            (l, r) => {
                let below = maps(l, r, map)?;
                // A value replaced a map, or a map replaced a value.
                let other = |v: Option<&Value>| v.is_some_and(|v| !v.is_object() && !v.is_null());
                match ty.is_deduced() && left.is_some() && right.is_some() {
                    true if other(left) || other(right) => Ok((Change::Modified, below)),
                    _ => Ok((presence(left, right), below)),
                }
            }
        },
    }
}

fn presence(left: Option<&Value>, right: Option<&Value>) -> Change {
    match (left, right) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        _ => Change::None,
    }
}

fn leaf(left: Option<&Value>, right: Option<&Value>, ty: Type) -> Change {
    match (left, right) {
        (Some(left), Some(right)) if !ty.same(left, right) => Change::Modified,
        _ => presence(left, right),
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
    let mut elements: Vec<&PathElement> = left.order.iter().chain(&right.order).collect();
    elements.sort_unstable();
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
            (2.., _) => (single_item(None, r.first(), list.item)?, Change::Removed),
            _ => (single_item(l.first(), None, list.item)?, Change::Added),
        };
        all.push(element.clone(), &[change, again], below);
    }
    Ok(all)
}

/// Returns the single item compared with duplicates on the other side, if there is one.
fn single_item(
    left: Option<&&Value>,
    right: Option<&&Value>,
    item: Type,
) -> Result<(Change, Comparison), Malformed> {
    match (left, right) {
        (None, None) => Ok((Change::None, Comparison::default())),
        _ => values(left.copied(), right.copied(), item),
    }
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
        for (set, change, below) in parts {
            if is(change) || !below.is_empty() {
                set.push(element.clone(), is(change), below);
            }
        }
    }

    /// Applies `to` to each of the sets.
    pub(super) fn each(&mut self, mut to: impl FnMut(&mut FieldSet)) {
        to(&mut self.added);
        to(&mut self.modified);
        to(&mut self.removed);
    }

    /// Returns the added and modified fields.
    pub(super) fn changed(&self) -> FieldSet {
        self.added.clone().union(self.modified.clone())
    }

    /// Returns all fields that differ.
    pub(super) fn all(self) -> FieldSet {
        self.added.union(self.modified).union(self.removed)
    }
}

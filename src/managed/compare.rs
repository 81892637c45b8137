//! What changed between two states of an object: the fields that were added, modified and removed. How
//! that changes who manages them is told by `update`.

use serde_json::{Map, Value};

use super::element::{Element, Malformed};
use super::set::Set;
use super::typed::{Atom, Items, Members, Type, items, members, zip};

/// The fields in which two objects differ; each is in one of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Only the right one has them.
    pub(super) added: Set,
    /// Both have them, with other values.
    pub(super) modified: Set,
    /// Only the left one has them.
    pub(super) removed: Set,
}

/// What became of a field itself, whatever became of what is below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Added,
    Modified,
    Removed,
}

/// Compares `right` with what was there before, `left`.
///
/// # Errors
/// A list whose items cannot be told apart, though its type says how.
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
                // A value took the place of a map, or the other way round.
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
        // Most of an object stays what it is.
        if left != right {
            let (change, below) = values(left, right, map.get(name).0)?;
            all.push(Element::field(name), &[change], below);
        }
        Ok(())
    })?;
    Ok(all)
}

fn lists(left: &[Value], right: &[Value], list: Items) -> Result<Comparison, Malformed> {
    let (left, right) = (list.index(left)?, list.index(right)?);
    let mut elements: Vec<&Element> = left.order.iter().chain(&right.order).collect();
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
            // Duplicates are one leaf together.
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
            (2.., _) => (alone(None, r.first(), list.item)?, Change::Removed),
            _ => (alone(l.first(), None, list.item)?, Change::Added),
        };
        all.push(element.clone(), &[change, again], below);
    }
    Ok(all)
}

/// The one item beside duplicates on the other side, if there is one.
fn alone(
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
    /// Adds what changed at the next element.
    fn push(&mut self, element: Element, changes: &[Change], below: Self) {
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
    pub(super) fn each(&mut self, mut to: impl FnMut(&mut Set)) {
        to(&mut self.added);
        to(&mut self.modified);
        to(&mut self.removed);
    }

    /// What is there now and was not so before.
    pub(super) fn changed(&self) -> Set {
        self.added.clone().union(self.modified.clone())
    }

    /// Everything that differs.
    pub(super) fn touched(self) -> Set {
        self.added.union(self.modified).union(self.removed)
    }
}

//! Field sets and their encoding, FieldsV1.
//!
//! # Invariants
//!
//! 1. The nodes of a set are sorted by element and unique.
//! 2. A node is a member or has a member below it; an empty set has no nodes.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::path_element::{Malformed, PathElement};

/// A set of field paths as a tree. Membership of a path does not imply that of its parents or
/// children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    nodes: Vec<Node>,
}

/// The members of a set at and below one path element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) element: PathElement,
    /// True if the path that ends here is a member.
    pub(super) member: bool,
    /// The paths below.
    pub(super) below: FieldSet,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

/// The key in FieldsV1 for a field that is a member and has members below it.
const SELF: &str = ".";

impl FieldSet {
    /// Returns an empty set with space for `count` elements.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(count),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn into_nodes(self) -> Vec<Node> {
        self.nodes
    }

    /// Returns the set of these nodes, in any order. The last of equal elements counts.
    pub(super) fn of_nodes(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|node| !node.is_empty());
        if !nodes.is_sorted_by(|a, b| a.element < b.element) {
            nodes.sort_by(|a, b| b.element.cmp(&a.element));
            nodes.reverse();
            // The sort is stable and the order was reversed: the last of equal elements is first.
            nodes.dedup_by(|later, earlier| later.element == earlier.element);
        }
        Self { nodes }
    }

    /// Adds the next element, which must be greater than all before it.
    pub(super) fn push(&mut self, element: PathElement, member: bool, below: FieldSet) {
        debug_assert!(self.nodes.last().is_none_or(|last| last.element < element));
        let node = Node {
            element,
            member,
            below,
        };
        if !node.is_empty() {
            self.nodes.push(node);
        }
    }

    /// Returns the node of this element.
    pub(super) fn get(&self, element: &PathElement) -> Option<&Node> {
        let at = self
            .nodes
            .binary_search_by(|node| node.element.cmp(element))
            .ok()?;
        Some(&self.nodes[at])
    }

    /// Retains the members that `keep` leaves.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut Node)) {
        self.nodes.retain_mut(|node| {
            keep(node);
            !node.is_empty()
        });
    }

    /// Returns the union.
    pub(super) fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut other_nodes = other.nodes.into_iter().peekable();
        for mut ours in self.nodes {
            while let Some(node) = other_nodes.next_if(|node| node.element < ours.element) {
                nodes.push(node);
            }
            if let Some(same) = other_nodes.next_if(|node| node.element == ours.element) {
                ours.member |= same.member;
                ours.below = ours.below.union(same.below);
            }
            nodes.push(ours);
        }
        nodes.extend(other_nodes);
        Self { nodes }
    }

    /// Returns the union of `sets`. Merges pairwise, which is faster than adding one set after the
    /// other.
    pub(super) fn of_all(mut sets: Vec<Self>) -> Self {
        while sets.len() > 1 {
            let mut left = sets.into_iter();
            let mut pairs = Vec::with_capacity(left.len().div_ceil(2));
            while let Some(first) = left.next() {
                pairs.push(first.union(left.next().unwrap_or_default()));
            }
            sets = pairs;
        }
        sets.pop().unwrap_or_default()
    }

    /// Returns the intersection.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        self.zip(other, |ours, other_nodes| {
            if let Some(other_nodes) = other_nodes {
                both.push(
                    ours.element.clone(),
                    ours.member && other_nodes.member,
                    ours.below.intersection(&other_nodes.below),
                );
            }
        });
        both
    }

    /// Returns the members of `self` that `other` does not have.
    pub(super) fn difference(&self, other: &Self) -> Self {
        let mut left = Self::default();
        self.zip(other, |ours, other_nodes| match other_nodes {
            None => left.nodes.push(ours.clone()),
            Some(other_nodes) => left.push(
                ours.element.clone(),
                ours.member && !other_nodes.member,
                ours.below.difference(&other_nodes.below),
            ),
        });
        left
    }

    /// Calls `with` for each node and the node of `other` at the same element.
    fn zip(&self, other: &Self, mut with: impl FnMut(&Node, Option<&Node>)) {
        // An object may have thousands of managers with one field each.
        if self.nodes.len() < other.nodes.len() / 16 {
            for ours in &self.nodes {
                with(ours, other.get(&ours.element));
            }
            return;
        }
        let mut other_nodes = other.nodes.iter().peekable();
        for ours in &self.nodes {
            let same = loop {
                match other_nodes
                    .peek()
                    .map(|node| node.element.cmp(&ours.element))
                {
                    Some(Ordering::Less) => drop(other_nodes.next()),
                    Some(Ordering::Equal) => break other_nodes.next(),
                    _ => break None,
                }
            };
            with(ours, same);
        }
    }

    /// Returns the display form of its paths; at each level members are first.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.add_paths("", &mut found);
        found
    }

    fn add_paths(&self, prefix: &str, found: &mut Vec<String>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            found.push(format!("{prefix}{}", node.element));
        }
        for node in self.nodes.iter().filter(|node| !node.below.is_empty()) {
            node.below
                .add_paths(&format!("{prefix}{}", node.element), found);
        }
    }

    /// Decodes FieldsV1.
    ///
    /// # Errors
    /// Returns an error if `fields` is not a map of maps with valid path elements.
    pub(super) fn parse(fields: &Value) -> Result<Self, Malformed> {
        let Value::Object(fields) = fields else {
            return Err(Malformed(format!(
                "a set of fields is an object, not {fields}"
            )));
        };
        let mut nodes = Vec::with_capacity(fields.len());
        for (key, value) in fields {
            if key == SELF {
                continue;
            }
            if let Some(element) = PathElement::parse(key)? {
                let below = Self::parse(value)?;
                let member = below.is_empty() || value.get(SELF).is_some();
                nodes.push(Node {
                    element,
                    member,
                    below,
                });
            }
        }
        Ok(Self::of_nodes(nodes))
    }

    /// Encodes FieldsV1.
    pub(super) fn into_wire(self) -> Value {
        Value::Object(self.into_map())
    }

    fn into_map(self) -> Map<String, Value> {
        let entry = |node: Node| {
            let mut below = node.below.into_map();
            if node.member && !below.is_empty() {
                below.insert(SELF.to_owned(), Value::Object(Map::new()));
            }
            (node.element.into_string(), Value::Object(below))
        };
        self.nodes.into_iter().map(entry).collect()
    }

    /// Returns true if the set shares a member with `wire`, canonical FieldsV1, which need not be
    /// decoded for that.
    pub(super) fn intersects(&self, wire: &Value) -> bool {
        let Some(fields) = wire.as_object() else {
            return false;
        };
        let intersects = |node: &Node, there: &Value| {
            let own = there.as_object().is_none_or(Map::is_empty);
            let own = own || there.get(SELF).is_some();
            (node.member && own) || node.below.intersects(there)
        };
        // As in `zip`: the larger set is not scanned for a smaller one.
        if fields.len() < self.nodes.len() / 16 {
            let at = |key: &str| self.nodes.binary_search_by(|n| n.element.as_str().cmp(key));
            return fields
                .iter()
                .any(|(key, there)| at(key).is_ok_and(|at| intersects(&self.nodes[at], there)));
        }
        let mut nodes = self.nodes.iter();
        nodes.any(|node| {
            let there = fields.get(node.element.as_str());
            there.is_some_and(|there| intersects(node, there))
        })
    }
}

#[cfg(test)]
mod tests;

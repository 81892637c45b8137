//! Sets of fields: which parts of an object somebody manages, and their form on the wire, FieldsV1.
//! What the parts mean is not known here.
//!
//! # Invariants
//!
//! 1. The nodes of a set are in the order of their elements, each element once.
//! 2. A node is a member of the set, or a member is below it: an empty set has no nodes.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::element::{Element, Malformed};

/// A set of paths, as a tree. That a path is in it says nothing of those below and above.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set {
    nodes: Vec<Node>,
}

/// What a set has at one step and below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) element: Element,
    /// Whether the path that ends here is in the set.
    pub(super) member: bool,
    /// The paths that go on from here.
    pub(super) below: Set,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

/// On the wire this says that the field itself is a member, where others are below it.
const SELF: &str = ".";

impl Set {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn into_nodes(self) -> Vec<Node> {
        self.nodes
    }

    /// The set of these nodes, in any order. Of an element that is there twice the last counts.
    pub(super) fn of_nodes(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|node| !node.is_empty());
        if !nodes.is_sorted_by(|a, b| a.element < b.element) {
            nodes.sort_by(|a, b| b.element.cmp(&a.element));
            nodes.reverse();
            // The sort is stable and was reversed: of equals the last is first.
            nodes.dedup_by(|later, earlier| later.element == earlier.element);
        }
        Self { nodes }
    }

    /// Adds what is at the next element, which must be greater than all before it.
    pub(super) fn push(&mut self, element: Element, member: bool, below: Set) {
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

    /// What is at this element.
    pub(super) fn get(&self, element: &Element) -> Option<&Node> {
        let at = self
            .nodes
            .binary_search_by(|node| node.element.cmp(element))
            .ok()?;
        Some(&self.nodes[at])
    }

    /// Keeps the nodes, and of their members and what is below them, what `keep` leaves.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut Node)) {
        self.nodes.retain_mut(|node| {
            keep(node);
            !node.is_empty()
        });
    }

    /// What is in either.
    pub(super) fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut theirs = other.nodes.into_iter().peekable();
        for mut ours in self.nodes {
            while let Some(node) = theirs.next_if(|node| node.element < ours.element) {
                nodes.push(node);
            }
            if let Some(same) = theirs.next_if(|node| node.element == ours.element) {
                ours.member |= same.member;
                ours.below = ours.below.union(same.below);
            }
            nodes.push(ours);
        }
        nodes.extend(theirs);
        Self { nodes }
    }

    /// What is in any of `sets`. Halves are put together, and not one after the other to all before it,
    /// which would be moved each time.
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

    /// What is in both.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        self.zip(other, |ours, theirs| {
            if let Some(theirs) = theirs {
                both.push(
                    ours.element.clone(),
                    ours.member && theirs.member,
                    ours.below.intersection(&theirs.below),
                );
            }
        });
        both
    }

    /// What is in this and not in the other.
    pub(super) fn difference(&self, other: &Self) -> Self {
        let mut left = Self::default();
        self.zip(other, |ours, theirs| match theirs {
            None => left.nodes.push(ours.clone()),
            Some(theirs) => left.push(
                ours.element.clone(),
                ours.member && !theirs.member,
                ours.below.difference(&theirs.below),
            ),
        });
        left
    }

    /// Calls `with` for each of our nodes, and the other's at the same element.
    fn zip(&self, other: &Self, mut with: impl FnMut(&Node, Option<&Node>)) {
        // Thousands of managers can have a field each, of an object of thousands.
        if self.nodes.len() < other.nodes.len() / 16 {
            for ours in &self.nodes {
                with(ours, other.get(&ours.element));
            }
            return;
        }
        let mut theirs = other.nodes.iter().peekable();
        for ours in &self.nodes {
            let same = loop {
                match theirs.peek().map(|node| node.element.cmp(&ours.element)) {
                    Some(Ordering::Less) => drop(theirs.next()),
                    Some(Ordering::Equal) => break theirs.next(),
                    _ => break None,
                }
            };
            with(ours, same);
        }
    }

    /// The texts of its paths, as people read them: at each level the members first.
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

    /// Reads FieldsV1.
    ///
    /// # Errors
    /// What is no map of maps, or has a key that is no path element.
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
            if let Some(element) = Element::parse(key)? {
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

    /// FieldsV1.
    pub(super) fn to_wire(&self) -> Value {
        Value::Object(self.to_map())
    }

    fn to_map(&self) -> Map<String, Value> {
        let entry = |node: &Node| {
            let mut below = node.below.to_map();
            if node.member && !below.is_empty() {
                below.insert(SELF.to_owned(), Value::Object(Map::new()));
            }
            (node.element.as_str().to_owned(), Value::Object(below))
        };
        self.nodes.iter().map(entry).collect()
    }

    /// Whether a member of this set is one of `wire`, FieldsV1 whose keys are canonical; it need not be
    /// read for that.
    pub(super) fn meets(&self, wire: &Value) -> bool {
        let Some(fields) = wire.as_object() else {
            return false;
        };
        let meets = |node: &Node, there: &Value| {
            let own = there.as_object().is_none_or(Map::is_empty);
            let own = own || there.get(SELF).is_some();
            (node.member && own) || node.below.meets(there)
        };
        // As in `zip`: what is large is not walked for what is small.
        if fields.len() < self.nodes.len() / 16 {
            let at = |key: &str| self.nodes.binary_search_by(|n| n.element.as_str().cmp(key));
            return fields
                .iter()
                .any(|(key, there)| at(key).is_ok_and(|at| meets(&self.nodes[at], there)));
        }
        let mut nodes = self.nodes.iter();
        nodes.any(|node| {
            let there = fields.get(node.element.as_str());
            there.is_some_and(|there| meets(node, there))
        })
    }
}

#[cfg(test)]
mod tests;

//! The versions of each key, in the order of their revisions, as the acknowledged writes and the observed states determine them.

use std::collections::HashMap;

use super::history::{Content, History, Operation, Outcome, Request, Selector};
use super::order::Order;
use super::violation::{ChangeId, Source};

/// A state of a key, from its revision to that of the next version.
#[derive(Debug, Clone)]
pub(super) struct Version<'a> {
    pub(super) revision: u64,
    /// None if the key was deleted.
    pub(super) content: Option<&'a Content>,
    /// The operation that wrote it. None if it is of the initial state, or if there are several candidates.
    pub(super) owner: Option<usize>,
    /// The operations that may have written it, if the owner is not certain.
    pub(super) candidates: Vec<usize>,
    /// Where it was first seen, except in the response of the operation that wrote it.
    pub(super) seen: Option<Source>,
}

/// A key and its versions.
#[derive(Debug, Default)]
pub(super) struct Key<'a> {
    pub(super) name: &'a str,
    /// The revision of the initial state.
    pub(super) initial_revision: u64,
    /// In ascending order.
    pub(super) versions: Vec<Version<'a>>,
    /// Writes of this key that have no version: with an unknown outcome, or acknowledged deletes without a revision.
    pub(super) undecided: Vec<usize>,
    /// Acknowledged deletes of which it is not certain which version they are.
    pub(super) acknowledged: Vec<usize>,
    /// Acknowledged updates that may have changed nothing: the revision in the response is that of an equal state.
    pub(super) unchanged: Vec<(usize, u64)>,
    /// Ranges of revisions in which each change was seen: after the first, up to and including the second.
    pub(super) covered: Vec<(u64, u64)>,
}

impl<'a> Key<'a> {
    /// Returns the index of the version at a revision.
    pub(super) fn index_at(&self, revision: u64) -> Option<usize> {
        self.versions
            .partition_point(|version| version.revision <= revision)
            .checked_sub(1)
    }

    /// Returns the version at a revision, if the key existed.
    pub(super) fn present_at(&self, revision: u64) -> Option<(&Version<'a>, &'a Content)> {
        let version = &self.versions[self.index_at(revision)?];
        version.content.map(|content| (version, content))
    }

    /// Returns the version with exactly this revision.
    pub(super) fn version(&self, revision: u64) -> Option<&Version<'a>> {
        let index = self.index_at(revision)?;
        Some(&self.versions[index]).filter(|version| version.revision == revision)
    }

    /// Returns the first version after a revision.
    pub(super) fn next_after(&self, revision: u64) -> Option<&Version<'a>> {
        let next = self.index_at(revision).map_or(0, |index| index + 1);
        self.versions.get(next)
    }

    /// Returns true if every change after `from` up to and including `to` was seen.
    pub(super) fn is_covered(&self, from: u64, to: u64) -> bool {
        let from = from.max(self.initial_revision);
        let contains = |&(start, end): &(u64, u64)| start <= from && to <= end;
        self.covered.iter().any(contains)
    }
}

/// All revisions at which recorded keys changed, and the versions of the keys.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) history: &'a History,
    /// In the order of their names.
    pub(super) keys: Vec<Key<'a>>,
    index: HashMap<&'a str, usize>,
    /// The revisions after the initial state, in ascending order.
    pub(super) steps: Vec<Step>,
}

/// A revision and the changes that it consists of.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) revision: u64,
    /// Indices of keys, and of their versions.
    pub(super) changes: Vec<(usize, usize)>,
}

impl<'a> Model<'a> {
    /// Sorts keys, and determines the steps.
    pub(super) fn new(history: &'a History, mut keys: Vec<Key<'a>>) -> Self {
        keys.sort_by_key(|key| key.name);
        let index = keys
            .iter()
            .enumerate()
            .map(|(index, key)| (key.name, index));
        let index = index.collect();
        let mut changes = Vec::new();
        for (key_index, key) in keys.iter().enumerate() {
            for (version_index, version) in key.versions.iter().enumerate() {
                if version.revision > history.initial.revision {
                    changes.push((version.revision, key_index, version_index));
                }
            }
        }
        changes.sort_unstable();
        let mut steps: Vec<Step> = Vec::new();
        for (revision, key, version) in changes {
            match steps.last_mut() {
                Some(step) if step.revision == revision => step.changes.push((key, version)),
                _ => steps.push(Step {
                    revision,
                    changes: vec![(key, version)],
                }),
            }
        }
        Self {
            history,
            keys,
            index,
            steps,
        }
    }

    pub(super) fn key(&self, name: &str) -> Option<&Key<'a>> {
        self.index.get(name).map(|index| &self.keys[*index])
    }

    /// Returns the index of a key.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    pub(super) fn operation(&self, index: usize) -> &'a Operation {
        &self.history.operations[index]
    }

    pub(super) fn source(&self, operation: usize) -> Source {
        Source::Operation(self.history.operations[operation].id)
    }

    /// Returns the number of steps up to and including a revision.
    pub(super) fn steps_up_to(&self, revision: u64) -> usize {
        self.steps.partition_point(|step| step.revision <= revision)
    }

    /// Returns the keys in the scope of a selector, whatever their labels are.
    pub(super) fn keys_of(&self, selector: &'a Selector) -> impl Iterator<Item = &Key<'a>> {
        let first = self
            .keys
            .partition_point(|key| key.name < &*selector.prefix);
        self.keys[first..]
            .iter()
            .take_while(|key| key.name.starts_with(&selector.prefix))
            .filter(|key| selector.has_key(key.name))
    }

    /// Forgets writes with unknown outcomes that did not happen before the final state, because a watch would have shown them.
    pub(super) fn decide(&mut self, order: &Order) {
        for key in &mut self.keys {
            let undecided = std::mem::take(&mut key.undecided);
            let acknowledged = undecided
                .iter()
                .copied()
                .filter(|index| self.history.operations[*index].outcome != Outcome::Unknown);
            key.acknowledged = acknowledged.collect();
            let Some(last) = &self.history.final_state else {
                key.undecided = undecided;
                continue;
            };
            let is_possible = |index: &usize| {
                let operation = &self.history.operations[*index];
                let earlier = order.steps_before(operation.call).checked_sub(1);
                let earlier = earlier.map_or(self.history.initial.revision, |step| {
                    self.steps[step].revision
                });
                let is_candidate = |version: &Version<'_>| version.candidates.contains(index);
                // An acknowledged delete that no watch shows is a fault, which is to be found with the watch.
                let is_hidden =
                    operation.outcome != Outcome::Unknown && !key.versions.iter().any(is_candidate);
                is_hidden || !key.is_covered(earlier, last.snapshot.revision)
            };
            key.undecided = undecided.into_iter().filter(is_possible).collect();
        }
    }

    /// Returns where a version comes from.
    pub(super) fn origin(&self, version: &Version<'a>) -> Source {
        match version.owner.or(version.candidates.first().copied()) {
            Some(owner) => self.source(owner),
            None => version.seen.unwrap_or(Source::Initial),
        }
    }

    /// Returns true if undecided writes may hide a change of a key between two consecutive versions.
    pub(super) fn may_hide(&self, key: &Key<'a>, from: u64, to: u64) -> bool {
        let is_possible = |index: &usize| {
            let operation = self.operation(*index);
            operation.outcome != Outcome::Unknown || !key.is_covered(from, to)
        };
        key.undecided.iter().any(is_possible)
    }
}

pub(super) fn change_id(key: &Key<'_>, revision: u64) -> ChangeId {
    ChangeId {
        key: key.name.to_owned(),
        revision,
    }
}

/// Returns the keys that a request writes, and their new contents; none for a deletion.
pub(super) fn changes(request: &Request) -> Vec<(&str, Option<&Content>)> {
    match request {
        Request::Create { key, content } | Request::Update { key, content, .. } => {
            vec![(key, Some(content))]
        }
        Request::Delete { key, .. } => vec![(key, None)],
        Request::Transaction { changes } => changes
            .iter()
            .map(|change| (&*change.key, change.content.as_ref()))
            .collect(),
        Request::Get { .. } | Request::List { .. } => Vec::new(),
    }
}

/// Returns the change of one key by a request, if it changes that key.
pub(super) fn change_of<'a>(request: &'a Request, key: &str) -> Option<Option<&'a Content>> {
    let found = changes(request).into_iter().find(|(name, _)| *name == key);
    found.map(|(_, content)| content)
}

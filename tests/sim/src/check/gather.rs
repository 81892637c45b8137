//! Builds the model: collects the states of all keys from responses, events, notifications and the final state, and decides by
//! them which of the writes with unknown outcomes happened.

use std::collections::{BTreeMap, HashMap};

use super::history::{
    Content, EventKind, Failure, History, Outcome, Request, Selector, WatchLog, WatchStart,
};
use super::model::{Key, Model, Version, change_of, changes};
use super::violation::{ChangeId, Source, Violation};

/// The writes of a key that have no version yet, and what is known of its versions.
#[derive(Default)]
pub(super) struct KeyFacts<'a> {
    pub(super) name: &'a str,
    pub(super) versions: BTreeMap<u64, Version<'a>>,
    /// Writes that may have happened at an unknown revision.
    pub(super) open: Vec<usize>,
    /// Writes that failed.
    pub(super) failed: Vec<usize>,
    pub(super) unchanged: Vec<(usize, u64)>,
}

pub(super) struct Gatherer<'a> {
    pub(super) history: &'a History,
    pub(super) keys: Vec<KeyFacts<'a>>,
    pub(super) index: HashMap<&'a str, usize>,
    /// The operation or observation that first had a revision, and the key.
    pub(super) revisions: HashMap<u64, (Option<usize>, usize, Source)>,
    /// The revisions of acknowledged writes, in order: each with the time at which it happened at the earliest and at the latest.
    pub(super) bounds: Vec<(u64, u64, u64)>,
}

/// Builds the model of a history, whose operations are well formed.
pub(super) fn gather(history: &History) -> Result<Model<'_>, Violation> {
    let mut gatherer = Gatherer {
        history,
        keys: Vec::new(),
        index: HashMap::new(),
        revisions: HashMap::new(),
        bounds: Vec::new(),
    };
    gatherer.add_initial();
    gatherer.add_open_writes();
    gatherer.add_acknowledged_writes()?;
    gatherer.add_observed_states()?;
    gatherer.bounds = bounds(history);
    gatherer.add_observed_deletions()?;
    Ok(gatherer.finish())
}

impl<'a> Gatherer<'a> {
    pub(super) fn key(&mut self, name: &'a str) -> usize {
        *self.index.entry(name).or_insert_with(|| {
            self.keys.push(KeyFacts {
                name,
                ..KeyFacts::default()
            });
            self.keys.len() - 1
        })
    }

    fn add_initial(&mut self) {
        for object in &self.history.initial.objects {
            let key = self.key(&object.key);
            let version = Version {
                revision: object.revision,
                content: Some(&object.content),
                owner: None,
                candidates: Vec::new(),
                seen: Some(Source::Initial),
            };
            self.keys[key].versions.insert(object.revision, version);
            let revision = (None, key, Source::Initial);
            self.revisions.insert(object.revision, revision);
        }
    }

    /// Adds the writes whose revision the response does not have.
    fn add_open_writes(&mut self) {
        for (index, operation) in self.history.operations.iter().enumerate() {
            for (name, _) in changes(&operation.request) {
                let key = self.key(name);
                match &operation.outcome {
                    Outcome::Unknown | Outcome::Deleted { revision: None } => {
                        self.keys[key].open.push(index);
                    }
                    Outcome::Failed(_) => self.keys[key].failed.push(index),
                    _ => {}
                }
            }
        }
    }

    fn add_acknowledged_writes(&mut self) -> Result<(), Violation> {
        let mut acknowledged = Vec::new();
        for (index, operation) in self.history.operations.iter().enumerate() {
            let (Outcome::Written { revision }
            | Outcome::Deleted {
                revision: Some(revision),
            }) = &operation.outcome
            else {
                continue;
            };
            let precondition = match &operation.request {
                Request::Update { precondition, .. } => *precondition,
                _ => None,
            };
            let is_unchanged = precondition == Some(*revision);
            acknowledged.push((is_unchanged, operation.call, index, *revision));
        }
        acknowledged.sort_unstable();
        for (is_unchanged, _, index, revision) in acknowledged {
            let request = &self.history.operations[index].request;
            for (name, content) in changes(request) {
                let key = self.key(name);
                match content.filter(|_| self.may_change_nothing(request, key, revision)) {
                    Some(content) => self.add_unchanged(key, index, revision, content)?,
                    None if is_unchanged => {
                        let id = self.id(key, revision);
                        return Err(self.contradiction(id, key, self.source(index)));
                    }
                    None => self.add_write(key, index, revision, content)?,
                }
            }
        }
        Ok(())
    }

    pub(super) fn source(&self, operation: usize) -> Source {
        Source::Operation(self.history.operations[operation].id)
    }

    pub(super) fn id(&self, key: usize, revision: u64) -> ChangeId {
        ChangeId {
            key: self.keys[key].name.to_owned(),
            revision,
        }
    }

    /// Returns true if the response of an update may have the revision of an equal state that another write stored.
    fn may_change_nothing(&self, request: &Request, key: usize, revision: u64) -> bool {
        let Request::Update {
            precondition,
            content,
            ..
        } = request
        else {
            return false;
        };
        let facts = &self.keys[key];
        let version = facts.versions.get(&revision);
        if let Some(version) = version {
            let is_equal = version.content == Some(content);
            return is_equal && precondition.is_none_or(|precondition| precondition == revision);
        }
        precondition.is_none_or(|precondition| precondition == revision)
            && !self.open_writes(key, Some(content)).is_empty()
    }

    /// Returns the writes without a revision that may have produced a state, or a deletion.
    pub(super) fn open_writes(&self, key: usize, content: Option<&Content>) -> Vec<usize> {
        let facts = &self.keys[key];
        let operations = &self.history.operations;
        let produces =
            |index: &usize| change_of(&operations[*index].request, facts.name) == Some(content);
        facts.open.iter().copied().filter(produces).collect()
    }

    fn add_unchanged(
        &mut self,
        key: usize,
        index: usize,
        revision: u64,
        content: &'a Content,
    ) -> Result<(), Violation> {
        if !self.keys[key].versions.contains_key(&revision) {
            let mut candidates = self.open_writes(key, Some(content));
            let precondition = match &self.history.operations[index].request {
                Request::Update { precondition, .. } => *precondition,
                _ => None,
            };
            if precondition.is_none() {
                candidates.push(index);
            }
            self.insert(key, revision, Some(content), candidates, self.source(index))?;
        }
        self.keys[key].unchanged.push((index, revision));
        Ok(())
    }

    fn add_write(
        &mut self,
        key: usize,
        index: usize,
        revision: u64,
        content: Option<&'a Content>,
    ) -> Result<(), Violation> {
        let source = self.source(index);
        if let Some((owner, _, first)) = self.revisions.get(&revision)
            && *owner != Some(index)
        {
            return Err(Violation::RevisionReused {
                revision,
                first: *first,
                second: source,
            });
        }
        self.revisions.insert(revision, (Some(index), key, source));
        let version = Version {
            revision,
            content,
            owner: Some(index),
            candidates: Vec::new(),
            seen: None,
        };
        self.keys[key].versions.insert(revision, version);
        Ok(())
    }

    /// Adds a version that was only observed.
    pub(super) fn insert(
        &mut self,
        key: usize,
        revision: u64,
        content: Option<&'a Content>,
        candidates: Vec<usize>,
        source: Source,
    ) -> Result<(), Violation> {
        let is_transaction = |index: &usize| {
            let request = &self.history.operations[*index].request;
            matches!(request, Request::Transaction { .. })
        };
        // A deletion does not prove which write it is of.
        let transaction = match candidates[..] {
            [index] if content.is_some() => Some(index).filter(is_transaction),
            _ => None,
        };
        match self.revisions.get(&revision) {
            Some((owner, other, first))
                if *other != key && (owner.is_none() || *owner != transaction) =>
            {
                let other = self.keys[*other].versions.get(&revision);
                let others = other.map_or(&[][..], |version| &version.candidates);
                let shared = candidates
                    .iter()
                    .copied()
                    .find(|index| others.contains(index));
                if let Some(shared) = shared.filter(|_| owner.is_none()) {
                    self.add_rest_of_transaction(shared, revision, source);
                    return Ok(());
                }
                return Err(Violation::RevisionReused {
                    revision,
                    first: *first,
                    second: source,
                });
            }
            _ => {}
        }
        let entry = (transaction, key, source);
        self.revisions.entry(revision).or_insert(entry);
        let version = Version {
            revision,
            content,
            owner: None,
            candidates,
            seen: Some(source),
        };
        self.keys[key].versions.insert(revision, version);
        if let Some(transaction) = transaction {
            self.add_rest_of_transaction(transaction, revision, source);
        }
        Ok(())
    }

    /// A transaction of which one change is visible happened completely.
    fn add_rest_of_transaction(&mut self, index: usize, revision: u64, source: Source) {
        let history = self.history;
        for (name, content) in changes(&history.operations[index].request) {
            let key = self.key(name);
            let version = Version {
                revision,
                content,
                owner: Some(index),
                candidates: Vec::new(),
                seen: Some(source),
            };
            self.keys[key].versions.insert(revision, version);
            self.keys[key].open.retain(|open| *open != index);
        }
    }

    pub(super) fn contradiction(&self, change: ChangeId, key: usize, at: Source) -> Violation {
        match self.keys[key].versions.get(&change.revision) {
            Some(version) => Violation::WrongContent {
                at,
                other: match version.owner.or(version.candidates.first().copied()) {
                    Some(owner) => self.source(owner),
                    None => version.seen.unwrap_or(Source::Initial),
                },
                change,
            },
            None => Violation::NeverWritten { at, change },
        }
    }

    fn finish(self) -> Model<'a> {
        let history = self.history;
        let logs = history
            .watches
            .iter()
            .filter(|log| log.selector.labels.is_empty());
        let ranges = logs.filter_map(|log| Some((&log.selector, coverage(history, log)?)));
        let ranges: Vec<(&Selector, (u64, u64))> = ranges.collect();
        let keys = self.keys.into_iter().map(|facts| {
            let covered = ranges
                .iter()
                .filter(|(selector, _)| selector.has_key(facts.name));
            let mut key = Key {
                name: facts.name,
                initial_revision: history.initial.revision,
                versions: facts.versions.into_values().collect(),
                undecided: facts.open,
                acknowledged: Vec::new(),
                unchanged: facts.unchanged,
                covered: covered.map(|(_, range)| *range).collect(),
            };
            assign_owners(history, &mut key);
            key
        });
        Model::new(history, keys.collect())
    }
}

/// Returns when the revisions of acknowledged writes happened.
fn bounds(history: &History) -> Vec<(u64, u64, u64)> {
    let operations = history.operations.iter().filter_map(|operation| {
        let revision = match operation.outcome {
            Outcome::Written { revision } => revision,
            Outcome::Deleted { revision } => revision?,
            _ => return None,
        };
        // An update that changes nothing may come long after its revision.
        let is_update = matches!(operation.request, Request::Update { .. });
        let call = if is_update { 0 } else { operation.call };
        Some((revision, call, operation.returned?))
    });
    let mut bounds: Vec<(u64, u64, u64)> = operations.collect();
    bounds.sort_unstable();
    let mut earliest = 0;
    for bound in &mut bounds {
        earliest = earliest.max(bound.1);
        bound.1 = earliest;
    }
    let mut latest = u64::MAX;
    for bound in bounds.iter_mut().rev() {
        latest = latest.min(bound.2);
        bound.2 = latest;
    }
    bounds
}

/// Returns the range of revisions in which a watch shows every change of what it selects: after the first, up to and including
/// the second. None if its start is not certain.
pub(super) fn coverage(history: &History, log: &WatchLog) -> Option<(u64, u64)> {
    let mut start = match log.start {
        WatchStart::After(revision) => Some(revision),
        WatchStart::State(_) | WatchStart::Now(_) => None,
    };
    let mut last = start.unwrap_or_default();
    for event in &log.events {
        if let EventKind::Bookmark {
            ends_initial_events: true,
            revision,
        } = event.kind
        {
            start = start.or(Some(revision));
        }
        last = last.max(event.kind.revision().unwrap_or_default());
    }
    let state = history.final_state.as_ref().filter(|_| log.is_drained);
    last = last.max(state.map_or(0, |state| state.snapshot.revision));
    start.map(|start| (start, last))
}

/// Assigns the writes that are the only candidates of a version, until none is left.
fn assign_owners(history: &History, key: &mut Key<'_>) {
    let mut before = history.initial.revision;
    let mut is_before_present = false;
    for version in &mut key.versions {
        let fits = |index: &usize| match &history.operations[*index].request {
            Request::Update { precondition, .. } | Request::Delete { precondition, .. } => {
                precondition.is_none_or(|precondition| is_before_present && precondition == before)
            }
            _ => true,
        };
        let fitting = version.candidates.iter().copied().filter(fits);
        let fitting: Vec<usize> = fitting.collect();
        if !fitting.is_empty() {
            version.candidates = fitting;
        }
        before = version.revision;
        is_before_present = version.content.is_some();
    }
    loop {
        let single = |version: &&mut Version<'_>| version.candidates.len() == 1;
        let Some(version) = key.versions.iter_mut().find(single) else {
            break;
        };
        let owner = version.candidates.remove(0);
        version.owner = Some(owner);
        key.undecided.retain(|undecided| *undecided != owner);
        for version in &mut key.versions {
            version.candidates.retain(|candidate| *candidate != owner);
        }
    }
    key.undecided.retain(|index| {
        let operation = &history.operations[*index];
        !matches!(operation.outcome, Outcome::Failed(Failure::Rejected))
    });
}

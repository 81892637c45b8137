//! Linearizability of the operations on one key, including those whose effect is not certain: writes with unknown outcomes that no
//! client saw, deletes whose revision is unknown, and failures, which can be right for several reasons.
//!
//! The search is that of Wing and Gong with Lowe's memory of failed states, as in porcupine, except that it is lazy: the known
//! versions of the key have an order and bounds of time, so a version begins only when a response requires it. A read that is
//! not satisfied yet can only be satisfied by later states, so waiting excludes no order. Without undecided writes there is
//! nothing to choose, and the search takes linear time.

use std::collections::HashSet;

use super::history::{Failure, Outcome, ReadVersion, Request};
use super::model::{Key, Model, changes};
use super::order::Order;
use super::violation::{Source, Violation};

/// The maximum number of branches per key.
const BRANCHES_MAX: u64 = 200_000;

/// The present state of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Absent,
    At(u64),
    /// A write whose revision is unknown.
    Hidden,
}

/// What the response of an operation requires of the state at a moment of the operation.
#[derive(Debug, Clone, Copy)]
enum Need {
    Absent,
    Present,
    Revision(u64),
    NotRevision(u64),
}

impl Need {
    fn is_met(self, state: State) -> bool {
        match self {
            Self::Absent => state == State::Absent,
            Self::Present => state != State::Absent,
            Self::Revision(revision) => state == State::At(revision),
            Self::NotRevision(revision) => state != State::At(revision),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Moment {
    /// A read, or a failed write, begins.
    Call(usize),
    /// It ends.
    Return(usize),
    /// A delete without a revision is acknowledged.
    Acknowledged(usize),
    /// The version with this index must have begun.
    Deadline(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Branch {
    moment: usize,
    /// The index of the next version.
    next: usize,
    state: State,
    /// Undecided writes that happened.
    used: Vec<usize>,
    /// Reads that have begun and are not satisfied.
    pending: Vec<usize>,
}

/// What can happen next.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// The next version begins, written by this operation if there are several candidates.
    Version(Option<usize>),
    /// An undecided write happens.
    Undecided(usize),
}

struct Search<'m, 'a> {
    model: &'m Model<'a>,
    order: &'m Order,
    key: &'m Key<'a>,
    needs: &'m [(usize, Need)],
    moments: Vec<(u64, u8, Moment)>,
    /// The step of each version; none if it is of the initial state.
    steps: Vec<Option<usize>>,
    failed: HashSet<Branch>,
    branches: u64,
    /// The furthest branch that failed.
    furthest: Option<Branch>,
}

/// Checks the operations on each key. Returns the number of branches.
pub(super) fn check_keys(model: &Model<'_>, order: &Order) -> Result<u64, Violation> {
    let mut needs: Vec<Vec<(usize, Need)>> = vec![Vec::new(); model.keys.len()];
    for index in 0..model.history.operations.len() {
        if let Some((key, need)) = need(model, index)
            && let Some(position) = model.position(key)
        {
            needs[position].push((index, need));
        }
    }
    let mut branches = 0;
    for (key, needs) in model.keys.iter().zip(&mut needs) {
        for &(index, revision) in &key.unchanged {
            needs.push((index, Need::Revision(revision)));
        }
        branches += Search::new(model, order, key, needs).check()?;
    }
    Ok(branches)
}

/// Returns what the outcome of an operation requires of a key.
fn need<'a>(model: &Model<'a>, index: usize) -> Option<(&'a str, Need)> {
    let operation = model.operation(index);
    let precondition = match &operation.request {
        Request::Update { precondition, .. } | Request::Delete { precondition, .. } => {
            *precondition
        }
        Request::Get { version, .. } if *version != ReadVersion::Consistent => return None,
        Request::List { .. } | Request::Transaction { .. } => return None,
        _ => None,
    };
    let key = match &operation.request {
        Request::Get { key, .. } => &**key,
        request => changes(request).first()?.0,
    };
    let need = match &operation.outcome {
        Outcome::Found(object) => Need::Revision(object.revision),
        Outcome::Failed(Failure::NotFound) => Need::Absent,
        Outcome::Failed(Failure::AlreadyExists) => Need::Present,
        Outcome::Failed(Failure::Conflict) => Need::NotRevision(precondition?),
        _ => return None,
    };
    Some((key, need))
}

impl<'m, 'a> Search<'m, 'a> {
    fn new(
        model: &'m Model<'a>,
        order: &'m Order,
        key: &'m Key<'a>,
        needs: &'m [(usize, Need)],
    ) -> Self {
        let steps = key.versions.iter().map(|version| {
            let step = model.steps_up_to(version.revision).checked_sub(1);
            step.filter(|_| model.history.initial.revision < version.revision)
        });
        let mut search = Self {
            model,
            order,
            key,
            needs,
            moments: Vec::new(),
            steps: steps.collect(),
            failed: HashSet::new(),
            branches: 0,
            furthest: None,
        };
        search.collect_moments();
        search
    }

    fn collect_moments(&mut self) {
        for (need, &(index, _)) in self.needs.iter().enumerate() {
            let operation = self.model.operation(index);
            self.moments.push((operation.call, 0, Moment::Call(need)));
            let returned = operation.returned.unwrap_or(u64::MAX);
            self.moments.push((returned, 2, Moment::Return(need)));
        }
        let is_candidate = |index: usize| {
            let mut versions = self.key.versions.iter();
            versions.any(|version| version.candidates.contains(&index))
        };
        for &index in &self.key.acknowledged {
            // A delete that may be one of several versions must be one of them, or happen unseen.
            if let Some(returned) = self.model.operation(index).returned {
                let order = if is_candidate(index) { 2 } else { 1 };
                self.moments
                    .push((returned, order, Moment::Acknowledged(index)));
            }
        }
        for (version, step) in self.steps.iter().enumerate() {
            if let Some(step) = step {
                let time = self.order.latest[*step].time;
                self.moments.push((time, 1, Moment::Deadline(version)));
            }
        }
        self.moments.sort_by_key(|(time, order, _)| (*time, *order));
    }

    fn check(mut self) -> Result<u64, Violation> {
        let next = self.steps.iter().take_while(|step| step.is_none()).count();
        let initial = next.checked_sub(1).map(|last| &self.key.versions[last]);
        let branch = Branch {
            moment: 0,
            next,
            state: initial.map_or(State::Absent, |version| State::At(version.revision)),
            used: Vec::new(),
            pending: Vec::new(),
        };
        if self.run(branch) {
            return Ok(self.branches);
        }
        if self.branches >= BRANCHES_MAX {
            return Err(Violation::Inconclusive {
                key: self.key.name.to_owned(),
                steps: self.branches,
            });
        }
        Err(self.violation())
    }

    /// Returns true if an order of all later operations exists.
    fn run(&mut self, mut branch: Branch) -> bool {
        while let Some(&(time, _, moment)) = self.moments.get(branch.moment) {
            if self.is_reached(&mut branch, moment) {
                branch.moment += 1;
                continue;
            }
            let choices = self.choices(&branch, time);
            if let [choice] = choices[..] {
                self.apply(&mut branch, choice);
                continue;
            }
            if self.branches >= BRANCHES_MAX || self.failed.contains(&branch) {
                return false;
            }
            for choice in choices {
                self.branches += 1;
                let mut next = branch.clone();
                self.apply(&mut next, choice);
                if self.run(next) {
                    return true;
                }
            }
            let furthest = self.furthest.as_ref();
            if furthest.is_none_or(|furthest| furthest.moment < branch.moment) {
                self.furthest = Some(branch.clone());
            }
            self.failed.insert(branch);
            return false;
        }
        true
    }

    /// Returns true if the requirement of a moment is met.
    fn is_reached(&self, branch: &mut Branch, moment: Moment) -> bool {
        match moment {
            Moment::Call(need) => {
                if !self.needs[need].1.is_met(branch.state) {
                    branch.pending.push(need);
                }
                true
            }
            Moment::Return(need) => !branch.pending.contains(&need),
            Moment::Acknowledged(index) => branch.used.contains(&index),
            Moment::Deadline(version) => version < branch.next,
        }
    }

    fn choices(&self, branch: &Branch, now: u64) -> Vec<Choice> {
        let mut choices = Vec::new();
        if let Some(version) = self.key.versions.get(branch.next) {
            let step = self.steps[branch.next];
            let is_possible = step.is_none_or(|step| self.order.earliest[step].time <= now);
            if is_possible && let Some(owner) = version.owner {
                if self.is_allowed(owner, branch.state) {
                    choices.push(Choice::Version(None));
                }
            } else if is_possible {
                let candidates = version.candidates.iter().copied();
                let candidates = candidates.filter(|index| self.is_open(branch, *index, now));
                let candidates = self.distinct(candidates.collect());
                choices.extend(
                    candidates
                        .into_iter()
                        .map(|index| Choice::Version(Some(index))),
                );
            }
        }
        let revision = |index: usize| self.key.versions.get(index).map(|v| v.revision);
        let before = branch
            .next
            .checked_sub(1)
            .and_then(revision)
            .unwrap_or_default();
        let after = revision(branch.next).unwrap_or(u64::MAX);
        let undecided = self.key.undecided.iter().copied().filter(|index| {
            let is_acknowledged = self.model.operation(*index).outcome != Outcome::Unknown;
            let is_seen = || self.is_covered(*index, before, after);
            (is_acknowledged || !is_seen()) && self.is_open(branch, *index, now)
        });
        let undecided = self.distinct(undecided.collect());
        choices.extend(undecided.into_iter().map(Choice::Undecided));
        choices
    }

    /// Returns one of each kind of writes that have the same effect on the search: those with unknown outcomes and the same
    /// precondition. Of these the one that began first can happen whenever another can.
    fn distinct(&self, mut writes: Vec<usize>) -> Vec<usize> {
        writes.sort_by_key(|index| self.model.operation(*index).call);
        let mut kinds = HashSet::new();
        writes.retain(|index| {
            let operation = self.model.operation(*index);
            let request = &operation.request;
            let is_transaction = matches!(request, Request::Transaction { .. });
            let change = super::model::change_of(request, self.key.name);
            let is_put = change.flatten().is_some();
            let kind = (is_transaction, is_put, request.required_revision());
            operation.outcome != Outcome::Unknown || kinds.insert(kind)
        });
        writes
    }

    /// Returns true if a watch would have shown a write between two versions.
    fn is_covered(&self, write: usize, before: u64, after: u64) -> bool {
        let call = self.model.operation(write).call;
        let earlier = self.order.steps_before(call).checked_sub(1);
        let earlier = earlier.map_or(0, |step| self.model.steps[step].revision);
        let last = self.model.history.final_state.as_ref();
        let after = match (after, last) {
            // What happens after the final state affects nothing.
            (u64::MAX, Some(last)) => last.snapshot.revision,
            _ => after,
        };
        self.key.is_covered(before.max(earlier), after)
    }

    fn is_open(&self, branch: &Branch, index: usize, now: u64) -> bool {
        let operation = self.model.operation(index);
        let is_over = operation.outcome != Outcome::Unknown
            && operation.returned.is_some_and(|returned| returned < now);
        operation.call <= now
            && !is_over
            && !branch.used.contains(&index)
            && self.is_allowed(index, branch.state)
    }

    /// Returns true if a write can succeed in a state.
    fn is_allowed(&self, index: usize, state: State) -> bool {
        match &self.model.operation(index).request {
            Request::Create { .. } => state == State::Absent,
            Request::Update { precondition, .. } | Request::Delete { precondition, .. } => {
                match precondition {
                    // The revision of a hidden write may be that which a client learned in a way that was not recorded.
                    Some(revision) if state == State::Hidden => {
                        self.key.version(*revision).is_none()
                    }
                    Some(revision) => state == State::At(*revision),
                    None => state != State::Absent,
                }
            }
            _ => true,
        }
    }

    fn apply(&self, branch: &mut Branch, choice: Choice) {
        let (is_present, state) = match choice {
            Choice::Version(writer) => {
                let version = &self.key.versions[branch.next];
                branch.next += 1;
                branch.used.extend(writer);
                (version.content.is_some(), State::At(version.revision))
            }
            Choice::Undecided(index) => {
                branch.used.push(index);
                let request = &self.model.operation(index).request;
                let change = super::model::change_of(request, self.key.name);
                (change.flatten().is_some(), State::Hidden)
            }
        };
        branch.used.sort_unstable();
        branch.state = if is_present { state } else { State::Absent };
        let state = branch.state;
        branch
            .pending
            .retain(|need| !self.needs[*need].1.is_met(state));
    }

    fn violation(&self) -> Violation {
        let unexplained = |operation: Source| Violation::NotLinearizable {
            key: self.key.name.to_owned(),
            operation,
        };
        let Some(branch) = &self.furthest else {
            return unexplained(Source::Initial);
        };
        match self.moments[branch.moment].2 {
            Moment::Call(need) => unexplained(self.model.source(self.needs[need].0)),
            Moment::Return(need) => self.unmet(branch, need),
            Moment::Acknowledged(index) => Violation::PreconditionIgnored {
                write: self.model.source(index),
                reason: format!("{} did not exist, or had another revision", self.key.name),
            },
            Moment::Deadline(_) => self.stuck(branch),
        }
    }

    /// Describes a read or a failure that no state explains.
    fn unmet(&self, branch: &Branch, need: usize) -> Violation {
        let (index, need) = self.needs[need];
        let operation = self.model.source(index);
        let current = branch
            .next
            .checked_sub(1)
            .map(|last| &self.key.versions[last]);
        if let Request::Get { .. } = self.model.operation(index).request {
            return Violation::StaleRead {
                read: operation,
                newer: current.map_or(Source::Initial, |version| self.model.origin(version)),
            };
        }
        let key = self.key.name;
        let reason = match need {
            Need::Absent => format!("{key} existed during the whole request"),
            Need::Present => format!("{key} did not exist at any moment of the request"),
            Need::Revision(revision) | Need::NotRevision(revision) => {
                format!("the precondition on revision {revision} of {key} suggests another outcome")
            }
        };
        Violation::UnjustifiedFailure { operation, reason }
    }

    /// Describes a version that cannot begin in the state before it.
    fn stuck(&self, branch: &Branch) -> Violation {
        let key = self.key.name;
        let version = &self.key.versions[branch.next];
        let write = self.model.origin(version);
        let reason = match (branch.state, version.owner) {
            (State::Absent, _) => format!("{key} did not exist"),
            (State::At(revision), _) => format!("{key} existed, with revision {revision}"),
            (State::Hidden, _) => format!("{key} existed"),
        };
        Violation::PreconditionIgnored { write, reason }
    }
}

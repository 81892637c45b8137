//! Real time and the order of revisions: when each revision can have begun to exist, at the earliest and at the latest.
//!
//! Revisions are totally ordered, so each constraint is a bound: a write happens after its call, and before its response or the first
//! time that a client sees it; a change that a consistent read does not show happens after the read began. Moments for all revisions
//! exist if and only if no lower bound of a revision exceeds an upper bound of it or of a later one.

use super::history::{EventKind, NotificationKind, Outcome, ReadVersion, Request};
use super::model::{Model, Version};
use super::violation::{Source, Violation};

/// A bound, and the operation or event that it follows from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) time: u64,
    pub(super) source: Source,
    /// True if the source is the write itself.
    is_write: bool,
}

/// The bounds of each step of the model.
#[derive(Debug)]
pub(super) struct Order {
    /// Ascending.
    pub(super) earliest: Vec<Bound>,
    /// Ascending.
    pub(super) latest: Vec<Bound>,
}

impl Order {
    /// Returns the number of steps that happened before a moment, in every order.
    pub(super) fn steps_before(&self, time: u64) -> usize {
        self.latest.partition_point(|bound| bound.time < time)
    }

    /// Returns the number of steps that can have happened at a moment.
    pub(super) fn steps_possible_at(&self, time: u64) -> usize {
        self.earliest.partition_point(|bound| bound.time <= time)
    }
}

struct Bounds<'m, 'a> {
    model: &'m Model<'a>,
    lower: Vec<Option<Bound>>,
    upper: Vec<Option<Bound>>,
}

/// Determines the bounds, and checks that they do not contradict each other.
pub(super) fn check_order(model: &Model<'_>) -> Result<Order, Violation> {
    let count = model.steps.len();
    let mut bounds = Bounds {
        model,
        lower: vec![None; count],
        upper: vec![None; count],
    };
    bounds.add_writes()?;
    bounds.add_operations();
    bounds.add_events();
    bounds.check()
}

impl Bounds<'_, '_> {
    fn add_lower(&mut self, step: usize, bound: Bound) {
        if let Some(lower) = self.lower.get_mut(step)
            && lower.is_none_or(|lower| lower.time < bound.time)
        {
            *lower = Some(bound);
        }
    }

    fn add_upper(&mut self, step: usize, bound: Bound) {
        if let Some(upper) = self.upper.get_mut(step)
            && upper.is_none_or(|upper| bound.time < upper.time)
        {
            *upper = Some(bound);
        }
    }

    /// A client sees a revision.
    fn add_seen(&mut self, revision: u64, time: u64, source: Source) {
        if let Some(step) = self.model.steps_up_to(revision).checked_sub(1) {
            self.add_upper(
                step,
                Bound {
                    time,
                    source,
                    is_write: false,
                },
            );
        }
    }

    /// A consistent read that began at a moment does not show the changes after a revision.
    fn add_unseen_after(&mut self, revision: u64, time: u64, source: Source) {
        let step = self.model.steps_up_to(revision);
        let bound = Bound {
            time,
            source,
            is_write: false,
        };
        self.add_lower(step, bound);
    }

    fn add_writes(&mut self) -> Result<(), Violation> {
        let model = self.model;
        for (index, step) in model.steps.iter().enumerate() {
            for &(key, version) in &step.changes {
                let key = &model.keys[key];
                let version = &key.versions[version];
                if version.owner.is_none() && version.candidates.is_empty() {
                    return Err(Violation::NeverWritten {
                        at: version.seen.unwrap_or(Source::Initial),
                        change: super::model::change_id(key, version.revision),
                    });
                }
                self.add_write(index, version);
            }
        }
        Ok(())
    }

    fn add_write(&mut self, step: usize, version: &Version<'_>) {
        let model = self.model;
        let writers = version.owner.iter().chain(&version.candidates).copied();
        let bound = |index: usize, time: u64| Bound {
            time,
            source: model.source(index),
            is_write: true,
        };
        let first = writers
            .clone()
            .min_by_key(|index| model.operation(*index).call);
        if let Some(first) = first {
            self.add_lower(step, bound(first, model.operation(first).call));
        }
        let returned = |index: usize| {
            let operation = model.operation(index);
            let is_unknown = operation.outcome == Outcome::Unknown;
            operation.returned.filter(|_| !is_unknown)
        };
        let ends: Option<Vec<(u64, usize)>> = writers
            .map(|index| returned(index).map(|time| (time, index)))
            .collect();
        if let Some((time, index)) = ends.unwrap_or_default().into_iter().max() {
            self.add_upper(step, bound(index, time));
        }
    }

    fn add_operations(&mut self) {
        let model = self.model;
        for operation in &model.history.operations {
            let Some(returned) = operation.returned else {
                continue;
            };
            let source = Source::Operation(operation.id);
            match (&operation.request, &operation.outcome) {
                (Request::Get { version, .. }, Outcome::Found(object)) => {
                    self.add_seen(object.revision, returned, source);
                    if *version == ReadVersion::Consistent {
                        self.add_replaced_after(
                            &object.key,
                            object.revision,
                            operation.call,
                            source,
                        );
                    }
                }
                (
                    Request::List {
                        version, continues, ..
                    },
                    Outcome::Listed(page),
                ) => {
                    self.add_seen(page.revision, returned, source);
                    if *version == ReadVersion::Consistent && continues.is_none() {
                        self.add_unseen_after(page.revision, operation.call, source);
                    }
                }
                _ => {}
            }
        }
        for key in &model.keys {
            for &(index, revision) in &key.unchanged {
                let operation = model.operation(index);
                let source = model.source(index);
                self.add_seen(revision, operation.returned.unwrap_or(u64::MAX), source);
                self.add_replaced_after(key.name, revision, operation.call, source);
            }
        }
        if let Some(state) = &model.history.final_state {
            self.add_seen(state.snapshot.revision, state.returned, Source::Final);
            self.add_unseen_after(state.snapshot.revision, state.call, Source::Final);
        }
    }

    /// The version of a key at `revision` is current at `time` or later.
    fn add_replaced_after(&mut self, key: &str, revision: u64, time: u64, source: Source) {
        let key = self.model.key(key);
        if let Some(next) = key.and_then(|key| key.next_after(revision)) {
            self.add_unseen_after(next.revision - 1, time, source);
        }
    }

    fn add_events(&mut self) {
        let history = self.model.history;
        for log in &history.watches {
            for (index, event) in log.events.iter().enumerate() {
                let watch = log.id;
                if let EventKind::Error { .. } = event.kind {
                    continue;
                }
                let revision = event.kind.revision().unwrap_or_default();
                self.add_seen(revision, event.time, Source::Event { watch, index });
            }
        }
        for log in &history.informers {
            for (index, notification) in log.notifications.iter().enumerate() {
                let informer = log.id;
                let revision = match &notification.kind {
                    NotificationKind::Deleted {
                        is_final_state_unknown: true,
                        ..
                    } => continue,
                    kind => kind.object().revision,
                };
                let source = Source::Notification { informer, index };
                self.add_seen(revision, notification.time, source);
            }
        }
    }

    fn check(self) -> Result<Order, Violation> {
        let mut latest = Vec::with_capacity(self.upper.len());
        let mut bound = Bound {
            time: u64::MAX,
            source: Source::Final,
            is_write: false,
        };
        for upper in self.upper.iter().rev().copied() {
            if let Some(upper) = upper.filter(|upper| upper.time < bound.time) {
                bound = upper;
            }
            latest.push(bound);
        }
        latest.reverse();
        let mut earliest = Vec::with_capacity(self.lower.len());
        bound.time = 0;
        bound.source = Source::Initial;
        for (step, lower) in self.lower.iter().copied().enumerate() {
            if let Some(lower) = lower {
                if latest[step].time < lower.time {
                    return Err(self.contradiction(step, lower, latest[step]));
                }
                if bound.time < lower.time {
                    bound = lower;
                }
            }
            earliest.push(bound);
        }
        Ok(Order { earliest, latest })
    }

    fn contradiction(&self, step: usize, lower: Bound, upper: Bound) -> Violation {
        match (lower.is_write, upper.is_write) {
            (true, true) => Violation::RevisionWentBack {
                earlier: upper.source,
                later: lower.source,
            },
            (true, false) => Violation::FutureRevision {
                at: upper.source,
                revision: self.model.steps[step].revision,
                write: lower.source,
            },
            (false, _) => Violation::StaleRead {
                read: lower.source,
                newer: upper.source,
            },
        }
    }
}

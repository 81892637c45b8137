//! Adds to the model what clients saw: states in responses, events, notifications and the final state, and deletions in events.

use super::gather::Gatherer;
use super::history::{Content, EventKind, NotificationKind, Object, Outcome, Selector};
use super::model::change_of;
use super::violation::{Source, Violation};

impl<'a> Gatherer<'a> {
    fn observe_state(&mut self, object: &'a Object, at: Source) -> Result<(), Violation> {
        let key = self.key(&object.key);
        let revision = object.revision;
        if let Some(version) = self.keys[key].versions.get_mut(&revision) {
            if version.content == Some(&object.content) {
                version.seen.get_or_insert(at);
                return Ok(());
            }
            return Err(self.contradiction(self.id(key, revision), key, at));
        }
        let candidates = self.open_writes(key, Some(&object.content));
        if candidates.is_empty() {
            return Err(self.never_written(key, object, at));
        }
        self.insert(key, revision, Some(&object.content), candidates, at)
    }

    fn never_written(&self, key: usize, object: &Object, at: Source) -> Violation {
        let facts = &self.keys[key];
        let change = self.id(key, object.revision);
        let operations = &self.history.operations;
        let failed = facts.failed.iter().copied().find(|index| {
            change_of(&operations[*index].request, facts.name) == Some(Some(&object.content))
        });
        match failed {
            Some(failed) => Violation::FailedWriteHappened {
                at,
                change,
                write: self.source(failed),
            },
            None => Violation::NeverWritten { at, change },
        }
    }

    pub(super) fn add_observed_states(&mut self) -> Result<(), Violation> {
        let history = self.history;
        for operation in &history.operations {
            let at = Source::Operation(operation.id);
            let objects = match &operation.outcome {
                Outcome::Found(object) => std::slice::from_ref(object),
                Outcome::Listed(page) => &page.objects,
                _ => continue,
            };
            for object in objects {
                self.observe_state(object, at)?;
            }
        }
        for object in history
            .final_state
            .iter()
            .flat_map(|state| &state.snapshot.objects)
        {
            self.observe_state(object, Source::Final)?;
        }
        for watch in &history.watches {
            for (index, event) in watch.events.iter().enumerate() {
                if let EventKind::Added(object) | EventKind::Modified(object) = &event.kind {
                    let watch = watch.id;
                    self.observe_state(object, Source::Event { watch, index })?;
                }
            }
        }
        for informer in &history.informers {
            for (index, notification) in informer.notifications.iter().enumerate() {
                use NotificationKind::{Added, Updated};
                if let Added(object) | Updated(object) = &notification.kind {
                    let informer = informer.id;
                    self.observe_state(object, Source::Notification { informer, index })?;
                }
            }
            for object in informer.store.iter().flatten() {
                self.observe_state(object, Source::Store(informer.id))?;
            }
        }
        Ok(())
    }

    /// Adds deletions: first those that are certain, because no selector of labels can be the reason of the event.
    pub(super) fn add_observed_deletions(&mut self) -> Result<(), Violation> {
        let history = self.history;
        let mut deletions: Vec<(bool, &Selector, &Object, (Source, u64))> = Vec::new();
        for log in &history.watches {
            for (index, event) in log.events.iter().enumerate() {
                if let EventKind::Deleted(object) = &event.kind {
                    let at = Source::Event {
                        watch: log.id,
                        index,
                    };
                    let has_labels = !log.selector.labels.is_empty();
                    deletions.push((has_labels, &log.selector, object, (at, event.time)));
                }
            }
        }
        for log in &history.informers {
            for (index, notification) in log.notifications.iter().enumerate() {
                if let NotificationKind::Deleted {
                    object,
                    is_final_state_unknown: false,
                } = &notification.kind
                {
                    let informer = log.id;
                    let at = Source::Notification { informer, index };
                    deletions.push((true, &log.selector, object, (at, notification.time)));
                }
            }
        }
        deletions.sort_by_key(|(has_labels, ..)| *has_labels);
        for (has_labels, selector, object, at) in deletions {
            self.observe_deletion(selector, has_labels, object, at)?;
        }
        Ok(())
    }

    fn observe_deletion(
        &mut self,
        selector: &Selector,
        has_labels: bool,
        object: &'a Object,
        (at, time): (Source, u64),
    ) -> Result<(), Violation> {
        let key = self.key(&object.key);
        if let Some(version) = self.keys[key].versions.get_mut(&object.revision) {
            // Whether the type of the event is right is checked with the watch.
            version.seen.get_or_insert(at);
            return Ok(());
        }
        let deletes = self.open_writes_at(key, object.revision, time, |content| content.is_none());
        let puts = self.open_writes_at(key, object.revision, time, |content| {
            let key = &object.key;
            has_labels && content.is_some_and(|content| !selector.matches(key, content))
        });
        match (&deletes[..], &puts[..]) {
            ([], []) => Err(Violation::NeverWritten {
                at,
                change: self.id(key, object.revision),
            }),
            (_, []) => self.insert(key, object.revision, None, deletes, at),
            ([], [put]) => {
                let content = change_of(&self.history.operations[*put].request, &object.key);
                self.insert(key, object.revision, content.flatten(), puts, at)
            }
            // The object was deleted or changed: all these writes remain undecided.
            _ => Ok(()),
        }
    }

    /// Returns the writes without a revision that may have changed a key at a revision, which was seen at a time.
    fn open_writes_at(
        &self,
        key: usize,
        revision: u64,
        time: u64,
        is_possible: impl Fn(Option<&Content>) -> bool,
    ) -> Vec<usize> {
        let before = self.bounds.partition_point(|(other, ..)| *other < revision);
        let earliest = before
            .checked_sub(1)
            .map_or(0, |index| self.bounds[index].1);
        let latest = self
            .bounds
            .get(before)
            .map_or(u64::MAX, |(_, _, latest)| *latest);
        let facts = &self.keys[key];
        let writes = facts.open.iter().copied().filter(|index| {
            let operation = &self.history.operations[*index];
            let is_over = operation.outcome != Outcome::Unknown
                && operation
                    .returned
                    .is_some_and(|returned| returned < earliest);
            let change = change_of(&operation.request, facts.name);
            operation.call <= time.min(latest) && !is_over && change.is_some_and(&is_possible)
        });
        writes.collect()
    }
}

//! The events of a watch after its initial ones, one after the other, against those that it must send.

use std::collections::HashMap;

use super::history::{EventKind, Object, WatchLog, WatchStart};
use super::model::{Model, change_id};
use super::violation::{Source, Violation};
use super::watch::{Expected, Type};

/// How a watch ended.
#[derive(Debug)]
pub(super) struct End {
    /// The index of the first expected event after the initial state.
    pub(super) first: Option<usize>,
    /// The expected events that were not delivered.
    pub(super) missing: Vec<usize>,
    /// The revision of the last event or bookmark.
    pub(super) revision: u64,
}

/// Compares the events after the initial state with the expected ones.
pub(super) struct Live<'l, 'm, 'a> {
    log: &'l WatchLog,
    expected: &'l [Expected<'m, 'a>],
    first: usize,
    /// The expected events before this one were delivered.
    next: usize,
    /// The first event after the initial ones.
    begin: usize,
    /// The watch shows no change at or below this revision.
    floor: u64,
    is_delivered: Vec<bool>,
    delivered: HashMap<(&'l str, u64), usize>,
    last: Option<(u64, usize)>,
    bookmark: Option<(u64, usize)>,
}

impl<'l, 'm, 'a> Live<'l, 'm, 'a> {
    pub(super) fn new(
        log: &'l WatchLog,
        expected: &'l [Expected<'m, 'a>],
        first: usize,
        begin: usize,
        floor: u64,
    ) -> Self {
        let initial = log.events[..begin].iter().enumerate();
        let initial = initial.filter_map(|(index, event)| {
            let object = event.kind.object()?;
            Some(((&*object.key, object.revision), index))
        });
        Self {
            log,
            expected,
            first,
            next: first,
            begin,
            floor,
            is_delivered: vec![false; expected.len()],
            delivered: initial.collect(),
            last: None,
            bookmark: None,
        }
    }

    fn at(&self, index: usize) -> Source {
        Source::Event {
            watch: self.log.id,
            index,
        }
    }

    /// Returns the index of the event that breaks a property, and the violation.
    pub(super) fn run(mut self, model: &Model<'_>) -> Result<End, (usize, Violation)> {
        for index in self.begin..self.log.events.len() {
            let kind = &self.log.events[index].kind;
            let checked = match (Type::of(kind), kind) {
                (Some((found, object)), _) => self.event(model, index, found, object),
                (None, EventKind::Bookmark { revision, .. }) => self.bookmark(index, *revision),
                (None, _) => Ok(()),
            };
            checked.map_err(|violation| (index, violation))?;
        }
        let missing = (self.next..self.expected.len()).filter(|index| !self.is_delivered[*index]);
        let last = self
            .last
            .max(self.bookmark)
            .map_or(0, |(revision, _)| revision);
        Ok(End {
            first: Some(self.first),
            missing: missing.collect(),
            revision: last,
        })
    }

    fn event(
        &mut self,
        model: &Model<'_>,
        index: usize,
        found: Type,
        object: &'l Object,
    ) -> Result<(), Violation> {
        let event = self.at(index);
        let revision = object.revision;
        let selector = &self.log.selector;
        let is_excluded = match found {
            Type::Deleted => !selector.has_key(&object.key),
            _ => !selector.matches(&object.key, &object.content),
        };
        let change = super::violation::ChangeId {
            key: object.key.clone(),
            revision,
        };
        if is_excluded {
            return Err(Violation::Filter { event, change });
        }
        if let Some(first) = self.delivered.insert((&object.key, revision), index) {
            let first = self.at(first);
            return Err(Violation::Unique { event, first });
        }
        self.check_position(index, revision)?;
        self.skip_before(index, revision)?;
        let group = self.expected[self.next..]
            .iter()
            .take_while(|e| e.revision == revision);
        let Some(offset) = group.clone().position(|e| e.key.name == object.key) else {
            let key = model.key(&object.key);
            if key.is_some_and(|key| model.may_hide(key, 0, revision)) {
                // A change that is not decided.
                self.last = Some((revision, index));
                return Ok(());
            }
            return Err(Violation::Filter { event, change });
        };
        self.is_delivered[self.next + offset] = true;
        self.last = Some((revision, index));
        let expected = &self.expected[self.next + offset];
        check_type(event, change, expected, found, object)
    }

    fn check_position(&self, index: usize, revision: u64) -> Result<(), Violation> {
        let event = self.at(index);
        if let Some((bookmark, before)) =
            self.bookmark.filter(|(bookmark, _)| revision <= *bookmark)
        {
            return Err(Violation::Bookmarkable {
                bookmark: self.at(before),
                event,
                reason: format!("revision {revision} was sent after bookmark {bookmark}"),
            });
        }
        if let Some((_, before)) = self.last.filter(|(last, _)| revision < *last) {
            let before = self.at(before);
            return Err(Violation::Ordered { event, before });
        }
        if self.floor < revision {
            return Ok(());
        }
        match self.log.start {
            WatchStart::After(_) | WatchStart::Now(_) => Err(Violation::Resumable {
                event,
                start: self.floor,
                expected: "it is not after the start".to_owned(),
            }),
            WatchStart::State(_) => Err(Violation::Ordered {
                event,
                before: self.at(self.begin.saturating_sub(1)),
            }),
        }
    }

    /// Proceeds to a revision. All expected events before it must have been delivered.
    fn skip_before(&mut self, index: usize, revision: u64) -> Result<(), Violation> {
        if let Some((missing, is_split)) = self.advance(revision) {
            let event = self.at(index);
            let watch = Source::Watch(self.log.id);
            let change = change_id(missing.key, missing.revision);
            if let Some(late) = self.late(index, missing) {
                return Err(Violation::Ordered {
                    event: late,
                    before: event,
                });
            }
            return Err(match self.log.start {
                _ if is_split => Violation::Atomic {
                    watch,
                    missing: change,
                },
                WatchStart::After(start) if self.last.is_none() && self.bookmark.is_none() => {
                    Violation::Resumable {
                        event,
                        start,
                        expected: format!("{change} is missing"),
                    }
                }
                _ => Violation::Reliable {
                    watch,
                    missing: change,
                    after: event,
                },
            });
        }
        Ok(())
    }

    /// Returns the event that is missing before an index if it follows later.
    fn late(&self, index: usize, missing: &Expected<'_, '_>) -> Option<Source> {
        let is_missing = |event: &super::history::WatchEvent| {
            let object = event.kind.object();
            object.is_some_and(|object| {
                object.key == missing.key.name && object.revision == missing.revision
            })
        };
        let later = self.log.events[index..].iter().position(is_missing)?;
        Some(self.at(index + later))
    }

    /// Moves to the first expected event with at least this revision. Returns an event before it that was not delivered, and
    /// whether another one of the same revision was.
    fn advance(&mut self, revision: u64) -> Option<(&'l Expected<'m, 'a>, bool)> {
        while let Some(expected) = self.expected.get(self.next) {
            if revision <= expected.revision {
                break;
            }
            if !self.is_delivered[self.next] && expected.is_due {
                let is_split = self.last.is_some_and(|(last, _)| last == expected.revision);
                return Some((expected, is_split));
            }
            self.next += 1;
        }
        None
    }

    fn bookmark(&mut self, index: usize, revision: u64) -> Result<(), Violation> {
        let bookmark = self.at(index);
        let before = self.last.max(self.bookmark);
        if let Some((last, before)) = before.filter(|(last, _)| revision < *last) {
            return Err(Violation::Bookmarkable {
                bookmark,
                event: self.at(before),
                reason: format!("revision {last} was sent before bookmark {revision}"),
            });
        }
        if let Some((missing, is_split)) = self.advance(revision + 1) {
            let change = change_id(missing.key, missing.revision);
            return Err(if is_split {
                Violation::Atomic {
                    watch: Source::Watch(self.log.id),
                    missing: change,
                }
            } else {
                Violation::Bookmarkable {
                    bookmark,
                    event: self.late(index, missing).unwrap_or(missing.origin),
                    reason: format!("the event of {change} was not sent before"),
                }
            });
        }
        self.bookmark = Some((revision, index));
        Ok(())
    }
}

fn check_type(
    event: Source,
    change: super::violation::ChangeId,
    expected: &Expected<'_, '_>,
    found: Type,
    object: &Object,
) -> Result<(), Violation> {
    if !expected.is_certain {
        return Ok(());
    }
    if found == expected.kind {
        let is_right = found != Type::Deleted || expected.previous == Some(&object.content);
        return if is_right {
            Ok(())
        } else {
            Err(Violation::PrevKV { event, change })
        };
    }
    let name = found.name().to_owned();
    let expected_name = expected.kind.name().to_owned();
    Err(match (found, expected.kind) {
        (Type::Deleted, _) | (_, Type::Deleted) => Violation::EventType {
            event,
            found: name,
            expected: expected_name,
        },
        _ => Violation::IsCreate {
            event,
            found: name,
            expected: expected_name,
        },
    })
}

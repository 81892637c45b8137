//! The events that one watcher of a churn received, checked against the log: none lost, duplicated,
//! out of order or unknown; and the resulting state, which must equal a list.

use std::collections::HashMap;
use std::time::Duration;

use super::write_log::{WriteId, WriteLog};
use crate::decode::{List, Malformed};
use crate::frames::{Frame, Kind};

/// Bits of a write whose event, and the event of whose deletion, was received.
const WRITTEN: u8 = 1;
const DELETED: u8 = 2;

/// The objects by number, each with its last write and version.
pub(super) type State = HashMap<u32, (u32, u64)>;

/// How the events of a watcher, or of all, differ from what happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Acknowledged changes that were not received.
    pub lost: u64,
    pub duplicate: u64,
    pub out_of_order: u64,
    /// Changes that no worker sent.
    pub foreign: u64,
    /// Creations received as changes, or changes as creations.
    pub mistyped: u64,
    /// Objects that differ between the final state and a list.
    pub differing: u64,
    /// The first invalid frame or error event.
    pub error: Option<String>,
}

impl Faults {
    pub(super) fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.duplicate += other.duplicate;
        self.out_of_order += other.out_of_order;
        self.foreign += other.foreign;
        self.mistyped += other.mistyped;
        self.differing += other.differing;
        self.error = self.error.take().or(other.error);
    }
}

/// The events that a watcher received.
#[derive(Debug)]
pub(super) struct Tally {
    run: u32,
    /// The received bits, by object and write.
    seen: Vec<Vec<u8>>,
    state: State,
    pub last_version: u64,
    faults: Faults,
}

impl Tally {
    /// Creates the record of a watcher that starts at `version`, when there are no objects.
    pub(super) fn new(run: u32, objects: u32, version: u64) -> Self {
        Self {
            run,
            seen: vec![Vec::new(); objects as usize],
            state: State::new(),
            last_version: version,
            faults: Faults::default(),
        }
    }

    /// Processes a frame. Returns the time since the change was sent, if it is the first event of
    /// that change.
    pub(super) fn process(
        &mut self,
        log: &WriteLog,
        frame: Result<Frame<'_>, Malformed>,
    ) -> Option<Duration> {
        let frame = match frame {
            Ok(frame) if frame.kind == Kind::Error => return self.error(frame.text()),
            Ok(frame) => frame,
            Err(malformed) => return self.error(format!("an invalid event: {malformed}")),
        };
        let Some(version) = frame.object.version() else {
            return self.error(format!(
                "an event without a numeric version: {}",
                frame.text()
            ));
        };
        if frame.kind == Kind::Bookmark {
            // A bookmark may repeat a version but must not go back.
            self.faults.out_of_order += u64::from(version < self.last_version);
            self.last_version = self.last_version.max(version);
            return None;
        }
        self.faults.out_of_order += u64::from(version <= self.last_version);
        self.last_version = self.last_version.max(version);
        let mark = frame.object.mark().filter(|mark| mark.run == self.run);
        let Some(mark) = mark else {
            self.faults.foreign += 1;
            return None;
        };
        self.change(log, frame.kind, log.write_of(mark.event), version)
    }

    fn change(
        &mut self,
        log: &WriteLog,
        kind: Kind,
        id: WriteId,
        version: u64,
    ) -> Option<Duration> {
        let deleted = kind == Kind::Deleted;
        if deleted {
            self.state.remove(&id.object);
        } else {
            self.state.insert(id.object, (id.write, version));
        }
        let write = log.get(id);
        let sent = write.and_then(|write| match deleted {
            true => Some(write.deletion?.sent),
            false => Some(write.sent),
        });
        let (Some(write), Some(sent)) = (write, sent) else {
            self.faults.foreign += 1;
            return None;
        };
        let seen = &mut self.seen[id.object as usize];
        if seen.len() <= id.write as usize {
            seen.resize(id.write as usize + 1, 0);
        }
        let (seen, bit) = match deleted {
            true => (&mut seen[id.write as usize], DELETED),
            false => (&mut seen[id.write as usize], WRITTEN),
        };
        if *seen & bit != 0 {
            self.faults.duplicate += 1;
            return None;
        }
        *seen |= bit;
        if !deleted && (kind == Kind::Added) != write.creates {
            self.faults.mistyped += 1;
        }
        Some(sent.elapsed())
    }

    fn error(&mut self, error: String) -> Option<Duration> {
        self.faults.error.get_or_insert(error);
        None
    }

    /// Returns the faults, once all changes in the log are complete; `listed` is the final list, if
    /// available.
    pub(super) fn close(mut self, log: &WriteLog, listed: Option<&State>) -> Faults {
        for (id, write) in log.writes() {
            let seen = self.seen[id.object as usize].get(id.write as usize);
            let lacks = |bit: u8| seen.is_none_or(|seen| seen & bit == 0);
            let deleted = write.deletion.is_some_and(|deletion| deletion.acknowledged);
            self.faults.lost += u64::from(write.acknowledged && lacks(WRITTEN));
            self.faults.lost += u64::from(deleted && lacks(DELETED));
        }
        let Some(listed) = listed else {
            return self.faults;
        };
        let missing = listed.keys().filter(|key| !self.state.contains_key(key));
        let other = self.state.iter();
        let other = other.filter(|(object, state)| listed.get(object) != Some(state));
        self.faults.differing = (missing.count() + other.count()) as u64;
        self.faults
    }
}

/// Returns the state in a list, limited to objects of the run.
pub(super) fn state(log: &WriteLog, run: u32, list: &List) -> State {
    let ours = list.items.iter().filter_map(|item| {
        let mark = item.mark.filter(|mark| mark.run == run)?;
        let WriteId { object, write } = log.write_of(mark.event);
        Some((object, (write, item.version)))
    });
    ours.collect()
}

#[cfg(test)]
mod tests;

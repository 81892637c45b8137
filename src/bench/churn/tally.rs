//! What one watcher of a churn was told, held against the board: nothing lost, twice, out of order or made
//! up; and the state that it adds up to, which a list must show too.

use std::collections::HashMap;
use std::time::Duration;

use super::board::{Board, WriteId};
use crate::bench::decode::{List, Malformed};
use crate::bench::frames::{Frame, Kind};

/// That a watcher was told of a write, and of the deletion after it.
const WRITTEN: u8 = 1;
const DELETED: u8 = 2;

/// The version of an object, and the write that it is the result of.
pub(super) type State = HashMap<u32, (u32, u64)>;

/// What a watcher, or all, were told that they should not have been, or not told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Acknowledged changes that it was not told of.
    pub lost: u64,
    pub duplicate: u64,
    pub out_of_order: u64,
    /// Changes that no worker made.
    pub foreign: u64,
    /// Creations that were told as changes, or the other way round.
    pub mistyped: u64,
    /// Objects that a list shows otherwise than the watch left them.
    pub differing: u64,
    /// The first that a watch said instead of an event.
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

/// What was told to a watcher.
#[derive(Debug)]
pub(super) struct Tally {
    run: u32,
    /// By object and write.
    told: Vec<Vec<u8>>,
    state: State,
    pub last_version: u64,
    faults: Faults,
}

impl Tally {
    /// Of a watcher that begins at `version`, when there is no object.
    pub(super) fn new(run: u32, objects: u32, version: u64) -> Self {
        Self {
            run,
            told: vec![Vec::new(); objects as usize],
            state: State::new(),
            last_version: version,
            faults: Faults::default(),
        }
    }

    /// Takes in a frame. Returns how long ago the change was sent, when it is told for the first time.
    pub(super) fn take(
        &mut self,
        board: &Board,
        frame: Result<Frame<'_>, Malformed>,
    ) -> Option<Duration> {
        let frame = match frame {
            Ok(frame) if frame.kind == Kind::Error => return self.error(frame.text()),
            Ok(frame) => frame,
            Err(malformed) => return self.error(format!("what is no event: {malformed}")),
        };
        let Some(version) = frame.object.version() else {
            return self.error(format!("no version that is a number: {}", frame.text()));
        };
        if frame.kind == Kind::Bookmark {
            // It may repeat a version, and must not go back.
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
        self.change(board, frame.kind, board.write_of(mark.event), version)
    }

    fn change(&mut self, board: &Board, kind: Kind, id: WriteId, version: u64) -> Option<Duration> {
        let deleted = kind == Kind::Deleted;
        if deleted {
            self.state.remove(&id.object);
        } else {
            self.state.insert(id.object, (id.write, version));
        }
        let write = board.look(id);
        let sent = write.and_then(|write| match deleted {
            true => Some(write.deletion?.sent),
            false => Some(write.sent),
        });
        let (Some(write), Some(sent)) = (write, sent) else {
            self.faults.foreign += 1;
            return None;
        };
        let told = &mut self.told[id.object as usize];
        if told.len() <= id.write as usize {
            told.resize(id.write as usize + 1, 0);
        }
        let (told, bit) = match deleted {
            true => (&mut told[id.write as usize], DELETED),
            false => (&mut told[id.write as usize], WRITTEN),
        };
        if *told & bit != 0 {
            self.faults.duplicate += 1;
            return None;
        }
        *told |= bit;
        if !deleted && (kind == Kind::Added) != write.creates {
            self.faults.mistyped += 1;
        }
        Some(sent.elapsed())
    }

    fn error(&mut self, error: String) -> Option<Duration> {
        self.faults.error.get_or_insert(error);
        None
    }

    /// What went wrong, when all changes of the board are over and a list then shows `listed`,
    /// if there is one.
    pub(super) fn close(mut self, board: &Board, listed: Option<&State>) -> Faults {
        for (id, write) in board.writes() {
            let told = self.told[id.object as usize].get(id.write as usize);
            let lacks = |bit: u8| told.is_none_or(|told| told & bit == 0);
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

/// The state that a list shows, as far as it is of the run.
pub(super) fn state(board: &Board, run: u32, list: &List) -> State {
    let ours = list.items.iter().filter_map(|item| {
        let mark = item.mark.filter(|mark| mark.run == run)?;
        let WriteId { object, write } = board.write_of(mark.event);
        Some((object, (write, item.version)))
    });
    ours.collect()
}

#[cfg(test)]
mod tests;

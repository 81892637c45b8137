//! Whether the database of a store can be read.

use tokio::sync::watch;

/// What a reader does if another thread has locked the database, or waits for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadState {
    /// The database can be read.
    Open,
    /// The data file is being made smaller: the reader waits.
    Paused,
    /// It is closed, or being opened again, which takes as long as verifying the file: the read fails.
    Closed,
}

/// The state of a database for its readers.
///
/// It is changed before the lock of the database is requested, and again after the release, so that a reader that
/// finds the database locked and [`Open`](ReadState::Open) only needs to try again.
#[derive(Debug)]
pub(super) struct Availability(watch::Sender<ReadState>);

impl Default for Availability {
    fn default() -> Self {
        Self(watch::Sender::new(ReadState::Open))
    }
}

impl Availability {
    /// Returns the current state.
    pub(super) fn get(&self) -> ReadState {
        *self.0.borrow()
    }

    /// Waits until the state is not [`Paused`](ReadState::Paused).
    pub(super) async fn resumed(&self) {
        let mut state = self.0.subscribe();
        let resumed = state.wait_for(|now| *now != ReadState::Paused).await;
        // The sender is in `self`.
        drop(resumed);
    }

    /// Makes readers wait if the database is open. Returns true if it is.
    pub(super) fn pause(&self) -> bool {
        self.change(ReadState::Open, ReadState::Paused)
    }

    /// Ends a pause, unless the database was closed meanwhile.
    pub(super) fn resume(&self) {
        self.change(ReadState::Paused, ReadState::Open);
    }

    /// Makes reads fail, also those that wait.
    pub(super) fn close(&self) {
        self.0.send_replace(ReadState::Closed);
    }

    /// Makes reads succeed again.
    pub(super) fn open(&self) {
        self.0.send_replace(ReadState::Open);
    }

    fn change(&self, from: ReadState, to: ReadState) -> bool {
        self.0.send_if_modified(|now| {
            let is_changed = *now == from;
            if is_changed {
                *now = to;
            }
            is_changed
        })
    }
}

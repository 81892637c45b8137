//! The deadlines of keys with a TTL, in memory: the tables lack those of the layers.

use std::collections::BTreeSet;

use super::error::Fault;
use super::snapshot::Snapshot;

/// The deadlines, as pairs of milliseconds since the epoch and the revision of the value.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(u64, u64)>);

impl Deadlines {
    /// Reads the deadlines of the values in `snapshot`.
    pub(super) fn load(snapshot: &Snapshot) -> Result<Self, Fault> {
        let mut deadlines = snapshot.base.deadlines()?;
        for (key, head) in snapshot.layers().flat_map(|layer| layer.heads()) {
            if let Some(before) = snapshot.base.head(key.as_str())? {
                deadlines.remove(&(before.expires_ms, before.modified));
            }
            // A key that both layers have expires according to the newer one.
            if snapshot.head(key.as_str())? == Some(*head) && head.live && head.expires_ms != 0 {
                deadlines.insert((head.expires_ms, head.modified));
            }
        }
        Ok(Self(deadlines))
    }

    /// Returns all deadlines.
    pub(super) fn into_set(self) -> BTreeSet<(u64, u64)> {
        self.0
    }

    /// Adds the deadline of the value at `revision`; 0 is no deadline.
    pub(super) fn insert(&mut self, expires_ms: u64, revision: u64) {
        if expires_ms != 0 {
            self.0.insert((expires_ms, revision));
        }
    }

    /// Removes the deadline of the value at `revision`, if it has one.
    pub(super) fn remove(&mut self, expires_ms: u64, revision: u64) {
        self.0.remove(&(expires_ms, revision));
    }

    /// Returns at most `limit` deadlines up to `now_ms`, the earliest first.
    pub(super) fn due(&self, now_ms: u64, limit: usize) -> Vec<(u64, u64)> {
        let due = self.0.range(..=(now_ms, u64::MAX));
        due.take(limit).copied().collect()
    }

    /// Returns the first deadline; `u64::MAX` if there is none.
    pub(super) fn first_ms(&self) -> u64 {
        self.0
            .first()
            .map_or(u64::MAX, |(expires_ms, _)| *expires_ms)
    }
}

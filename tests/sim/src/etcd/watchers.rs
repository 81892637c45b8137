//! The watches of one member, as in etcd's
//! [watchable store](https://github.com/etcd-io/etcd/blob/v3.6.0/server/storage/mvcc/watchable_store.go): synced ones
//! receive each revision when it is applied; unsynced ones catch up every 100 ms; victims are those whose stream was full.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use etcd_client::proto::PbWatchResponse;
use tokio::sync::Notify;

use super::config::PlantedBug;
use super::errors::EtcdError;
use super::position::Applied;
use super::store::{Change, KeyRange, Store};

/// The maximum number of watches that catch up in one step.
const WATCHERS_PER_STEP: usize = 512;

/// The maximum number of revisions of a response for a watch that catches up.
const REVISIONS_PER_RESPONSE: usize = 1000;

/// The watch id of a progress response for a whole stream.
pub(super) const STREAM_WATCH_ID: i64 = -1;

/// `WatchCreateRequest.FilterType`.
const FILTER_NO_PUT: i32 = 0;
const FILTER_NO_DELETE: i32 = 1;

/// The stream and the id in it.
type WatchKey = (u64, i64);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Synced,
    Unsynced,
    Victim,
    /// Canceled because its revision was compacted. Until the client cancels it too, it keeps its id and blocks the
    /// progress of its stream, as in etcd.
    Compacted,
}

pub(super) struct Watcher {
    range: KeyRange,
    /// The next revision that it accepts.
    min_revision: i64,
    start_revision: i64,
    phase: Phase,
    /// The response that did not fit into the stream.
    pending: Option<Queued>,
    /// A response was sent or it was synced.
    has_progressed: bool,
    filters: Vec<i32>,
    /// Whether the next interval reports progress; `None` if the client did not ask.
    progress: Option<bool>,
    pub(super) with_previous: bool,
    pub(super) with_fragments: bool,
}

/// A response that waits in a stream.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) watch_id: i64,
    pub(super) revision: i64,
    pub(super) changes: Vec<Change>,
    pub(super) compacted: i64,
}

/// The server's half of a watch stream.
#[derive(Default)]
pub(super) struct Stream {
    /// Created and canceled watches, sent before the others.
    pub(super) control: VecDeque<PbWatchResponse>,
    pub(super) responses: VecDeque<Queued>,
    /// The ids that the client knows.
    pub(super) announced: BTreeSet<i64>,
    next_id: i64,
    pub(super) requires_leader: bool,
    /// [`Config::stream_responses_max`](super::Config::stream_responses_max).
    pub(super) responses_max: usize,
    pub(super) ended: Option<EtcdError>,
    pub(super) changed: Arc<Notify>,
}

impl Stream {
    fn push(&mut self, response: Queued) -> Result<(), Queued> {
        if self.responses.len() >= self.responses_max {
            return Err(response);
        }
        self.responses.push_back(response);
        self.changed.notify_one();
        Ok(())
    }

    pub(super) fn push_control(&mut self, response: PbWatchResponse) {
        self.control.push_back(response);
        self.changed.notify_one();
    }

    pub(super) fn end(&mut self, error: EtcdError) {
        self.ended = Some(error);
        self.changed.notify_one();
    }
}

/// The options of a new watch.
pub(super) struct NewWatch {
    pub(super) range: KeyRange,
    /// Zero means the next revision.
    pub(super) start_revision: i64,
    /// Zero means any.
    pub(super) id: i64,
    pub(super) filters: Vec<i32>,
    pub(super) progress_notify: bool,
    pub(super) with_previous: bool,
    pub(super) with_fragments: bool,
}

#[derive(Default)]
pub(super) struct Watchers {
    pub(super) streams: BTreeMap<u64, Stream>,
    watchers: BTreeMap<WatchKey, Watcher>,
}

impl Watchers {
    pub(super) fn remove_stream(&mut self, stream: u64) {
        self.streams.remove(&stream);
        self.watchers.retain(|(owner, _), _| *owner != stream);
    }

    pub(super) fn get(&self, stream: u64, id: i64) -> Option<&Watcher> {
        self.watchers.get(&(stream, id))
    }

    /// Creates a watch and returns its id, or the reason why it is canceled.
    pub(super) fn create(
        &mut self,
        stream_id: u64,
        new: NewWatch,
        revision: i64,
    ) -> Result<i64, &'static str> {
        if new.range.is_empty() {
            return Err("mvcc: watcher range is empty");
        }
        let stream = self.streams.entry(stream_id).or_default();
        let mut id = new.id;
        if id == 0 {
            while self.watchers.contains_key(&(stream_id, stream.next_id)) {
                stream.next_id += 1;
            }
            id = stream.next_id;
            stream.next_id += 1;
        } else if self.watchers.contains_key(&(stream_id, id)) {
            return Err("mvcc: duplicate watch ID provided on the WatchStream");
        }
        let synced = new.start_revision == 0 || new.start_revision > revision;
        let watcher = Watcher {
            range: new.range,
            min_revision: match synced {
                true => new.start_revision.max(revision + 1),
                false => new.start_revision,
            },
            start_revision: new.start_revision,
            phase: if synced {
                Phase::Synced
            } else {
                Phase::Unsynced
            },
            pending: None,
            has_progressed: synced,
            filters: new.filters,
            progress: new.progress_notify.then_some(true),
            with_previous: new.with_previous,
            with_fragments: new.with_fragments,
        };
        self.watchers.insert((stream_id, id), watcher);
        Ok(id)
    }

    /// Removes a watch; returns false if there is none with this id.
    pub(super) fn cancel(&mut self, stream: u64, id: i64) -> bool {
        self.watchers.remove(&(stream, id)).is_some()
    }

    /// Returns true if watches wait for the next step of catching up.
    pub(super) fn has_unsynced(&self) -> bool {
        self.in_phase(Phase::Unsynced)
    }

    /// Returns true if watches wait for space in their stream.
    pub(super) fn has_victims(&self) -> bool {
        self.in_phase(Phase::Victim)
    }

    fn in_phase(&self, phase: Phase) -> bool {
        self.watchers.values().any(|watcher| watcher.phase == phase)
    }

    /// Delivers a revision that was just applied to the synced watches.
    pub(super) fn notify(&mut self, store: &Store, revision: i64) {
        for (key, watcher) in &mut self.watchers {
            if watcher.phase != Phase::Synced || watcher.min_revision > revision {
                continue;
            }
            let changes = store.changes(revision, revision);
            let changes = watcher.select(changes);
            if changes.is_empty() {
                continue;
            }
            watcher.min_revision = revision + 1;
            let Some(stream) = self.streams.get_mut(&key.0) else {
                continue;
            };
            watcher.send(stream, key.1, changes, revision);
        }
    }

    /// Lets all watches catch up from the store, after the member's state was replaced by a snapshot.
    pub(super) fn restored(&mut self) {
        for watcher in self.watchers.values_mut() {
            if watcher.phase == Phase::Synced {
                watcher.phase = Phase::Unsynced;
            }
        }
    }

    /// One step of catching up. `lost_deletions` returns true for a deletion that a planted bug drops.
    pub(super) fn catch_up(
        &mut self,
        store: &Store,
        applied: Applied,
        bugs: &BTreeSet<PlantedBug>,
        lost_deletions: impl Fn(&Change) -> bool,
    ) {
        let unsynced = self
            .watchers
            .iter_mut()
            .filter(|(_, watcher)| watcher.phase == Phase::Unsynced);
        for (key, watcher) in unsynced.take(WATCHERS_PER_STEP) {
            let Some(stream) = self.streams.get_mut(&key.0) else {
                continue;
            };
            if watcher.min_revision < applied.compacted {
                let skips = bugs.contains(&PlantedBug::SlowWatchSkipsEvents);
                if !(skips && watcher.has_progressed) {
                    // A full stream gets it in a later step.
                    if stream.push(compacted_response(key.1, applied)).is_ok() {
                        watcher.phase = Phase::Compacted;
                    }
                    continue;
                }
                watcher.min_revision = applied.compacted;
            }
            watcher.catch_up(stream, key.1, store, applied, &lost_deletions);
        }
    }

    /// Sends the responses again that did not fit into their streams.
    pub(super) fn retry_victims(&mut self, revision: i64) {
        for (key, watcher) in &mut self.watchers {
            let Some(stream) = self.streams.get_mut(&key.0) else {
                continue;
            };
            if watcher.phase != Phase::Victim {
                continue;
            }
            match watcher.pending.take().map(|queued| stream.push(queued)) {
                Some(Err(queued)) => watcher.pending = Some(queued),
                Some(Ok(())) | None => {
                    watcher.phase = match watcher.min_revision > revision {
                        true => Phase::Synced,
                        false => Phase::Unsynced,
                    };
                }
            }
        }
    }

    /// Answers a progress request for the whole stream, if all its watches are synced.
    pub(super) fn progress_of_stream(
        &mut self,
        stream: u64,
        revision: i64,
        bugs: &BTreeSet<PlantedBug>,
    ) {
        let mut watchers = self.watchers.range((stream, i64::MIN)..=(stream, i64::MAX));
        let mut any = false;
        let all = watchers.all(|(_, watcher)| {
            any = true;
            watcher.can_report(revision, bugs)
        });
        if any && all {
            self.push_progress(stream, STREAM_WATCH_ID, revision);
        }
    }

    /// Reports the progress of the stream's watches that asked for it, at each interval.
    pub(super) fn progress_of_interval(
        &mut self,
        stream: u64,
        revision: i64,
        bugs: &BTreeSet<PlantedBug>,
    ) {
        let watchers = self
            .watchers
            .range_mut((stream, i64::MIN)..=(stream, i64::MAX));
        let mut due = Vec::new();
        for ((_, id), watcher) in watchers {
            let is_due = watcher.progress == Some(true);
            if is_due && watcher.can_report(revision, bugs) {
                due.push(*id);
            }
            watcher.progress = watcher.progress.map(|_| true);
        }
        for id in due {
            self.push_progress(stream, id, revision);
        }
    }

    fn push_progress(&mut self, stream: u64, watch_id: i64, revision: i64) {
        let Some(stream) = self.streams.get_mut(&stream) else {
            return;
        };
        let progress = Queued {
            watch_id,
            revision,
            changes: Vec::new(),
            compacted: 0,
        };
        // As in etcd, a full stream drops the report.
        if stream.push(progress).is_err() {
            tracing::debug!(watch_id, "the stream is full: progress is not reported");
        }
    }

    /// Notes that events were sent, which replaces the progress report of this interval.
    pub(super) fn events_sent(&mut self, stream: u64, id: i64) {
        if let Some(watcher) = self.watchers.get_mut(&(stream, id)) {
            watcher.progress = watcher.progress.map(|_| false);
        }
    }
}

/// Returns the response that cancels a watch of a compacted revision. etcd does not set the header's revision.
fn compacted_response(watch_id: i64, applied: Applied) -> Queued {
    Queued {
        watch_id,
        revision: 0,
        changes: Vec::new(),
        compacted: applied.compacted,
    }
}

impl Watcher {
    fn select<'a>(&self, changes: impl Iterator<Item = &'a Change>) -> Vec<Change> {
        let selected = changes.filter(|change| self.range.contains(&change.key));
        selected.cloned().collect()
    }

    fn can_report(&self, revision: i64, bugs: &BTreeSet<PlantedBug>) -> bool {
        let started =
            revision >= self.start_revision || bugs.contains(&PlantedBug::ProgressBeforeStart);
        self.phase == Phase::Synced && started
    }

    fn is_filtered(&self, change: &Change) -> bool {
        let filter = match change.kv {
            Some(_) => FILTER_NO_PUT,
            None => FILTER_NO_DELETE,
        };
        self.filters.contains(&filter)
    }

    /// Sends events, or makes the watch a victim if the stream is full.
    fn send(&mut self, stream: &mut Stream, id: i64, mut changes: Vec<Change>, revision: i64) {
        changes.retain(|change| !self.is_filtered(change));
        if changes.is_empty() {
            return;
        }
        self.has_progressed = true;
        let queued = Queued {
            watch_id: id,
            revision,
            changes,
            compacted: 0,
        };
        if let Err(queued) = stream.push(queued) {
            self.phase = Phase::Victim;
            self.pending = Some(queued);
        }
    }

    fn catch_up(
        &mut self,
        stream: &mut Stream,
        id: i64,
        store: &Store,
        applied: Applied,
        lost_deletions: impl Fn(&Change) -> bool,
    ) {
        let changes = store.changes(self.min_revision, applied.revision);
        let mut changes = self.select(changes.filter(|change| !lost_deletions(change)));
        let rest = cut_after_revisions(&mut changes);
        self.min_revision = rest.unwrap_or(self.min_revision.max(applied.revision + 1));
        // `send` replaces the phase if the stream is full.
        self.phase = match rest {
            Some(_) => Phase::Unsynced,
            None => Phase::Synced,
        };
        self.has_progressed |= rest.is_none();
        self.send(stream, id, changes, applied.revision);
    }
}

/// Keeps the first revisions and returns the first revision that it removes.
fn cut_after_revisions(changes: &mut Vec<Change>) -> Option<i64> {
    let mut revisions = 0;
    let mut last = 0;
    let end = changes.iter().position(|change| {
        if change.revision != last {
            revisions += 1;
            last = change.revision;
        }
        revisions > REVISIONS_PER_RESPONSE
    })?;
    let rest = changes[end].revision;
    changes.truncate(end);
    Some(rest)
}

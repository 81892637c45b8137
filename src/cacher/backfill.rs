//! `Backfill`: the history from before the cache's first list, read from storage after a restart,
//! so that a client that comes back with the last version it saw goes on without a relist. It is
//! read backwards, since clients come back with versions from just before; what was read is kept
//! when time is over, and let go after the history window, when every client has come back. What is
//! still as it was written is in the cache already, and is shared with it.
//!
//! Values that cannot be read count for nothing, as in `replay`: an object that was overwritten with one is as it
//! was before. Where a part begins behind such a value, what the object was before is read at an older revision.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio::time::Instant;

use super::event::CacheEvent;
use super::replay::{History, RETRY_PAUSE};
use super::snapshot::{ObjectMap, Snapshot, TooOld};
use super::source::Unreadable;
use super::{CachedResource, CacherConfig};
use crate::api::{Object, ObjectKey, ResourceVersion, StorageKey};
use crate::reflector::Change;
use crate::storage::{ListRequest, Storage, StorageError, StorageEvent};

/// How many revisions are read first: some seconds of a busy store, in some milliseconds. They are all
/// of the store's, since it has one sequence for every resource.
const FIRST_SPAN: u64 = 10_000;

/// Each further part is so many times as long. A part's watch also passes over the later ones, which
/// costs no more than a third of reading in all.
const SPAN_GROWTH: u64 = 4;

/// Every store begins here; there is nothing before.
const FIRST_REVISION: ResourceVersion = ResourceVersion::new(1);

/// Older history, as far as it is known.
#[derive(Debug)]
pub(super) struct Backfill {
    older: ArcSwapOption<Older>,
    reading: watch::Sender<Reading>,
    first_span: u64,
}

/// How far the reading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// It goes on; history is known back to this version, if to any.
    BackTo(Option<ResourceVersion>),
    /// There is nothing more to wait for.
    Settled,
}

/// Events that continue one another, after `after` and up to `up_to`.
#[derive(Debug)]
struct Older {
    /// Of the snapshot that they lead to. What another one's history goes on from is not known.
    generation: u64,
    after: ResourceVersion,
    up_to: ResourceVersion,
    events: Arc<[Arc<CacheEvent>]>,
}

/// A view of older events from some position on.
#[derive(Debug)]
pub(super) struct OlderEvents {
    events: Arc<[Arc<CacheEvent>]>,
    first: usize,
}

impl OlderEvents {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<CacheEvent>> {
        self.events[self.first..].iter()
    }
}

impl Backfill {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self::reading_first(FIRST_SPAN))
    }

    fn reading_first(first_span: u64) -> Self {
        Self {
            older: ArcSwapOption::empty(),
            reading: watch::Sender::new(Reading::BackTo(None)),
            first_span,
        }
    }

    /// The events after `version`, if they are known and newer history continues them, which is of
    /// `generation` and reaches back to `newer`; and the version that they cover.
    pub(super) fn events_after(
        &self,
        version: ResourceVersion,
        generation: u64,
        newer: ResourceVersion,
    ) -> Result<(OlderEvents, ResourceVersion), TooOld> {
        let older = self
            .older
            .load_full()
            .filter(|older| older.generation == generation && older.up_to >= newer);
        let Some(older) = older else {
            return Err(TooOld(newer));
        };
        if version < older.after {
            return Err(TooOld(older.after));
        }
        let first = older
            .events
            .partition_point(|event| event.resource_version() <= version);
        Ok((
            OlderEvents {
                events: older.events.clone(),
                first,
            },
            older.up_to,
        ))
    }

    /// Waits until the events after `version` are known, or known not to be had.
    pub(super) async fn settled_for(&self, version: ResourceVersion) {
        let settled = |reading: &Reading| match reading {
            Reading::BackTo(known) => known.is_some_and(|known| known <= version),
            Reading::Settled => true,
        };
        // The sender lives as long as `self`, so this cannot fail.
        self.reading.subscribe().wait_for(settled).await.ok();
    }

    /// Nothing more is read: whoever waits goes on with what there is.
    pub(super) fn settle(&self) {
        self.reading.send_replace(Reading::Settled);
    }

    /// Reads what storage still has from before the history of `first`, then keeps it for the history
    /// window.
    pub(super) async fn run(
        self: Arc<Self>,
        resource: Arc<CachedResource>,
        storage: Arc<dyn Storage>,
        config: CacherConfig,
        first: Arc<Snapshot>,
    ) {
        let up_to = first.reaches_back_to();
        let start = Older {
            generation: first.generation,
            after: up_to,
            up_to,
            events: Arc::new([]),
        };
        let source = Source {
            resource: &resource,
            storage: &*storage,
            state: first.objects(),
        };
        let read = self.read_back(source, config.history_bytes_max, start);
        let read = tokio::time::timeout(config.start_timeout, read).await;
        drop(first);
        match read {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(resource = %resource.name, %error, "cannot read older history on");
            }
            Err(_) => {
                let limit = config.start_timeout;
                tracing::info!(resource = %resource.name, ?limit, "older history is long enough");
            }
        }
        if let Some(older) = &*self.older.load() {
            let events = older.events.len();
            tracing::debug!(resource = %resource.name, after = %older.after, events, "backfilled");
        }
        self.settle();
        tokio::time::sleep(config.history_window).await;
        self.older.store(None);
    }

    /// Reads part after part, each before the last, and shows each as soon as it is known.
    async fn read_back(
        &self,
        source: Source<'_>,
        bytes_max: usize,
        mut known: Older,
    ) -> Result<(), StorageError> {
        let mut bytes_left = bytes_max;
        let mut span = self.first_span;
        while known.after > FIRST_REVISION {
            let from = known.after.get().saturating_sub(span);
            let from = ResourceVersion::new(from).max(FIRST_REVISION);
            let part = read_part(source, from, known.after, bytes_left).await?;
            bytes_left -= part.bytes;
            let newer = known.events.iter().cloned();
            known = Older {
                after: part.after,
                events: part.events.into_iter().chain(newer).collect(),
                ..known
            };
            let (after, events) = (known.after, known.events.clone());
            self.older.store(Some(Arc::new(Older { events, ..known })));
            self.reading.send_replace(Reading::BackTo(Some(after)));
            if part.nothing_before {
                break;
            }
            span = span.saturating_mul(SPAN_GROWTH);
        }
        Ok(())
    }
}

/// What history is read from.
#[derive(Clone, Copy)]
struct Source<'a> {
    resource: &'a CachedResource,
    storage: &'a dyn Storage,
    /// What history leads to.
    state: &'a ObjectMap,
}

impl Source<'_> {
    /// The change that `event` tells. Most that happened shortly before are the last of their objects.
    fn change(&self, event: &StorageEvent) -> Result<Change<Object>, Unreadable> {
        let key = self.resource.prefix.strip(event.key.as_str());
        let object = key.and_then(|key| self.state.get(key));
        match object.filter(|object| object.resource_version() == event.revision) {
            Some(object) if event.is_create() => Ok(Change::Added(object.clone())),
            Some(object) if event.value.is_some() => Ok(Change::Modified(object.clone())),
            _ => self.resource.change(event),
        }
    }

    /// Returns what the object at `key` was before `version`: the last value that can be read.
    async fn earlier(
        &self,
        key: &StorageKey,
        version: ResourceVersion,
    ) -> Result<Earlier, StorageError> {
        let prefix = &self.resource.prefix;
        let start = prefix.strip(key.as_str()).unwrap_or_default();
        let mut before = version;
        loop {
            let request = ListRequest {
                prefix: prefix.clone(),
                start: start.to_owned(),
                at: Some(ResourceVersion::new(before.get() - 1)),
                limit: 1,
                count: false,
            };
            let page = match self.storage.list(request).await {
                Err(StorageError::Compacted { .. }) => return Ok(Earlier::Forgotten),
                page => page?,
            };
            let Some(item) = page.items.into_iter().find(|item| item.key == *key) else {
                return Ok(Earlier::Nothing);
            };
            if let Ok(object) = self.resource.decode(&item) {
                return Ok(Earlier::Object(object));
            }
            before = item.mod_revision;
        }
    }
}

/// What an object was before an event whose previous value cannot be read.
#[derive(Debug)]
enum Earlier {
    Object(Arc<Object>),
    /// There was none that could be read.
    Nothing,
    /// Storage no longer knows.
    Forgotten,
}

/// What objects were before the events at these revisions.
type EarlierObjects = HashMap<(StorageKey, ResourceVersion), Earlier>;

/// Reads the history after `from` and up to `to`, or as much of its end as there is.
async fn read_part(
    source: Source<'_>,
    from: ResourceVersion,
    to: ResourceVersion,
    bytes_max: usize,
) -> Result<Part, StorageError> {
    let mut earlier = EarlierObjects::default();
    let mut part = Part::new(from, bytes_max);
    loop {
        let filled = match fill(&mut part, source, to, &earlier).await {
            Ok(()) if part.missing.is_empty() => return Ok(part),
            Ok(()) => {
                let found = find_earlier(source, &part.missing, &mut earlier).await;
                part = Part::new(from, bytes_max);
                found
            }
            Err(error) => Err(error),
        };
        match filled {
            Ok(()) => {}
            // Compaction may go on meanwhile; each round begins later.
            Err(StorageError::Compacted { compacted, .. }) if compacted > part.after => {
                part.begin_after(compacted.min(to));
                if compacted >= to {
                    return Ok(part);
                }
            }
            // Lost on the way: the same again, while there is time.
            Err(StorageError::Unavailable(reason)) => {
                let resource = &source.resource.name;
                tracing::debug!(%resource, reason, "older history is read again");
                part = Part::new(from, bytes_max);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Adds to `earlier` what the objects of the `missing` events were before them.
async fn find_earlier(
    source: Source<'_>,
    missing: &[(StorageKey, ResourceVersion)],
    earlier: &mut EarlierObjects,
) -> Result<(), StorageError> {
    for (key, version) in missing {
        let found = source.earlier(key, *version).await?;
        earlier.insert((key.clone(), *version), found);
    }
    Ok(())
}

/// Follows a watch from where the part begins up to `to`.
async fn fill(
    part: &mut Part,
    source: Source<'_>,
    to: ResourceVersion,
    earlier: &EarlierObjects,
) -> Result<(), StorageError> {
    let resource = source.resource;
    let history = History {
        resource,
        storage: source.storage,
    };
    let from = part.after;
    let each = |event: &StorageEvent| {
        if let Err(error) = part.push(&source, event, earlier) {
            tracing::warn!(resource = %resource.name, %error, "history begins after it");
            part.begin_after(event.revision);
        }
        ControlFlow::Continue(())
    };
    history.follow(from, to, each).await
}

/// The newest events that fit, and the last known state of what they are about.
struct Part {
    after: ResourceVersion,
    /// What is before cannot be had.
    nothing_before: bool,
    events: VecDeque<Arc<CacheEvent>>,
    bytes: usize,
    bytes_max: usize,
    known: HashMap<ObjectKey, Arc<Object>>,
    /// The events of which it is not known what their objects were before.
    missing: Vec<(StorageKey, ResourceVersion)>,
}

impl Part {
    fn new(after: ResourceVersion, bytes_max: usize) -> Self {
        Self {
            after,
            nothing_before: false,
            events: VecDeque::new(),
            bytes: 0,
            bytes_max,
            known: HashMap::new(),
            missing: Vec::new(),
        }
    }

    /// Forgets what was there: history goes on after `version`.
    fn begin_after(&mut self, version: ResourceVersion) {
        *self = Self {
            nothing_before: true,
            ..Self::new(version, self.bytes_max)
        };
    }

    /// Adds an event, unless nothing of it can be read.
    ///
    /// # Errors
    /// Storage no longer knows what the object was before.
    fn push(
        &mut self,
        source: &Source<'_>,
        event: &StorageEvent,
        earlier: &EarlierObjects,
    ) -> Result<(), Unreadable> {
        let received = Instant::now();
        let Ok(key) = source.resource.key_of(&event.key) else {
            return Ok(());
        };
        let change = source.change(event);
        let event = match change {
            Ok(Change::Added(object) | Change::Modified(object)) => {
                let previous = self.before(source, (&key, event), earlier)?;
                self.known.insert(key, object.clone());
                CacheEvent::put(object, previous, received)
            }
            Err(_) if event.value.is_some() => return Ok(()),
            deleted => {
                let previous = self.before(source, (&key, event), earlier)?;
                self.known.remove(&key);
                let Some(previous) = previous else {
                    return Ok(());
                };
                let object = match deleted {
                    Ok(Change::Deleted(object)) => object,
                    _ => previous.deleted_at(event.revision),
                };
                CacheEvent::delete(object, previous, received)
            }
        };
        self.bytes += event.memory();
        self.events.push_back(Arc::new(event));
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.memory();
            self.after = oldest.resource_version();
            self.nothing_before = true;
        }
        Ok(())
    }

    /// Returns what the object was before `event`: what the part or the event says, or else what is known of
    /// `earlier`. Takes note of it when nothing is.
    fn before(
        &mut self,
        source: &Source<'_>,
        (key, event): (&ObjectKey, &StorageEvent),
        earlier: &EarlierObjects,
    ) -> Result<Option<Arc<Object>>, Unreadable> {
        if let Some(known) = self.known.get(key) {
            return Ok(Some(known.clone()));
        }
        let Some(value) = &event.previous else {
            return Ok(None);
        };
        let unreadable = match source.resource.previous(event, value) {
            Ok(previous) => return Ok(Some(previous)),
            Err(unreadable) => unreadable,
        };
        let at = (event.key.clone(), event.revision);
        match earlier.get(&at) {
            Some(Earlier::Object(object)) => Ok(Some(object.clone())),
            Some(Earlier::Nothing) => Ok(None),
            Some(Earlier::Forgotten) => Err(unreadable),
            None => {
                self.missing.push(at);
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! `Backfill`: the history before the cache's first list, read from storage after a restart, so
//! that a client that resumes at the last resourceVersion it saw needs no relist. Reads proceed
//! backwards in growing spans, because clients resume at recent versions. A timeout retains what
//! was read; all of it is dropped after the history window. Values that equal the current objects
//! share their memory.
//!
//! Undecodable values are skipped, as in `replay`: an object that was overwritten with one remains as
//! it was. If a span starts after such a value, the object's previous state is read at an older
//! revision.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio::time::Instant;

use super::event::CacheEvent;
use super::object_map::ObjectMap;
use super::replay::{History, RETRY_PAUSE};
use super::snapshot::{Snapshot, TooOld};
use super::unreadable::Unreadable;
use super::{CachedResource, CacherConfig};
use watchet_api::{Object, ObjectKey, ResourceVersion, StorageKey};
use watchet_reflector::Change;
use watchet_storage::{ListRequest, Storage, StorageError, StorageEvent};

/// The number of revisions in the first span, read in a few milliseconds. A store has one sequence
/// of revisions for all resources.
const FIRST_SPAN: u64 = 10_000;

/// Growth factor of each further span. The watch of a span also skips over the later spans, which
/// adds at most a third to the total work.
const SPAN_GROWTH: u64 = 4;

/// The first revision of every store.
const FIRST_REVISION: ResourceVersion = ResourceVersion::new(1);

/// The history before the first list, as far as it was read.
#[derive(Debug)]
pub(super) struct Backfill {
    older: ArcSwapOption<OlderHistory>,
    progress: watch::Sender<Progress>,
    first_span: u64,
}

/// The progress of the backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// In progress; history is known back to this version, if any.
    BackTo(Option<ResourceVersion>),
    /// Finished; no more history will be read.
    Finished,
}

/// A contiguous run of events, after `after` and up to `up_to`.
#[derive(Debug)]
struct OlderHistory {
    /// The generation of the snapshot that the events lead to; they do not continue to another one.
    generation: u64,
    after: ResourceVersion,
    up_to: ResourceVersion,
    events: Arc<[Arc<CacheEvent>]>,
}

/// The events after a position.
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
            progress: watch::Sender::new(Progress::BackTo(None)),
            first_span,
        }
    }

    /// Returns the events after `version` and the version up to which they lead, if they are known
    /// and continue into the newer history of `generation`, which reaches back to `newer`.
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

    /// Waits until the events after `version` are known or the backfill has finished.
    pub(super) async fn wait_for(&self, version: ResourceVersion) {
        let is_known = |progress: &Progress| match progress {
            Progress::BackTo(known) => known.is_some_and(|known| known <= version),
            Progress::Finished => true,
        };
        // The sender is in `self`, so `wait_for` cannot fail.
        self.progress.subscribe().wait_for(is_known).await.ok();
    }

    /// Ends the backfill; waiting watches continue with the events that were read.
    pub(super) fn finish(&self) {
        self.progress.send_replace(Progress::Finished);
    }

    /// Reads the history that storage retains from before that of `first`, and retains it for the
    /// history window.
    pub(super) async fn run(
        self: Arc<Self>,
        resource: Arc<CachedResource>,
        storage: Arc<dyn Storage>,
        config: CacherConfig,
        first: Arc<Snapshot>,
    ) {
        let up_to = first.reaches_back_to();
        let start = OlderHistory {
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
                tracing::warn!(resource = %resource.name, %error, "cannot read more of the older history");
            }
            Err(_) => {
                let limit = config.start_timeout;
                tracing::info!(resource = %resource.name, ?limit, "history backfill reached its limit");
            }
        }
        if let Some(older) = &*self.older.load() {
            let events = older.events.len();
            tracing::debug!(resource = %resource.name, after = %older.after, events, "backfilled");
        }
        self.finish();
        tokio::time::sleep(config.history_window).await;
        self.older.store(None);
    }

    /// Reads span after span, backwards, and publishes each.
    async fn read_back(
        &self,
        source: Source<'_>,
        bytes_max: usize,
        mut known: OlderHistory,
    ) -> Result<(), StorageError> {
        let mut bytes_left = bytes_max;
        let mut span = self.first_span;
        while known.after > FIRST_REVISION {
            let from = known.after.get().saturating_sub(span);
            let from = ResourceVersion::new(from).max(FIRST_REVISION);
            let part = read_part(source, from, known.after, bytes_left).await?;
            bytes_left -= part.bytes;
            let newer = known.events.iter().cloned();
            known = OlderHistory {
                after: part.after,
                events: part.events.into_iter().chain(newer).collect(),
                ..known
            };
            let (after, events) = (known.after, known.events.clone());
            self.older
                .store(Some(Arc::new(OlderHistory { events, ..known })));
            self.progress.send_replace(Progress::BackTo(Some(after)));
            if part.nothing_before {
                break;
            }
            span = span.saturating_mul(SPAN_GROWTH);
        }
        Ok(())
    }
}

/// The storage and the resource to read.
#[derive(Clone, Copy)]
struct Source<'a> {
    resource: &'a CachedResource,
    storage: &'a dyn Storage,
    /// The objects that the history leads to.
    state: &'a ObjectMap,
}

impl Source<'_> {
    /// Returns the change of `event`. Most recent changes are the last of their objects and share
    /// the cached object.
    fn change(&self, event: &StorageEvent) -> Result<Change<Object>, Unreadable> {
        let key = self.resource.prefix.strip(event.key.as_str());
        let object = key.and_then(|key| self.state.get(key));
        match object.filter(|object| object.resource_version() == event.revision) {
            Some(object) if event.is_create() => Ok(Change::Added(object.clone())),
            Some(object) if event.value.is_some() => Ok(Change::Modified(object.clone())),
            _ => self.resource.change(event),
        }
    }

    /// Returns the state of the object at `key` before `version`: its last decodable value.
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
                Err(StorageError::Compacted { .. }) => return Ok(Earlier::Compacted),
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

/// The state of an object before an event whose previous value cannot be decoded.
#[derive(Debug)]
enum Earlier {
    Object(Arc<Object>),
    /// It has no decodable value.
    Nothing,
    /// Storage has compacted it.
    Compacted,
}

/// The states of objects before the events at these revisions.
type EarlierObjects = HashMap<(StorageKey, ResourceVersion), Earlier>;

/// Reads the events after `from` and up to `to`, or as many of the newest as possible.
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
            // Compaction may continue meanwhile; each round starts at a later version.
            Err(StorageError::Compacted { compacted, .. }) if compacted > part.after => {
                part.begin_after(compacted.min(to));
                if compacted >= to {
                    return Ok(part);
                }
            }
            // The connection was lost: retry the span until the timeout.
            Err(StorageError::Unavailable(reason)) => {
                let resource = &source.resource.name;
                tracing::debug!(%resource, reason, "retrying the read of older history");
                part = Part::new(from, bytes_max);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Adds the states before the `missing` events to `earlier`.
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

/// Reads events from a watch that starts where the part begins, up to `to`.
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
            tracing::warn!(resource = %resource.name, %error, "history starts after an unreadable value");
            part.begin_after(event.revision);
        }
        ControlFlow::Continue(())
    };
    history.follow(from, to, each).await
}

/// The newest events that fit into the memory limit, and the last known state of their objects.
struct Part {
    after: ResourceVersion,
    /// True if the events before `after` are not available.
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

    /// Drops all events; history starts after `version`.
    fn begin_after(&mut self, version: ResourceVersion) {
        *self = Self {
            nothing_before: true,
            ..Self::new(version, self.bytes_max)
        };
    }

    /// Adds an event, unless it has no decodable value.
    ///
    /// # Errors
    /// Returns an error if storage has compacted the object's previous state.
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

    /// Returns the state of the object before `event`: that of the part or of the event, else that in
    /// `earlier`. Adds the event to `missing` if there is none.
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
            Some(Earlier::Compacted) => Err(unreadable),
            None => {
                self.missing.push(at);
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests;

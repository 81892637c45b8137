//! A scripted storage: a log in memory, with faults. It implements only what the Cacher calls.

use async_trait::async_trait;
use bytes::Bytes;
use imbl::OrdMap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::*;
use watchet_storage::*;

#[derive(Debug)]
pub(crate) struct FakeStorage {
    state: watch::Sender<State>,
    pub(super) probes: Mutex<usize>,
    pub(super) lists: Mutex<usize>,
    /// The number of next watches that fail right after they open.
    pub(super) lost_watches: Mutex<usize>,
    /// The number of progress requests.
    pub(super) progress_requests: Arc<Mutex<usize>>,
}

#[derive(Debug, Clone)]
struct State {
    revision: u64,
    /// By revision, from 2 on. Persistent, because readers clone it.
    log: OrdMap<u64, Vec<StorageEvent>>,
    /// The current values.
    now: OrdMap<StorageKey, KeyValue>,
    compacted: u64,
    down: bool,
    progress: bool,
    /// Watches stay open without events.
    silent: bool,
    /// Lists do not return.
    hanging: bool,
    /// Watches of an earlier epoch end.
    watch_epoch: u64,
}

impl FakeStorage {
    pub(crate) fn new() -> Arc<Self> {
        let (log, now) = Default::default();
        let state = State {
            revision: 1,
            log,
            now,
            compacted: 0,
            down: false,
            progress: true,
            silent: false,
            hanging: false,
            watch_epoch: 0,
        };
        let (probes, lists, lost_watches, progress_requests) = Default::default();
        Arc::new(Self {
            state: watch::Sender::new(state),
            probes,
            lists,
            lost_watches,
            progress_requests,
        })
    }

    pub(super) fn revision(&self) -> ResourceVersion {
        rv(self.state.borrow().revision)
    }

    pub(crate) fn write(&self, key: &str, value: Option<String>) -> ResourceVersion {
        self.write_together(vec![(key.to_owned(), value)])
    }

    /// Writes and deletes several keys in one revision.
    pub(super) fn write_together(&self, writes: Vec<(String, Option<String>)>) -> ResourceVersion {
        let mut revision = 0;
        self.state.send_modify(|state| {
            state.revision += 1;
            revision = state.revision;
            let now = &state.now;
            let events = writes.into_iter().map(|(key, value)| {
                let key = StorageKey::new(&key).unwrap();
                let previous = now.get(&key).map(|item| item.value.clone());
                assert!(
                    value.is_some() || previous.is_some(),
                    "deletion of a missing key"
                );
                StorageEvent {
                    key,
                    revision: rv(revision),
                    value: value.map(Bytes::from),
                    previous,
                }
            });
            let events: Vec<_> = events.collect();
            for event in &events {
                apply(&mut state.now, event);
            }
            state.log.insert(revision, events);
        });
        rv(revision)
    }

    /// Compacts history up to `at`.
    pub(crate) fn compact_to(&self, at: ResourceVersion) {
        self.state.send_modify(|state| state.compacted = at.get());
    }

    /// While down, every call fails and every watch ends.
    pub(super) fn set_down(&self, down: bool) {
        self.state.send_modify(|state| {
            state.down = down;
            state.watch_epoch += 1;
        });
    }

    pub(super) fn set_progress_supported(&self, progress: bool) {
        self.state.send_modify(|state| state.progress = progress);
    }

    pub(super) fn set_silent(&self, silent: bool) {
        self.state.send_modify(|state| state.silent = silent);
    }

    pub(super) fn set_hanging(&self, hanging: bool) {
        self.state.send_modify(|state| state.hanging = hanging);
    }

    /// Restores the state of a backup at `at`.
    pub(super) fn restore(&self, at: ResourceVersion) {
        self.state.send_modify(|state| {
            state.now = state.at(at.get());
            state.revision = at.get();
            state.log = state.log.split(&at.next().get()).0;
            state.watch_epoch += 1;
        });
    }

    /// Removes the key from all of history without an event.
    pub(super) fn lose(&self, key: &str) {
        let key = StorageKey::new(key).unwrap();
        self.state.send_modify(|state| {
            state.now.remove(&key);
            let log = state.log.iter().map(|(revision, events)| {
                let retained = events.iter().filter(|event| event.key != key);
                (*revision, retained.cloned().collect::<Vec<_>>())
            });
            state.log = log.collect();
        });
    }

    fn up(&self) -> Result<State, StorageError> {
        let state = self.state.borrow().clone();
        if state.down {
            Err(StorageError::Unavailable("down".into()))
        } else {
            Ok(state)
        }
    }
}

fn apply(items: &mut OrdMap<StorageKey, KeyValue>, event: &StorageEvent) {
    let Some(value) = &event.value else {
        items.remove(&event.key);
        return;
    };
    let mod_revision = event.revision;
    let before = items.get(&event.key);
    let item = KeyValue {
        key: event.key.clone(),
        value: value.clone(),
        create_revision: before.map_or(mod_revision, |item| item.create_revision),
        mod_revision,
        is_stale: false,
    };
    items.insert(item.key.clone(), item);
}

impl State {
    fn at(&self, revision: u64) -> OrdMap<StorageKey, KeyValue> {
        if revision == self.revision {
            return self.now.clone();
        }
        let mut items = OrdMap::new();
        for event in self.log.range(..=revision).flat_map(|(_, events)| events) {
            apply(&mut items, event);
        }
        items
    }

    fn check(&self, requested: ResourceVersion) -> Result<(), StorageError> {
        if requested.get() < self.compacted {
            return Err(StorageError::Compacted {
                requested,
                compacted: rv(self.compacted),
            });
        }
        Ok(())
    }
}

#[async_trait]
impl Storage for FakeStorage {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        let state = self.up()?;
        Ok((state.at(state.revision).remove(key), rv(state.revision)))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        *self.lists.lock() += 1;
        let mut state = self.state.subscribe();
        let answers = state.wait_for(|state| !state.hanging).await;
        drop(answers.expect("the storage outlives its lists"));
        let state = self.up()?;
        let current = rv(state.revision);
        let revision = request.at.unwrap_or(current);
        if revision > current {
            return Err(StorageError::Future {
                requested: revision,
                current,
            });
        }
        state.check(revision)?;
        let mut items: Vec<KeyValue> = state
            .at(revision.get())
            .into_iter()
            .map(|(_, item)| item)
            .filter(|item| {
                let rest = request.prefix.strip(item.key.as_str());
                rest.is_some_and(|rest| rest >= request.start.as_str())
            })
            .collect();
        let limit = if request.limit == 0 {
            items.len()
        } else {
            request.limit.min(items.len())
        };
        let remaining = (items.len() - limit) as u64;
        items.truncate(limit);
        Ok(ListPage {
            items,
            revision,
            more: remaining > 0,
            remaining: request.count.then_some(remaining),
        })
    }

    async fn put(&self, _: Put) -> Result<Outcome, StorageError> {
        unreachable!("the cacher does not write")
    }

    async fn delete(&self, _: &StorageKey, _: ResourceVersion) -> Result<Outcome, StorageError> {
        unreachable!("the cacher does not write")
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        let state = self.up()?;
        let current = rv(state.revision);
        if after > current {
            return Err(StorageError::Future {
                requested: after,
                current,
            });
        }
        state.check(after)?;
        let progress = ProgressRequester::default();
        let left = self.lost_watches.lock().checked_sub(1);
        if let Some(left) = left {
            *self.lost_watches.lock() = left;
            let lost = futures_util::stream::once(async {
                Err(StorageError::Unavailable("watch lost".into()))
            });
            return Ok(StorageWatch {
                batches: Box::pin(lost),
                progress,
            });
        }
        let cursor = Cursor {
            prefix: prefix.clone(),
            reached: after,
            epoch: state.watch_epoch,
            state: self.state.subscribe(),
            progress: progress.clone(),
            progress_requests: self.progress_requests.clone(),
        };
        let batches = Box::pin(futures_util::stream::unfold(Some(cursor), |cursor| async {
            let mut cursor = cursor?;
            match cursor.next().await {
                Ok(batch) => Some((Ok(batch), Some(cursor))),
                Err(error) => Some((Err(error), None)),
            }
        }));
        Ok(StorageWatch { batches, progress })
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        *self.probes.lock() += 1;
        tokio::task::yield_now().await;
        Ok(rv(self.up()?.revision))
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        self.compact_to(at);
        Ok(())
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        Ok(rv(self.up()?.compacted))
    }

    fn progress_supported(&self) -> bool {
        self.state.borrow().progress
    }

    async fn maintain(&self, cancel: CancellationToken) {
        cancel.cancelled().await;
    }
}

struct Cursor {
    prefix: StorageKey,
    reached: ResourceVersion,
    epoch: u64,
    state: watch::Receiver<State>,
    progress: ProgressRequester,
    progress_requests: Arc<Mutex<usize>>,
}

impl Cursor {
    async fn next(&mut self) -> Result<StorageBatch, StorageError> {
        loop {
            let state = self.state.borrow_and_update().clone();
            if state.watch_epoch != self.epoch {
                return Err(StorageError::Unavailable("watch cut".into()));
            }
            if state.silent {
                let changed = self.state.changed().await;
                changed.expect("the storage outlives its watches");
                continue;
            }
            let revisions = state.log.range(self.reached.get() + 1..);
            let events: Vec<StorageEvent> = revisions
                .flat_map(|(_, events)| events)
                .filter(|event| self.prefix.covers(event.key.as_str()))
                .cloned()
                .collect();
            if let Some(last) = events.last() {
                state.check(self.reached)?;
                self.reached = last.revision;
                return Ok(StorageBatch {
                    events,
                    revision: self.reached,
                });
            }
            tokio::select! {
                biased;
                changed = self.state.changed() => changed.expect("the storage outlives its watches"),
                () = self.progress.requested() => {
                    *self.progress_requests.lock() += 1;
                    self.reached = self.reached.max(rv(self.state.borrow().revision));
                    return Ok(StorageBatch { events: Vec::new(), revision: self.reached });
                }
            }
        }
    }
}

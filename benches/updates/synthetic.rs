//! A source of updates that costs almost nothing: memory storage whose watch of the config maps returns events that no client
//! has written. It sends as many as the watchers receive, so that the cache is the limit, not the source.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use watchet::api::{ResourceVersion, StorageKey};
use watchet::storage::{
    KeyValue, ListPage, ListRequest, Outcome, ProgressRequester, Put, Storage, StorageBatch,
    StorageError, StorageEvent, StorageWatch,
};

use super::{Owned, PATIENCE, WATCHERS};

/// Events in one batch.
const BATCH: u64 = 256;
/// Events that the source is ahead of the watchers, on average. A watcher's inbox takes as many by default.
const AHEAD_MAX: u64 = 1024;

/// Counts the events that all watchers have received.
#[derive(Debug, Default)]
pub(super) struct Received {
    events: AtomicU64,
    changed: Notify,
}

impl Received {
    /// Returns the number of events.
    pub(super) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Counts `events` of one watcher.
    pub(super) fn add(&self, events: usize) {
        self.events.fetch_add(events as u64, Ordering::Relaxed);
        self.changed.notify_one();
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Synthetic {
    memory: Arc<dyn Storage>,
    source: Arc<Source>,
}

#[derive(Debug)]
struct Source {
    objects: Vec<Owned>,
    /// The revision of the last object.
    written: ResourceVersion,
    received: Arc<Received>,
    seconds: Duration,
    begun: Notify,
    ended: Notify,
    sent: AtomicU64,
}

impl Synthetic {
    /// Creates a source that updates `objects`, which `memory` contains, for `seconds`.
    pub(super) fn new(
        memory: Arc<dyn Storage>,
        objects: &[Owned],
        received: Arc<Received>,
        seconds: Duration,
    ) -> Self {
        let written = objects.iter().map(|(_, _, revision)| *revision).max();
        let source = Source {
            written: written.expect("there are objects"),
            objects: objects.to_vec(),
            received,
            seconds,
            begun: Notify::new(),
            ended: Notify::new(),
            sent: AtomicU64::new(0),
        };
        Self {
            memory,
            source: Arc::new(source),
        }
    }

    /// Begins to send events, waits for the end and returns their number.
    pub(super) async fn emit(&self) -> u64 {
        self.source.begun.notify_one();
        let ended = self.source.ended.notified();
        let result = tokio::time::timeout(self.source.seconds + PATIENCE, ended).await;
        result.expect("the watchers receive the events");
        self.source.sent.load(Ordering::Relaxed)
    }
}

impl Source {
    /// Returns the next batch. `end` is `None` before the first one, and `revision` that of the last event.
    async fn next(&self, end: &mut Option<Instant>, revision: u64) -> StorageBatch {
        let end = match *end {
            Some(end) => end,
            None => {
                self.begun.notified().await;
                *end.insert(Instant::now() + self.seconds)
            }
        };
        if Instant::now() >= end {
            self.ended.notify_one();
            std::future::pending::<()>().await;
        }
        let sent = self.sent.load(Ordering::Relaxed);
        while (sent + BATCH) * WATCHERS as u64
            > self.received.events() + AHEAD_MAX * WATCHERS as u64
        {
            self.received.changed.notified().await;
        }
        self.sent.store(sent + BATCH, Ordering::Relaxed);
        let event = |number: u64| {
            let (key, value, _) = &self.objects[(sent + number) as usize % self.objects.len()];
            StorageEvent {
                key: key.clone(),
                revision: ResourceVersion::new(revision + 1 + number),
                value: Some(value.clone()),
                previous: Some(value.clone()),
            }
        };
        StorageBatch {
            events: (0..BATCH).map(event).collect(),
            revision: ResourceVersion::new(revision + BATCH),
        }
    }
}

#[async_trait]
impl Storage for Synthetic {
    fn name(&self) -> &'static str {
        "synthetic"
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        self.memory.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        self.memory.list(request).await
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        self.memory.put(put).await
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        self.memory.delete(key, expect).await
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        // A cache also reads the history of the time before its first list, with a watch.
        let is_history = after < self.source.written;
        if is_history || !prefix.covers(self.source.objects[0].0.as_str()) {
            return self.memory.watch(prefix, after).await;
        }
        let begin = (Arc::clone(&self.source), None, after.get());
        let batches = stream::unfold(begin, async |(source, mut end, revision)| {
            let batch = source.next(&mut end, revision).await;
            let revision = batch.revision.get();
            Some((Ok(batch), (source, end, revision)))
        });
        Ok(StorageWatch {
            batches: Box::pin(batches),
            progress: ProgressRequester::default(),
        })
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.memory.current_revision().await
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        self.memory.compact(at).await
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.memory.compacted_revision().await
    }

    fn progress_supported(&self) -> bool {
        true
    }

    async fn maintain(&self, cancel: CancellationToken) {
        self.memory.maintain(cancel).await;
    }
}

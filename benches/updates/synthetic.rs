//! Updates that cost almost nothing: events of config maps that no client has written, in memory storage. There are as many
//! as the watchers receive, so that the cache is the limit, not the source.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::stream;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};
use watchet::api::{ResourceVersion, StorageKey};
use watchet::storage::{
    ProgressRequester, Storage, StorageBatch, StorageError, StorageEvent, StorageLayer,
    StorageWatch,
};

use super::{Owned, PATIENCE, WATCHERS};

/// Events in one batch.
const BATCH: u64 = 256;
/// The maximum number of events that a watcher has yet to receive, on average. Its inbox takes as many by default.
const UNRECEIVED_MAX: u64 = 1024;

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

    /// Waits until the watchers have received at least this number of events.
    async fn reaches(&self, events: u64) {
        while self.events() < events {
            let changed = timeout(PATIENCE, self.changed.notified()).await;
            changed.expect("events are missing");
        }
    }
}

/// Sends the events.
#[derive(Debug)]
pub(super) struct SyntheticUpdates {
    objects: Vec<Owned>,
    /// The revision of the last object.
    written: ResourceVersion,
    /// To the watch of the cache. Capacity: one batch; the sender waits while the cache does not read.
    batches: mpsc::Sender<StorageBatch>,
}

/// A storage whose watch of the config maps returns the events.
#[derive(Debug)]
pub(super) struct SyntheticStorage {
    memory: Arc<dyn Storage>,
    /// The key of one of the config maps.
    key: StorageKey,
    /// As [`SyntheticUpdates::written`].
    written: ResourceVersion,
    /// `None` once the cache watches.
    batches: Mutex<Option<mpsc::Receiver<StorageBatch>>>,
}

/// Returns a storage over `memory`, which contains `objects`, and the sender of their updates.
pub(super) fn synthetic(
    memory: &Arc<dyn Storage>,
    objects: Vec<Owned>,
) -> (Arc<SyntheticStorage>, SyntheticUpdates) {
    let (sender, receiver) = mpsc::channel(1);
    let (key, _, written) = objects.last().expect("there are objects");
    let storage = SyntheticStorage {
        memory: Arc::clone(memory),
        key: key.clone(),
        written: *written,
        batches: Mutex::new(Some(receiver)),
    };
    let updates = SyntheticUpdates {
        written: *written,
        batches: sender,
        objects,
    };
    (Arc::new(storage), updates)
}

impl SyntheticUpdates {
    /// Sends updates until `end`, and returns their number.
    pub(super) async fn send_until(&self, end: Instant, received: &Received) -> u64 {
        let mut sent = 0;
        while Instant::now() < end {
            let batch = self.batch(sent);
            sent += BATCH;
            let watchers = WATCHERS as u64;
            let reaches = received.reaches(sent.saturating_sub(UNRECEIVED_MAX) * watchers);
            reaches.await;
            self.batches.send(batch).await.expect("the cache watches");
        }
        sent
    }

    /// Returns the batch after the first `sent` updates.
    fn batch(&self, sent: u64) -> StorageBatch {
        let event = |number: u64| {
            let (key, value, _) = &self.objects[number as usize % self.objects.len()];
            StorageEvent {
                key: key.clone(),
                revision: ResourceVersion::new(self.written.get() + 1 + number),
                value: Some(value.clone()),
                previous: Some(value.clone()),
            }
        };
        StorageBatch {
            events: (sent..sent + BATCH).map(event).collect(),
            revision: ResourceVersion::new(self.written.get() + sent + BATCH),
        }
    }
}

#[async_trait]
impl StorageLayer for SyntheticStorage {
    fn inner(&self) -> &Arc<dyn Storage> {
        &self.memory
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        // A cache also reads the history of the time before its first list, with a watch.
        let is_history = after < self.written;
        if is_history || !prefix.covers(self.key.as_str()) {
            return self.memory.watch(prefix, after).await;
        }
        let receiver = self.batches.lock().take();
        let receiver = receiver.expect("the cache watches once");
        let batches = stream::unfold(receiver, async |mut receiver| {
            let batch = receiver.recv().await?;
            Some((Ok(batch), receiver))
        });
        Ok(StorageWatch {
            batches: Box::pin(batches),
            progress: ProgressRequester::default(),
        })
    }
}

//! The history of a resource as storage has it: the events after a version, up to the present, also those that
//! are older than the history of the cache. It is read in parts, as fast as its receiver reads, and never retained.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use tokio::time::sleep;

use super::{CachedResource, Cacher, ReadError, WatchItem};
use watchet_api::{EventType, Object, ResourceVersion, SelectionPredicate, WatchEvent};
use watchet_reflector::Change;
use watchet_storage::{StorageBatch, StorageError, StorageWatch};

/// The interval of progress requests: the end of history may have no event.
const PROGRESS_REQUEST_INTERVAL: Duration = Duration::from_millis(100);

/// The revision before the first change of a store.
const FIRST_REVISION: ResourceVersion = ResourceVersion::new(1);

/// The events of storage's history, in order. The last item is a bookmark of storage's revision at the time of the
/// request, or an error.
pub type StorageHistory = Pin<Box<dyn Stream<Item = Vec<WatchItem>> + Send>>;

impl Cacher {
    /// Returns the events after `after`, or all that storage has, whose objects `predicate` selects. Stored values that
    /// cannot be decoded are left out.
    ///
    /// # Errors
    /// [`ReadError::Expired`] if storage has compacted some of the events.
    pub async fn history(
        &self,
        predicate: SelectionPredicate,
        after: Option<ResourceVersion>,
    ) -> Result<StorageHistory, ReadError> {
        let failed = |error| ReadError::from_storage(error, None);
        let to = self.storage.current_revision().await.map_err(failed)?;
        let after = match after {
            Some(after) => after,
            None => self.storage.compacted_revision().await.map_err(failed)?,
        };
        let prefix = predicate.scope.list_prefix();
        let prefix = self.resource.prefix.join(&prefix)?;
        let watch = self.storage.watch(&prefix, after.max(FIRST_REVISION)).await;
        let reader = Reader {
            watch: watch.map_err(failed)?,
            resource: self.resource.clone(),
            predicate,
            to,
            ready: VecDeque::new(),
            is_at_end: false,
        };
        Ok(Box::pin(stream::unfold(reader, Reader::next)))
    }
}

struct Reader {
    watch: StorageWatch,
    resource: Arc<CachedResource>,
    predicate: SelectionPredicate,
    /// The revision at which history ends.
    to: ResourceVersion,
    ready: VecDeque<WatchItem>,
    is_at_end: bool,
}

impl Reader {
    async fn next(mut self) -> Option<(Vec<WatchItem>, Self)> {
        while self.ready.is_empty() {
            if self.is_at_end {
                return None;
            }
            // Events come before the next progress request.
            let batch = tokio::select! {
                biased;
                batch = self.watch.batches.next() => batch,
                () = sleep(PROGRESS_REQUEST_INTERVAL) => {
                    self.watch.progress.request();
                    continue;
                }
            };
            let ended = || StorageError::Unavailable("the watch ended".to_owned());
            match batch.unwrap_or_else(|| Err(ended())) {
                Ok(batch) => self.add(&batch),
                Err(error) => {
                    self.is_at_end = true;
                    let error = ReadError::from_storage(error, None);
                    self.ready.push_back(WatchItem::Error(error));
                }
            }
        }
        Some((std::mem::take(&mut self.ready).into(), self))
    }

    fn add(&mut self, batch: &StorageBatch) {
        let events = batch.events.iter();
        for event in events.filter(|event| event.revision <= self.to) {
            let (event_type, object): (_, Arc<Object>) = match self.resource.change(event) {
                Ok(Change::Added(object)) => (EventType::Added, object),
                Ok(Change::Modified(object)) => (EventType::Modified, object),
                Ok(Change::Deleted(object)) => (EventType::Deleted, object),
                Err(unreadable) => {
                    tracing::debug!(key = %unreadable.key, "skipping an unreadable value of history");
                    continue;
                }
            };
            if self.predicate.matches(&object) {
                let event = WatchEvent::new(event_type, object);
                self.ready.push_back(WatchItem::Event(Arc::new(event)));
            }
        }
        if batch.revision >= self.to {
            self.is_at_end = true;
            self.ready.push_back(WatchItem::Bookmark {
                resource_version: self.to,
                initial_events_end: false,
            });
        }
    }
}

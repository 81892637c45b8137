//! A watch: a cursor on the log that reads the tables while it lags and the hub's tail once it has
//! caught up. It has no queue; unread events stay in the log.

use std::sync::{Arc, Weak};

use futures_util::stream;
use tokio::sync::Notify;

use super::data::Data;
use super::hub::{Hub, SlotId, Step};
use crate::{ProgressRequester, StorageBatch, StorageError, StorageWatch};
use watchet_api::{ResourceVersion, StorageKey};
use watchet_tasks::Tasks;

/// A cursor on the log.
pub(super) struct Cursor {
    hub: Arc<Hub>,
    /// Weak, so that a leaked watch does not keep the data file open and locked.
    data: Weak<Data>,
    tasks: Tasks,
    slot: SlotId,
    prefix: StorageKey,
    /// All events up to this revision were delivered.
    position: u64,
    wake: Arc<Notify>,
    progress: ProgressRequester,
    /// The store's revision at the last progress request; `None` once the response is sent.
    requested_at: Option<u64>,
}

impl Cursor {
    /// Returns a cursor on `prefix` after revision `after`, which must not be compacted.
    pub(super) fn new(
        hub: Arc<Hub>,
        data: &Arc<Data>,
        tasks: Tasks,
        prefix: StorageKey,
        after: u64,
    ) -> Self {
        let wake = Arc::new(Notify::new());
        Self {
            slot: hub.add(&prefix, after, wake.clone()),
            hub,
            data: Arc::downgrade(data),
            tasks,
            prefix,
            position: after,
            wake,
            progress: ProgressRequester::default(),
            requested_at: None,
        }
    }

    /// Converts the cursor into a stream of batches.
    pub(super) fn into_watch(self) -> StorageWatch {
        let progress = self.progress.clone();
        let batches = stream::unfold(Some(self), |cursor| async {
            let mut cursor = cursor?;
            let batch = cursor.next().await;
            // The watch ends after an error.
            let rest = batch.is_ok().then_some(cursor);
            Some((batch, rest))
        });
        StorageWatch {
            batches: Box::pin(batches),
            progress,
        }
    }

    /// Returns the next batch. Not cancel safe: the caller must drop the cursor with the future.
    async fn next(&mut self) -> Result<StorageBatch, StorageError> {
        loop {
            let events = match self.hub.step(self.slot, &self.prefix, self.position) {
                Step::Ended => return Err(closed()),
                Step::Deliver { events, to } => {
                    self.position = to;
                    events
                }
                Step::ReadLog { from, to } => {
                    let (events, read) = self.read_log(from, to).await?;
                    self.hub.advance(self.slot, read);
                    self.position = read;
                    events
                }
                Step::Idle { at } => {
                    self.position = self.position.max(at);
                    match self.idle(at).await? {
                        Some(batch) => return Ok(batch),
                        None => continue,
                    }
                }
            };
            if !events.is_empty() {
                // A batch that reaches the requested revision also answers the progress request.
                self.requested_at = self
                    .requested_at
                    .filter(|requested_at| *requested_at > self.position);
                let revision = ResourceVersion::new(self.position);
                return Ok(StorageBatch { events, revision });
            }
        }
    }

    /// Waits for events or for a progress request to answer. `at` is the published revision;
    /// everything up to it was delivered.
    async fn idle(&mut self, at: u64) -> Result<Option<StorageBatch>, StorageError> {
        if let Some(requested_at) = self.requested_at {
            // At least the start of the watch, which may be ahead of the published revision.
            let target = requested_at.max(self.position);
            if at >= target {
                self.requested_at = None;
                let revision = ResourceVersion::new(at);
                let events = Vec::new();
                return Ok(Some(StorageBatch { events, revision }));
            }
            if self.hub.published_or_wake(target, &self.wake) {
                return Ok(None);
            }
        }
        // Events first, since they may answer a progress request.
        tokio::select! {
            biased;
            () = self.wake.notified() => {}
            () = self.progress.requested() => {
                // The caller may have seen a revision that is committed but not yet published.
                let data = self.data.upgrade().ok_or_else(closed)?;
                let revision = data.newest()?;
                self.requested_at = Some(self.requested_at.unwrap_or_default().max(revision));
            }
        }
        Ok(None)
    }

    /// Reads a part of history on a blocking thread.
    async fn read_log(
        &self,
        from: u64,
        to: u64,
    ) -> Result<(Vec<crate::StorageEvent>, u64), StorageError> {
        let data = self.data.upgrade().ok_or_else(closed)?;
        let prefix = self.prefix.clone();
        let read = move || data.read(|snapshot| snapshot.history(&prefix, from, to));
        self.tasks
            .spawn_blocking("history", read)
            .await
            .unwrap_or_else(|error| Err(StorageError::Unavailable(error.to_string())))
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.hub.remove(self.slot, &self.prefix);
    }
}

fn closed() -> StorageError {
    StorageError::Unavailable("the store is closed, or was restarted after a failure".to_owned())
}

//! A watch: a cursor that follows the log, from the tables while it is behind and from the hub's
//! tail once it has caught up. It holds no queue; what its reader does not take stays in the log.

use std::sync::{Arc, Weak};

use futures_util::stream;
use tokio::sync::Notify;

use super::data::Data;
use super::hub::{Hub, SlotId, Step};
use crate::api::{ResourceVersion, StorageKey};
use crate::storage::{ProgressRequester, StorageBatch, StorageError, StorageWatch};
use crate::tasks::Tasks;

/// A cursor on the log.
pub(super) struct Cursor {
    hub: Arc<Hub>,
    /// Weak, so that a forgotten watch does not keep the data file open, and locked.
    data: Weak<Data>,
    tasks: Tasks,
    slot: SlotId,
    prefix: StorageKey,
    /// Everything up to here was delivered.
    position: u64,
    wake: Arc<Notify>,
    progress: ProgressRequester,
    /// Somebody asked for progress when the store was here.
    asked: Option<u64>,
}

impl Cursor {
    /// A cursor on `prefix` after revision `after`, which must not be compacted yet.
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
            asked: None,
        }
    }

    /// The stream of its batches.
    pub(super) fn into_watch(self) -> StorageWatch {
        let progress = self.progress.clone();
        let batches = stream::unfold(Some(self), |cursor| async {
            let mut cursor = cursor?;
            let batch = cursor.next().await;
            // After an error the watch ends.
            let rest = batch.is_ok().then_some(cursor);
            Some((batch, rest))
        });
        StorageWatch {
            batches: Box::pin(batches),
            progress,
        }
    }

    /// The next batch. Cancel safe only in that the cursor is dropped with it.
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
                // A batch that reaches the revision asked for is the answer, too.
                self.asked = self.asked.filter(|asked| *asked > self.position);
                let revision = ResourceVersion::new(self.position);
                return Ok(StorageBatch { events, revision });
            }
        }
    }

    /// Waits for a reason to look again, or answers who asked for progress. `at` is the published
    /// revision, up to which all was delivered.
    async fn idle(&mut self, at: u64) -> Result<Option<StorageBatch>, StorageError> {
        if let Some(asked) = self.asked {
            // Never less than where the watch began, which can be ahead of what is published.
            let wanted = asked.max(self.position);
            if at >= wanted {
                self.asked = None;
                let revision = ResourceVersion::new(at);
                let events = Vec::new();
                return Ok(Some(StorageBatch { events, revision }));
            }
            if self.hub.published_or_wake(wanted, &self.wake) {
                return Ok(None);
            }
        }
        // Changes before progress, which they may make superfluous.
        tokio::select! {
            biased;
            () = self.wake.notified() => {}
            () = self.progress.requested() => {
                // What the asker knows of was committed, but is perhaps not published yet: only
                // the tables know of it for certain.
                let data = self.data.upgrade().ok_or_else(closed)?;
                let revision = data.read(|snapshot| Ok(snapshot.revision))?;
                self.asked = Some(self.asked.unwrap_or_default().max(revision));
            }
        }
        Ok(None)
    }

    /// Reads a part of history on a thread that may block.
    async fn read_log(
        &self,
        from: u64,
        to: u64,
    ) -> Result<(Vec<crate::storage::StorageEvent>, u64), StorageError> {
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
    StorageError::Unavailable("the store has closed, or begun anew after a failure".to_owned())
}

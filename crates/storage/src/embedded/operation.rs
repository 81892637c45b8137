//! The operations of the writer, and its status.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::error::Fault;
use crate::{Outcome, Put, StorageError};
use watchet_api::{ResourceVersion, StorageKey};

/// The delay between attempts to open the file again after a failure: short for an operator who
/// frees space, long enough that verifying a large file costs little.
pub(super) const REOPEN_PAUSE: Duration = Duration::from_secs(5);

/// Where to send a response.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StorageError>>;

/// An operation of the writer.
pub(super) enum Op {
    /// A conditional put, with its deadline in milliseconds since the epoch (0: none).
    Put(Put, u64, Reply<Outcome>),
    /// A conditional delete.
    Delete(StorageKey, ResourceVersion, Reply<Outcome>),
    /// Compacts history before this revision.
    Compact(ResourceVersion, Reply<()>),
    /// Deletes the keys with at most this deadline; returns their number.
    Expire(u64, Reply<usize>),
    /// Writes all changes to the tables.
    Flush(Reply<()>),
    /// Writes all changes to the tables as the last operation before shutdown or a pause: a store
    /// opened from this state has lost nothing.
    FlushAndLowerCeiling(Reply<()>),
    /// Opens the file again if the system has failed.
    Reopen(Reply<()>),
    /// Makes the data file smaller and accepts values again, if the disk was full.
    Reclaim(Reply<()>),
    /// Makes the data file smaller, if most of it is unused.
    Shrink(Reply<()>),
    /// Begins to write all changes to the tables, in the background.
    Checkpoint,
    /// The checkpointer has finished a layer.
    Checkpointed,
}

impl Op {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Put(put, ..) => put.value.len(),
            _ => 0,
        }
    }
}

/// The writer's status, for the other tasks.
#[derive(Debug, Default)]
pub(super) struct WriterStatus {
    /// The first deadline, in milliseconds since the epoch; `u64::MAX` for none.
    pub(super) next_deadline_ms: AtomicU64,
    /// Notified when the first deadline has become earlier.
    pub(super) deadline_changed: Notify,
    /// The reason why the writer rejects writes, if it does.
    pub(super) failed: Mutex<Option<StorageError>>,
    /// Notified when the writer has failed.
    pub(super) has_failed: Notify,
    /// True while creations and updates that grow an object are rejected because the disk is almost full.
    pub(super) is_no_space: AtomicBool,
    /// The number of bytes of records written since the store was opened.
    pub(super) written_bytes: AtomicU64,
    /// True while nothing is written to the tables, because the disk has no space for that.
    pub(super) is_blocked: AtomicBool,
}

impl WriterStatus {
    /// Records a failure of the log or of the tables in the data file `file`, and returns the error
    /// for callers. The state on disk is unknown, so no more writes are accepted until it is open
    /// again. See `WriterThread::recover`.
    pub(super) fn fail(&self, fault: Fault, file: &str) -> StorageError {
        let error = match fault {
            Fault::Failed(detail) => StorageError::Failed(format!(
                "{file}: {detail}; nothing is written until the store could be opened again, which \
                 is tried every {REOPEN_PAUSE:?}"
            )),
            // Recorded already.
            Fault::Storage(error) => return error,
            fault @ Fault::Damaged(_) => fault.name_file(file),
        };
        tracing::error!(error = %error, "writer of the store failed");
        *self.failed.lock() = Some(error.clone());
        self.has_failed.notify_one();
        error
    }

    /// Returns the reason why the writer rejects writes, if it does.
    pub(super) fn failed(&self) -> Option<StorageError> {
        self.failed.lock().clone()
    }
}

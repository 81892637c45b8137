//! The embedded back end: a durable, revisioned store with etcd's semantics, a write-ahead log over a
//! redb database. One process owns a data directory. Values are opaque bytes, and the watch cache
//! caches them for readers.
//!
//! # Definitions
//!
//! - *Log*: the write-ahead log, two files that are used in turn. A write is durable once its frame
//!   is in the log. See `wal`.
//! - *Tables*: a redb database, the data file. They receive the changes later, many at a time. See
//!   `tables`.
//! - *Layer*: changes in memory that the tables do not contain yet, over the tables. The *active*
//!   layer receives the changes; the *frozen* one no longer changes and is being written to the
//!   tables. Each corresponds to a file of the log. See `layer`.
//! - *Checkpoint*: a commit of the tables that contains the frozen layer. See `checkpointer`.
//!
//! # Invariants
//!
//! 1. The state is that of the tables, the frozen and the active layer, in this order; their
//!    revisions follow each other without holes.
//! 2. With the default durability, each change in a layer is in the log, and visible only once it is
//!    on disk.
//! 3. A file of the log is written again only after a checkpoint of its changes.
//! 4. After a failed write or sync nothing is acknowledged until a checkpoint of everything that was
//!    acknowledged before has succeeded and the log is empty.
//!
//! # Key operations
//!
//! - *Write*: queue → writer thread → one frame for all waiting writes → log, one sync → active
//!   layer → hub → responses. See `writer` and `batch`.
//! - *Read*: a snapshot of the layers and of the tables. Single keys are read on the caller's thread
//!   (a few pages), lists and history on blocking threads. See `snapshot`.
//! - *Watch*: a cursor on the history. See `watch` and `hub`.
//! - *Checkpoint*: at 4 MiB of changes, every 10 s, and after a compaction. The writer freezes the
//!   active layer and goes on with the other file of the log; the checkpointer thread commits the
//!   frozen layer. Writes wait for it only at twice that size.
//! - *Open*: after a clean shutdown, reads the checksums of the pages, with which each read is
//!   verified, see `checked_file`; otherwise verifies the whole data file first. The frames of the log after the last
//!   checkpoint become the frozen layer. An incomplete frame at the end was never acknowledged and is
//!   ignored; any other damage is an error.
//! - *Close*: a checkpoint of everything; then the log is empty.
//! - *Backup*: the records of one revision, read in parts by the keys of each part. See `backup`.
//! - *Restore*: a store that is older than the revision recorded outside of its directory continues
//!   beyond that one, without history. See `revision_file`.
//! - *Full disk*: creations and updates that grow an object are rejected before a checkpoint can fail. See `space`.
//!
//! Without `fsync` there is no log: a flush is a checkpoint, and so is the end of each interval.

mod backup;
mod batch;
mod check;
mod checked_file;
mod checkpointer;
mod codec;
mod config;
mod data;
mod deadlines;
mod error;
mod files;
mod hub;
mod layer;
mod maintain;
mod offline;
mod open;
mod operation;
mod revision_file;
#[cfg(feature = "simulation")]
mod simulation;
mod snapshot;
mod space;
mod sparse;
mod state;
mod tables;
mod threads;
mod times;
mod visit;
mod wal;
mod watch;
mod writer;
#[cfg(feature = "simulation")]
mod writer_task;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub use self::backup::{
    BackupError, BackupSummary, ExistingStore, Restored, StoredValue, create_from,
    is_restore_interrupted, restore, verify_backup,
};
pub use self::check::CheckReport;
pub use self::config::{Durability, EmbeddedConfig, HistoryRetention, LastRevision};
#[cfg(feature = "simulation")]
pub use self::simulation::{SimulatedDisk, SimulatedFault};

use self::checkpointer::Checkpointer;
use self::data::Data;
use self::deadlines::Deadlines;
pub use self::error::OpenError;
use self::error::{Fault, catch_damage};
pub use self::files::{
    CHECKSUMS_FILE, DATA_FILE, LAST_REVISION_FILE, RESERVE_FILE, REVISION_FILE, TIMES_FILE,
    WAL_FILES,
};
use self::hub::Hub;
pub use self::offline::{Resized, bump_revision, check, compact_file};
use self::open::OpenDatabase;
use self::operation::{Op, Reply, WriterStatus};
use self::sparse::Sparse;
use self::tables::BATCH_OPS_MAX;
use self::threads::{Threads, Writer};
use self::wal::Wal;
use self::watch::Cursor;
use self::writer::{SHRINK_LIVE_MAX_AT_END, WriterThread};
use crate::clock::Clock;
use crate::{
    BackupStream, KeyValue, ListPage, ListRequest, ListVisitor, Outcome, Put, RevisionTimes,
    Storage, StorageError, StorageWatch,
};
use watchet_api::{ResourceVersion, StorageKey};
use watchet_tasks::Tasks;

/// Maximum size of a value: etcd's default limit of a request, so that data can move between back
/// ends.
pub const VALUE_BYTES_MAX: usize = 1_572_864;

/// An open store. Dropping it ends its watches, waits for current reads, flushes, and releases the
/// data directory.
#[derive(Debug)]
pub struct Embedded {
    name: &'static str,
    config: EmbeddedConfig,
    data: Arc<Data>,
    hub: Arc<Hub>,
    status: Arc<WriterStatus>,
    clock: Clock,
    times: Arc<RevisionTimes>,
    /// The number of bytes written before the store was opened, as far as `times` has it.
    written_before: u64,
    tasks: Tasks,
    /// `None` once dropped, which stops the writer. See [`WriterThread::run`] for the queue.
    queue: Option<mpsc::Sender<Op>>,
    writer: Mutex<Option<Writer>>,
}

impl Embedded {
    /// Opens the store in `directory`; creates it if needed. Blocks while the log is read, which
    /// takes a few milliseconds, and after a crash also while the data file is verified: 0.4 to 2
    /// seconds per GiB.
    ///
    /// # Errors
    /// Returns [`OpenError`]; a damaged store is not opened.
    pub fn open(directory: &Path, config: EmbeddedConfig) -> Result<Arc<Self>, OpenError> {
        Self::open_with(directory, None, config)
    }

    /// As [`Self::open`], for a store whose last revision is also recorded outside of `directory`. A
    /// store that is older than that continues at a later revision, without history.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with_last_revision(
        directory: &Path,
        last_revision: LastRevision<'_>,
        config: EmbeddedConfig,
    ) -> Result<Arc<Self>, OpenError> {
        Self::open_with(directory, Some(last_revision), config)
    }

    fn open_with(
        directory: &Path,
        last_revision: Option<LastRevision<'_>>,
        config: EmbeddedConfig,
    ) -> Result<Arc<Self>, OpenError> {
        let (data, wal) = Data::open(directory, last_revision)?;
        let mut store = Self::start("embedded", config, data, Some(wal), Threads::Spawned)?;
        let newest = ResourceVersion::new(store.hub.published());
        store.times = Arc::new(RevisionTimes::open(&directory.join(TIMES_FILE), newest));
        let last = store.times.newest();
        store.written_before = last.map_or(0, |last| last.written_bytes);
        Ok(Arc::new(store))
    }

    /// Creates a store in memory.
    #[cfg(test)]
    fn in_memory(compaction_interval: Duration) -> Result<Self, OpenError> {
        Self::in_memory_with(EmbeddedConfig {
            compaction_interval,
            ..EmbeddedConfig::default()
        })
    }

    /// Creates a store in memory. The durability of `config` has no effect.
    pub(super) fn in_memory_with(config: EmbeddedConfig) -> Result<Self, OpenError> {
        Self::on(Data::on(Sparse::default())?, config)
    }

    /// As [`Self::in_memory_with`], for a store whose first revision is `first`.
    pub(super) fn in_memory_beginning_at(
        first: u64,
        config: EmbeddedConfig,
    ) -> Result<Self, OpenError> {
        Self::on(Data::beginning_at(Sparse::default(), first)?, config)
    }

    fn on(data: Data, config: EmbeddedConfig) -> Result<Self, OpenError> {
        let config = EmbeddedConfig {
            // There is no disk; a commit is complete when it returns.
            durability: Durability::Fsync,
            ..config
        };
        Self::start("memory", config, data, None, Threads::Spawned)
    }

    fn start(
        name: &'static str,
        config: EmbeddedConfig,
        data: Data,
        wal: Option<Wal>,
        threads: Threads,
    ) -> Result<Self, OpenError> {
        let file = Path::new(data.name()).to_owned();
        let durability = match config.durability {
            Durability::Interval(Duration::ZERO) => Durability::Fsync,
            durability => durability,
        };
        let wal =
            prepare(&data, durability, wal).map_err(|fault| OpenError::from_fault(&file, fault))?;
        let loaded = catch_damage(|| {
            data.with_snapshot(|snapshot| {
                Ok((snapshot.position.revision, Deadlines::load(&snapshot)?))
            })
        });
        let (revision, deadlines) = loaded.map_err(|fault| OpenError::from_fault(&file, fault))?;
        let space = data.take_space();
        // Of a process that was killed, which could not do so.
        if space.as_ref().is_some_and(|space| !space.is_no_space())
            && !data.has_changes()
            && data.is_sparse(SHRINK_LIVE_MAX_AT_END).unwrap_or(false)
        {
            let shrunk = catch_damage(|| data.shrink());
            shrunk.map_err(|fault| OpenError::from_fault(&file, fault))?;
        }
        // From now on a missing data file is detected.
        data.record_durable(revision);
        let data = Arc::new(data);
        let hub = Arc::new(Hub::new(revision));
        let status = Arc::new(WriterStatus {
            // Due immediately: the first round of expiry reads the first deadline.
            next_deadline_ms: AtomicU64::new(0),
            ..WriterStatus::default()
        });
        if let Some(space) = &space {
            let is_blocked = !space.can_checkpoint(data.pending_bytes());
            status.is_blocked.store(is_blocked, Ordering::Relaxed);
        }
        let (queue, ops) = mpsc::channel(BATCH_OPS_MAX);
        let checkpointer = {
            let (data, status, queue) = (data.clone(), status.clone(), queue.downgrade());
            match &threads {
                Threads::Spawned => Checkpointer::start(name, data, status, queue)
                    .map_err(|error| OpenError::io(&file, error))?,
                #[cfg(feature = "simulation")]
                Threads::Simulated(random) => {
                    Checkpointer::without_thread(data, status, queue, random.clone())
                }
            }
        };
        let writer = WriterThread {
            data: data.clone(),
            hub: hub.clone(),
            status: status.clone(),
            durability,
            wal,
            deadlines,
            checkpointer,
            space,
            reclaimed_at: None,
            checkpoint_due: false,
            last_ops: 0,
        };
        let tasks = Tasks::new();
        let writer = match threads {
            Threads::Spawned => std::thread::Builder::new()
                .name(format!("{name}-writer"))
                .spawn(move || writer.run(ops))
                .map(Writer::Thread)
                .map_err(|error| OpenError::io(&file, error))?,
            #[cfg(feature = "simulation")]
            Threads::Simulated(random) => {
                Writer::Task(writer_task::WriterTask::spawn(writer, ops, &tasks, random))
            }
        };
        Ok(Self {
            name,
            config,
            data,
            hub,
            status,
            clock: Clock::start(),
            times: Arc::default(),
            written_before: 0,
            tasks,
            queue: Some(queue),
            writer: Mutex::new(Some(writer)),
        })
    }

    fn next_deadline_ms(&self) -> u64 {
        self.status.next_deadline_ms.load(Ordering::Relaxed)
    }

    /// Sends an operation to the writer and waits for the response. If the caller is dropped before
    /// the operation is queued it is not executed; later it is.
    async fn execute<T>(&self, op: impl FnOnce(Reply<T>) -> Op) -> Result<T, StorageError> {
        let stopped = || {
            let failed = self.status.failed();
            failed.unwrap_or_else(|| StorageError::Unavailable("the store is closed".to_owned()))
        };
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(op(reply)).await.map_err(|_| stopped())?;
        // The writer ended before it answered.
        answer.await.unwrap_or_else(|_| {
            let detail = "the store was closed during the operation";
            Err(StorageError::OutcomeUnknown(detail.to_owned()))
        })
    }
}

/// Prepares an opened store for writes with this durability. Returns the log if they need it.
fn prepare(data: &Data, durability: Durability, wal: Option<Wal>) -> Result<Option<Wal>, Fault> {
    let fsync = durability == Durability::Fsync;
    let newest = data.newest().map_err(Fault::Storage)?;
    if fsync && data.ceiling() <= newest && data.revisions().seen_max() <= newest {
        return Ok(wal);
    }
    let lost_after = catch_damage(|| data.prepare(!fsync))?;
    if let Some(found) = lost_after {
        let revision = data.newest().map_err(Fault::Storage)?;
        data.revisions().warn_of_lost(data.name(), found, revision);
    }
    let mut wal = wal;
    if let Some(wal) = &mut wal {
        wal.reset().map_err(Fault::Failed)?;
    }
    Ok(wal.filter(|_| fsync))
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.hub.close();
        self.queue = None;
        let writer = self.writer.get_mut().take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!(store = self.name, "writer of the store panicked");
        }
        self.data.close();
    }
}

#[async_trait]
impl Storage for Embedded {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        let read = self.data.read_async(|snapshot| {
            let revision = ResourceVersion::new(snapshot.position.revision);
            Ok((snapshot.get(key)?, revision))
        });
        read.await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        let data = self.data.clone();
        let read = move || data.read(|snapshot| snapshot.list(&request));
        self.tasks
            .spawn_blocking("list", read)
            .await
            .unwrap_or_else(|error| Err(StorageError::Unavailable(error.to_string())))
    }

    async fn visit(
        &self,
        prefix: &StorageKey,
        visitor: Arc<dyn ListVisitor>,
    ) -> Option<Result<ResourceVersion, StorageError>> {
        let (data, prefix) = (self.data.clone(), prefix.clone());
        let visit = move || data.visit(&prefix, &*visitor);
        let visited = self.tasks.spawn_blocking("visit", visit).await;
        Some(visited.unwrap_or_else(|error| Err(StorageError::Unavailable(error.to_string()))))
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        if put.value.len() > VALUE_BYTES_MAX {
            return Err(StorageError::TooLarge {
                detail: format!("{} bytes; at most {VALUE_BYTES_MAX}", put.value.len()),
                key: put.key,
            });
        }
        let expires_ms = put.ttl.map_or(0, |ttl| self.clock.after_ms(ttl));
        self.execute(|reply| Op::Put(put, expires_ms, reply)).await
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        let key = key.clone();
        self.execute(|reply| Op::Delete(key, expect, reply)).await
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        let exists = self
            .data
            .read_async(|snapshot| snapshot.exists(after.get()));
        exists.await?;
        let cursor = Cursor::new(
            self.hub.clone(),
            &self.data,
            self.tasks.clone(),
            prefix.clone(),
            after.get(),
        );
        Ok(cursor.into_watch())
    }

    /// Reads the tables, and fails if the store cannot be written: health checks use it.
    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        if let Some(failed) = self.status.failed() {
            return Err(failed);
        }
        let is_sound = self.data.with_async(OpenDatabase::check_damage).await;
        is_sound.map_err(|fault| fault.name_file(self.data.name()))?;
        let read = self
            .data
            .read_async(|snapshot| Ok(ResourceVersion::new(snapshot.position.revision)));
        read.await
    }

    fn known_revision(&self) -> Option<Result<ResourceVersion, StorageError>> {
        Some(self.data.newest().map(ResourceVersion::new))
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        self.execute(|reply| Op::Compact(at, reply)).await
    }

    async fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        self.data.size_bytes()
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        let read = self
            .data
            .read_async(|snapshot| Ok(ResourceVersion::new(snapshot.position.compacted)));
        read.await
    }

    fn revision_times(&self) -> Option<Arc<RevisionTimes>> {
        Some(self.times.clone())
    }

    fn progress_supported(&self) -> bool {
        true
    }

    fn backup(self: Arc<Self>) -> Option<BackupStream> {
        Some(Box::pin(self.backup_parts()))
    }

    async fn maintain(&self, cancel: CancellationToken) {
        self.maintain_until(cancel).await;
    }
}

#[cfg(test)]
mod tests;

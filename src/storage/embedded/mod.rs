//! The embedded back end: a durable, revisioned store in one file, over redb. It has etcd's
//! semantics and none of its network; one process owns a data directory. It does not cache values
//! for readers (the watch cache above does) and does not know what they mean.
//!
//! # Key operations
//!
//! - *Write*: queue → writer thread → one transaction for all that waits → commit → publish to the
//!   hub → answers. See `writer`.
//! - *Read*: an MVCC snapshot. A single key is read where it is asked for (a few pages); lists and
//!   history go to threads that may block. See `snapshot`.
//! - *Watch*: a cursor on the log. See `watch` and `hub`.
//! - *Open*: the whole file is verified before anything of it is served. See `data`.

mod codec;
mod data;
mod error;
mod hub;
mod maintain;
mod snapshot;
mod sparse;
mod tables;
mod watch;
mod witness;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use parking_lot::Mutex;
use redb::StorageBackend;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::data::Data;
pub use self::data::{DATA_FILE, WITNESS_FILE};
pub use self::error::OpenError;
use self::hub::Hub;
use self::sparse::Sparse;
use self::watch::Cursor;
use self::witness::Witness;
use self::writer::{BATCH_OPS_MAX, Op, Reply, Writer, WriterStatus};
use super::{KeyValue, ListPage, ListRequest, Outcome, Put, Storage, StorageError, StorageWatch};
use crate::api::{ResourceVersion, StorageKey};
use crate::tasks::Tasks;

/// The largest value: what etcd takes by default in one request, so that a store can be moved from
/// one back end to the other.
pub const VALUE_BYTES_MAX: usize = 1_572_864;

/// When a write is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before it is acknowledged.
    #[default]
    Fsync,
    /// At most this long after it was acknowledged, while `maintain` runs; sooner at shutdown. A
    /// crash, of the process or of the machine, loses what came after the last flush, and leaves the
    /// state of that flush. Its revisions are not given again: the store goes on at a later one,
    /// without history, so that whoever has seen what was lost lists anew. Zero is `Fsync`.
    Interval(Duration),
    /// At shutdown, and about once a minute. A crash loses as much.
    None,
}

/// How an embedded store works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedConfig {
    /// When a write is on disk.
    pub durability: Durability,
    /// Each interval history is compacted to where the store was an interval ago, so that it lives
    /// for one to two intervals (semantics §2.4, of one process). Zero turns that off.
    pub compaction_interval: Duration,
}

impl Default for EmbeddedConfig {
    /// `Fsync`, and five minutes as the API server's `--etcd-compaction-interval`.
    fn default() -> Self {
        Self {
            durability: Durability::Fsync,
            compaction_interval: Duration::from_secs(5 * 60),
        }
    }
}

/// An open store. Dropping it ends its watches, waits for reads under way, flushes, and frees the data
/// directory.
#[derive(Debug)]
pub struct Embedded {
    name: &'static str,
    config: EmbeddedConfig,
    data: Arc<Data>,
    hub: Arc<Hub>,
    status: Arc<WriterStatus>,
    clock: Clock,
    tasks: Tasks,
    /// `None` once dropped, which tells the writer to end. See [`Writer::run`] for the queue.
    queue: Option<mpsc::Sender<Op>>,
    /// The writer is a thread of its own, owned and joined here: it blocks on the disk all its life
    /// and must outlive the runtime's shutdown to flush.
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Embedded {
    /// Opens the store in `directory`, making it when there is none. Blocks while the data file is
    /// verified: a few milliseconds for a small store, one to two seconds for each GiB.
    ///
    /// # Errors
    /// [`OpenError`]; a damaged store is not opened.
    pub fn open(directory: &Path, config: EmbeddedConfig) -> Result<Arc<Self>, OpenError> {
        let (data, witness) = Data::open(directory)?;
        Ok(Arc::new(Self::start("embedded", config, data, witness)?))
    }

    /// A store without a disk.
    pub(super) fn in_memory(compaction_interval: Duration) -> Result<Self, OpenError> {
        Self::on(Sparse::default(), compaction_interval)
    }

    fn on(backend: impl StorageBackend, compaction_interval: Duration) -> Result<Self, OpenError> {
        let config = EmbeddedConfig {
            // There is no disk to be waited for; a commit is done when it is made.
            durability: Durability::Fsync,
            compaction_interval,
        };
        Self::start("memory", config, Data::on(backend)?, None)
    }

    fn start(
        name: &'static str,
        config: EmbeddedConfig,
        data: Data,
        mut witness: Option<Witness>,
    ) -> Result<Self, OpenError> {
        let file = Path::new(data.name()).to_owned();
        let durability = match config.durability {
            Durability::Interval(Duration::ZERO) => Durability::Fsync,
            durability => durability,
        };
        let numbers = writer::prepare(&data, durability)
            .map_err(|fault| OpenError::from_fault(&file, fault))?;
        let revision = numbers.revision;
        let data = Arc::new(data);
        let hub = Arc::new(Hub::new(revision));
        let status = Arc::new(WriterStatus {
            // "Now": the first round of expiry finds out what is due.
            next_deadline_ms: AtomicU64::new(0),
            ..WriterStatus::default()
        });
        if let Some(witness) = &mut witness {
            // From now on the file's absence is noticed.
            let noted = witness.note(revision);
            noted.map_err(|error| OpenError::io(&file, error))?;
        }
        let (queue, ops) = mpsc::channel(BATCH_OPS_MAX);
        let writer = Writer {
            data: data.clone(),
            hub: hub.clone(),
            status: status.clone(),
            witness,
            durability,
            unflushed: false,
            collecting: numbers.collected < numbers.compacted,
            last_ops: 0,
            ceiling: numbers.ceiling,
        };
        let thread = std::thread::Builder::new()
            .name(format!("{name}-writer"))
            .spawn(move || writer.run(ops))
            .map_err(|error| OpenError::io(&file, error))?;
        Ok(Self {
            name,
            config,
            data,
            hub,
            status,
            clock: Clock::start(),
            tasks: Tasks::new(),
            queue: Some(queue),
            writer: Mutex::new(Some(thread)),
        })
    }

    fn next_deadline_ms(&self) -> u64 {
        self.status.next_deadline_ms.load(Ordering::Relaxed)
    }

    /// Hands an operation to the writer and waits for its answer. An operation whose caller goes
    /// away before it was queued is not made; once queued it is.
    async fn ask<T>(&self, op: impl FnOnce(Reply<T>) -> Op) -> Result<T, StorageError> {
        let stopped = || {
            let failed = self.status.failed();
            failed.unwrap_or_else(|| StorageError::Unavailable("the store has closed".to_owned()))
        };
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(op(reply)).await.map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.hub.close();
        self.queue = None;
        let writer = self.writer.get_mut().take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!(store = self.name, "the store's writer has panicked");
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
        self.data.read(|snapshot| {
            let revision = ResourceVersion::new(snapshot.revision);
            Ok((snapshot.get(key)?, revision))
        })
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        let data = self.data.clone();
        let read = move || data.read(|snapshot| snapshot.list(&request));
        self.tasks
            .spawn_blocking("list", read)
            .await
            .unwrap_or_else(|error| Err(StorageError::Unavailable(error.to_string())))
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        if put.value.len() > VALUE_BYTES_MAX {
            return Err(StorageError::TooLarge {
                detail: format!("{} bytes; at most {VALUE_BYTES_MAX}", put.value.len()),
                key: put.key,
            });
        }
        let expires_ms = put.ttl.map_or(0, |ttl| self.clock.after_ms(ttl));
        self.ask(|reply| Op::Put(put, expires_ms, reply)).await
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        let key = key.clone();
        self.ask(|reply| Op::Delete(key, expect, reply)).await
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        self.data.read(|snapshot| snapshot.exists(after.get()))?;
        let cursor = Cursor::new(
            self.hub.clone(),
            &self.data,
            self.tasks.clone(),
            prefix.clone(),
            after.get(),
        );
        Ok(cursor.into_watch())
    }

    /// Read from the tables, and only from a store that can be written: health checks ask it.
    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        if let Some(failed) = self.status.failed() {
            return Err(failed);
        }
        let revision = self.data.read(|snapshot| Ok(snapshot.revision))?;
        Ok(ResourceVersion::new(revision))
    }

    fn known_revision(&self) -> Option<Result<ResourceVersion, StorageError>> {
        Some(self.data.newest().map(ResourceVersion::new))
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        self.ask(|reply| Op::Compact(at, reply)).await
    }

    async fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        self.data.size_bytes()
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.data
            .read(|snapshot| Ok(ResourceVersion::new(snapshot.compacted)))
    }

    fn progress_supported(&self) -> bool {
        true
    }

    async fn maintain(&self, cancel: CancellationToken) {
        self.maintain_until(cancel).await;
    }
}

/// The time of day, for deadlines that must survive a restart, as Tokio's clock goes on from the
/// moment the store was opened: it can be paused, and a step of the system's clock expires nothing.
#[derive(Debug, Clone, Copy)]
struct Clock {
    opened: Instant,
    opened_ms: u64,
}

impl Clock {
    fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            opened: Instant::now(),
            // A clock before 1970 is no clock; deadlines then count from the epoch.
            opened_ms: since_epoch.map_or(0, saturating_ms),
        }
    }

    fn now_ms(&self) -> u64 {
        self.opened_ms
            .saturating_add(saturating_ms(self.opened.elapsed()))
    }

    /// The time `ttl` from now, never 0 ("no deadline") and never `u64::MAX` ("none at all").
    fn after_ms(&self, ttl: Duration) -> u64 {
        let deadline = self.now_ms().saturating_add(saturating_ms(ttl));
        deadline.clamp(1, u64::MAX - 1)
    }
}

fn saturating_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

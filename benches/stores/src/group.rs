//! Group commit: a thread that takes all waiting writes, up to 256, and makes one durable commit for them, as the writer of
//! `watchet_storage::embedded` does. The stores without a log of watchet's use it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::record::{self, Head};
use crate::stores::{Engine, Transaction};

/// Maximum number of writes per commit.
const BATCH_WRITES_MAX: usize = 256;

/// Maximum number of records that one commit deletes.
const DELETED_RECORDS_MAX: usize = 4_096;

/// How long a commit waits for as many writes as the one before it had.
const GATHER_MAX: Duration = Duration::from_micros(150);

/// A write of a key.
struct Write {
    key: String,
    value: Bytes,
    /// The revision of the last write; `None` if the key must not exist.
    expected: Option<u64>,
}

enum Operation {
    Write(Write, oneshot::Sender<Result<u64>>),
    /// Deletes all records that are not the last of their key.
    Compact(oneshot::Sender<Result<()>>),
}

/// A store with group commit.
pub(crate) struct Group {
    queue: mpsc::Sender<Operation>,
}

struct Writer {
    engine: Box<dyn Engine>,
    revision: u64,
    /// The revisions of the records that are not the last of their key.
    superseded: Vec<u64>,
    /// The number of writes in the last commit.
    last_writes: usize,
}

impl Group {
    /// Starts the thread on an empty store.
    pub(crate) fn start(
        open: fn(&Path) -> Result<Box<dyn Engine>>,
        directory: &Path,
    ) -> Result<Self> {
        let (queue, operations) = mpsc::channel(BATCH_WRITES_MAX);
        let writer = Writer {
            engine: open(directory)?,
            revision: 1,
            superseded: Vec::new(),
            last_writes: 0,
        };
        std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || writer.run(operations))?;
        Ok(Self { queue })
    }

    /// Returns the revision of the write once it is on disk.
    pub(crate) async fn put(
        &self,
        key: String,
        value: Bytes,
        expected: Option<u64>,
    ) -> Result<u64> {
        let (reply, revision) = oneshot::channel();
        let write = Write {
            key,
            value,
            expected,
        };
        let sent = self.queue.send(Operation::Write(write, reply)).await;
        sent.ok().context("the writer has ended")?;
        revision.await?
    }

    /// Deletes the history.
    pub(crate) async fn compact(&self) -> Result<()> {
        let (reply, done) = oneshot::channel();
        let sent = self.queue.send(Operation::Compact(reply)).await;
        sent.ok().context("the writer has ended")?;
        done.await?
    }
}

impl Writer {
    fn run(mut self, mut queue: mpsc::Receiver<Operation>) {
        while let Some(first) = queue.blocking_recv() {
            self.gather(&queue);
            let mut writes = Vec::new();
            let mut next = Some(first);
            while let Some(operation) = next {
                match operation {
                    Operation::Write(write, reply) => writes.push((write, reply)),
                    // Its receiver waits for it.
                    Operation::Compact(reply) => drop(reply.send(self.compact())),
                }
                next = match writes.len() < BATCH_WRITES_MAX {
                    true => queue.try_recv().ok(),
                    false => None,
                };
            }
            self.last_writes = writes.len();
            self.commit(writes);
        }
    }

    /// Waits briefly for the clients of the last commit to write again.
    fn gather(&self, queue: &mpsc::Receiver<Operation>) {
        let start = Instant::now();
        while queue.len() + 1 < self.last_writes && start.elapsed() < GATHER_MAX {
            std::thread::yield_now();
        }
    }

    fn commit(&mut self, writes: Vec<(Write, oneshot::Sender<Result<u64>>)>) {
        let first = self.revision + 1;
        let mut superseded = Vec::new();
        let committed = self.engine.commit(&mut |transaction| {
            for (revision, (write, _)) in (first..).zip(&writes) {
                superseded.extend(apply(transaction, write, revision)?);
            }
            Ok(())
        });
        self.superseded.extend(superseded);
        self.revision += writes.len() as u64;
        for (revision, (_, reply)) in (first..).zip(writes) {
            let result = committed.as_ref().map(|()| revision);
            // The receiver waits for it.
            drop(reply.send(result.map_err(|error| anyhow::anyhow!("{error:#}"))));
        }
    }

    fn compact(&mut self) -> Result<()> {
        for revisions in std::mem::take(&mut self.superseded).chunks(DELETED_RECORDS_MAX) {
            self.engine.commit(&mut |transaction| {
                revisions
                    .iter()
                    .try_for_each(|revision| transaction.delete_record(*revision))
            })?;
        }
        Ok(())
    }
}

/// Makes a write if its key is as expected. Reads the previous value, as watchet does for its watches. Returns the revision
/// of the previous record.
fn apply(transaction: &mut dyn Transaction, write: &Write, revision: u64) -> Result<Option<u64>> {
    let key = &*write.key;
    let head = match transaction.head(key)? {
        Some(bytes) => Some(Head::decode(key, &bytes)?),
        None => None,
    };
    let previous = head.map(|head| head.modified);
    if previous != write.expected {
        bail!("{key} is at {previous:?}, not {:?}", write.expected);
    }
    if let Some(previous) = previous {
        let bytes = transaction
            .record(previous)?
            .context("a record is missing")?;
        Bytes::copy_from_slice(record::decode(previous, key, &bytes)?);
    }
    let created = head.map_or(revision, |head| head.created);
    let record = record::encode(revision, key, &write.value, created, previous.unwrap_or(0));
    let head = Head {
        modified: revision,
        created,
    };
    transaction.put(key, &head.encode(key), revision, &record)?;
    Ok(previous)
}

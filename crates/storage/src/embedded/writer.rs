//! The writer: one thread that makes all changes, many per transaction (group commit). While a
//! commit waits for the disk, further operations queue up for the next one. Responses are sent
//! after the commit, so acknowledged writes are as durable as configured.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::config::Durability;
use super::data::Data;
use super::error::{Fault, catch_damage};
use super::hub::Hub;
use super::revision_file::RevisionFile;
use super::tables::BATCH_OPS_MAX;
use super::tables::{self, Numbers, Tables};
use crate::{Outcome, Put, StorageError, StorageEvent};
use watchet_api::{ResourceVersion, StorageKey};

/// The delay between attempts to open the file again after a failure: short for an operator who
/// frees space, long enough that verifying a large file costs little.
pub(super) const REOPEN_PAUSE: Duration = Duration::from_secs(5);

/// Bytes of values after which a transaction accepts no further operation.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// How long a transaction waits for as many operations as the previous one had: less than a sync on
/// a fast disk, more than clients need to write again.
const GATHER_MAX: Duration = Duration::from_micros(150);

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
    /// Syncs all commits to disk.
    Flush(Reply<()>),
    /// Syncs all commits as the last operation before shutdown or a pause: a store opened from this
    /// state has lost nothing.
    FlushAndLowerCeiling(Reply<()>),
    /// Opens the file again if the system has failed.
    Reopen(Reply<()>),
}

impl Op {
    fn bytes(&self) -> usize {
        match self {
            Self::Put(put, ..) => put.value.len(),
            _ => 0,
        }
    }
}

/// An operation whose response waits for the commit.
enum Pending {
    Write(Reply<Outcome>, Outcome),
    Expired(Reply<usize>, usize),
    Done(Reply<()>),
}

impl Pending {
    /// Sends the response. The receiver may have been dropped.
    fn answer(self, committed: &Result<(), StorageError>) {
        let failed = committed.clone().err();
        match self {
            Self::Write(reply, outcome) => drop(reply.send(failed.map_or(Ok(outcome), Err))),
            Self::Expired(reply, count) => drop(reply.send(failed.map_or(Ok(count), Err))),
            Self::Done(reply) => drop(reply.send(failed.map_or(Ok(()), Err))),
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
}

impl WriterStatus {
    /// Returns the reason why the writer rejects writes, if it does.
    pub(super) fn failed(&self) -> Option<StorageError> {
        self.failed.lock().clone()
    }
}

/// The writer thread's state.
pub(super) struct WriterThread {
    pub(super) data: Arc<Data>,
    pub(super) hub: Arc<Hub>,
    pub(super) status: Arc<WriterStatus>,
    pub(super) revision_file: Option<RevisionFile>,
    pub(super) durability: Durability,
    /// True if commits wait for a flush.
    pub(super) unflushed: bool,
    /// True if compacted records wait to be deleted.
    pub(super) collecting: bool,
    /// The number of operations in the last transaction.
    pub(super) last_ops: usize,
    /// The ceiling on disk. See `tables`.
    pub(super) ceiling: u64,
}

/// Prepares an opened file for writes with this durability and returns its numbers.
pub(super) fn prepare(data: &Data, durability: Durability) -> Result<Numbers, Fault> {
    catch_damage(|| {
        let txn = data.begin_write(true)?;
        let mut tables = Tables::open(&txn)?;
        let lost_after = tables.skip_lost_revisions()?;
        if durability != Durability::Fsync {
            tables.raise_ceiling();
        }
        let (numbers, _, changed) = tables.finish()?;
        match changed {
            true => txn.commit()?,
            false => txn.abort()?,
        }
        data.raise_newest(numbers.revision);
        if let Some(found) = lost_after {
            let (store, revision) = (data.name(), numbers.revision);
            tracing::warn!(
                store,
                found,
                revision,
                "the store did not wait for its disk and was not closed: what it acknowledged \
                 last may be lost; it goes on at a later revision, without history"
            );
        }
        Ok(numbers)
    })
}

impl WriterThread {
    /// Runs until the sender is dropped, then flushes.
    ///
    /// The queue: the sender is `Embedded`, the receiver this thread, the capacity
    /// [`BATCH_OPS_MAX`] (one transaction); senders wait while it is full.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Op>) {
        loop {
            let first = if self.collecting {
                match queue.try_recv() {
                    Ok(op) => Some(op),
                    Err(mpsc::error::TryRecvError::Empty) => None,
                    // Remaining compacted records are deleted after the next open.
                    Err(mpsc::error::TryRecvError::Disconnected) => break,
                }
            } else {
                match queue.blocking_recv() {
                    Some(op) => Some(op),
                    None => break,
                }
            };
            self.gather(&queue);
            let mut ops: VecDeque<_> = first.into_iter().collect();
            let mut bytes: usize = ops.iter().map(Op::bytes).sum();
            while ops.len() < BATCH_OPS_MAX && bytes < BATCH_BYTES_MAX {
                let Ok(op) = queue.try_recv() else { break };
                bytes += op.bytes();
                ops.push_back(op);
            }
            self.last_ops = ops.len();
            self.batch(ops);
        }
        // After a failure the remaining writes are lost already.
        if self.durability != Durability::Fsync && self.status.failed().is_none() {
            self.batch(VecDeque::from([Op::FlushAndLowerCeiling(
                oneshot::channel().0,
            )]));
        }
    }

    /// Waits briefly for clients whose writes were acknowledged together to write again. Otherwise
    /// the first of them gets its own commit, and all others wait for two. A single client, as in
    /// the previous transaction, does not wait.
    fn gather(&self, queue: &mpsc::Receiver<Op>) {
        let start = Instant::now();
        while queue.len() + 1 < self.last_ops && start.elapsed() < GATHER_MAX {
            std::thread::yield_now();
        }
    }

    /// Executes `ops` in one transaction, publishes the events and responds.
    fn batch(&mut self, mut ops: VecDeque<Op>) {
        if ops.iter().any(|op| matches!(op, Op::Reopen(_))) {
            self.recover();
        }
        let mut pending = Vec::with_capacity(ops.len());
        let made = match self.status.failed() {
            Some(error) => Err(error),
            None => catch_damage(|| self.transact(&mut ops, &mut pending))
                .map_err(|fault| self.fail(fault)),
        };
        let committed = made.map(|events| self.hub.publish(events));
        // Executed operations may be on disk nevertheless; the others are not.
        let unsure = committed.clone().map_err(|error| match error {
            StorageError::Failed(detail) => StorageError::Unavailable(detail),
            error => error,
        });
        for op in pending {
            op.answer(&unsure);
        }
        if let Err(error) = committed {
            self.collecting = false;
            for op in ops {
                reject(op, error.clone());
            }
        }
    }

    /// Records a failure. A failed transaction leaves the file in an unknown state, so no more
    /// writes are accepted until it is open again. See [`Self::recover`].
    fn fail(&mut self, fault: Fault) -> StorageError {
        let error = match fault.name_file(self.data.name()) {
            StorageError::Failed(detail) => StorageError::Failed(format!(
                "{detail}; nothing is written until the store could be opened again, which is \
                 tried every {REOPEN_PAUSE:?}"
            )),
            error => error,
        };
        tracing::error!(error = %error, "writer of the store failed");
        *self.status.failed.lock() = Some(error.clone());
        self.status.has_failed.notify_one();
        error
    }

    /// Opens the file again after a system failure (disk full, I/O error). A damaged file stays
    /// closed.
    fn recover(&mut self) {
        if !matches!(self.status.failed(), Some(StorageError::Failed(_))) {
            return;
        }
        match catch_damage(|| self.reopen()) {
            Ok(events) => {
                tracing::info!(found = events.len(), "store is open again after a failure");
                *self.status.failed.lock() = None;
                self.unflushed = false;
                // The next transaction determines whether collection is due.
                self.collecting = true;
                self.hub.publish(events);
            }
            Err(fault) => drop(self.fail(fault)),
        }
    }

    /// Opens the file again and returns the events that it has but that were not published: the
    /// failed transaction, if it reached the disk. A store without durability may have lost
    /// published events; its watches end, and it continues above their revisions.
    fn reopen(&mut self) -> Result<Vec<StorageEvent>, Fault> {
        let revision = self.data.reopen()?;
        let published = self.hub.published();
        if revision < published && self.durability != Durability::Fsync {
            let numbers = prepare(&self.data, self.durability)?;
            self.ceiling = numbers.ceiling;
            self.hub.restart(numbers.revision);
            return Ok(Vec::new());
        }
        if revision < published {
            return Err(Fault::Damaged(format!(
                "after a failure it is at revision {revision}, but {published} was acknowledged"
            )));
        }
        let (mut events, mut read) = (Vec::new(), published);
        while read < revision {
            let found = self
                .data
                .read(|snapshot| snapshot.history_of(|_| true, read + 1, revision))?;
            events.extend(found.0);
            read = found.1;
        }
        Ok(events)
    }

    /// Executes one transaction. Removes its operations from `ops`; those without a response yet
    /// are in `pending`.
    fn transact(
        &mut self,
        ops: &mut VecDeque<Op>,
        pending: &mut Vec<Pending>,
    ) -> Result<Vec<StorageEvent>, Fault> {
        let rest = ops
            .iter()
            .any(|op| matches!(op, Op::FlushAndLowerCeiling(_)));
        let flush = rest || ops.iter().any(|op| matches!(op, Op::Flush(_)));
        let compact = |op: &Op| matches!(op, Op::Compact(..));
        let collect = self.collecting || ops.iter().any(compact);
        let fsync = self.durability == Durability::Fsync;
        let durable = flush || fsync || tables::is_near_ceiling(self.hub.published(), self.ceiling);
        let txn = self.data.begin_write(durable)?;
        let mut tables = Tables::open(&txn)?;
        while let Some(op) = ops.pop_front() {
            self.apply(&mut tables, op, pending)?;
        }
        let collect = collect && self.collect(&mut tables)?;
        let next_deadline_ms = tables.next_deadline_ms()?;
        if durable && !fsync {
            match rest {
                true => tables.lower_ceiling(),
                false => tables.raise_ceiling(),
            }
        }
        let (numbers, events, changed) = tables.finish()?;
        if changed || (flush && self.unflushed) {
            txn.commit()?;
            self.data.raise_newest(numbers.revision);
            self.unflushed = !durable;
            self.ceiling = numbers.ceiling;
            self.record(&numbers, durable);
        } else {
            txn.abort()?;
        }
        self.collecting = collect && numbers.collected < numbers.compacted;
        let before = self
            .status
            .next_deadline_ms
            .swap(next_deadline_ms, Ordering::Relaxed);
        if next_deadline_ms < before {
            self.status.deadline_changed.notify_one();
        }
        Ok(events)
    }

    /// Executes one operation.
    fn apply(
        &self,
        tables: &mut Tables<'_>,
        op: Op,
        pending: &mut Vec<Pending>,
    ) -> Result<(), Fault> {
        match op {
            Op::Put(put, expires_ms, reply) => {
                let result = tables.put(put, expires_ms);
                self.defer_reply(result, reply, pending, Pending::Write)
            }
            Op::Delete(key, expect, reply) => {
                let result = tables.delete(key, expect);
                self.defer_reply(result, reply, pending, Pending::Write)
            }
            Op::Compact(at, reply) => {
                let result = tables.compact(at);
                self.defer_reply(result, reply, pending, |reply, ()| Pending::Done(reply))
            }
            Op::Expire(now_ms, reply) => {
                let result = tables.expire(now_ms);
                self.defer_reply(result, reply, pending, Pending::Expired)
            }
            Op::Flush(reply) | Op::FlushAndLowerCeiling(reply) | Op::Reopen(reply) => {
                pending.push(Pending::Done(reply));
                Ok(())
            }
        }
    }

    /// Defers a response until after the commit. An operation that found damage or was invalid is
    /// answered immediately; a write that failed half-way fails the transaction.
    fn defer_reply<T>(
        &self,
        result: Result<T, Fault>,
        reply: Reply<T>,
        pending: &mut Vec<Pending>,
        keep: impl FnOnce(Reply<T>, T) -> Pending,
    ) -> Result<(), Fault> {
        let fault = match result {
            Ok(answer) => {
                pending.push(keep(reply, answer));
                return Ok(());
            }
            Err(fault) => fault,
        };
        let failed = matches!(fault, Fault::Failed(_));
        let error = fault.name_file(self.data.name());
        // The receiver may have been dropped.
        drop(reply.send(Err(error.clone())));
        if failed {
            return Err(Fault::Storage(error));
        }
        Ok(())
    }

    /// Deletes some compacted records and returns true if there may be more.
    fn collect(&self, tables: &mut Tables<'_>) -> Result<bool, Fault> {
        match tables.collect() {
            Ok(()) => Ok(true),
            // Only compacted data is damaged: writes continue, collection stops.
            Err(Fault::Damaged(detail)) => {
                let error = Fault::Damaged(detail).name_file(self.data.name());
                tracing::error!(error = %error, "cannot delete compacted history");
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Records the durable revision. A failure is not fatal, because the file is only a check.
    fn record(&mut self, numbers: &Numbers, durable: bool) {
        let Some(revision_file) = self.revision_file.as_mut().filter(|_| durable) else {
            return;
        };
        if let Err(error) = revision_file.record(numbers.revision) {
            tracing::warn!(error = %error, "cannot write the store's revision file");
        }
    }
}

fn reject(op: Op, error: StorageError) {
    match op {
        Op::Put(_, _, reply) | Op::Delete(_, _, reply) => drop(reply.send(Err(error))),
        Op::Compact(_, reply)
        | Op::Flush(reply)
        | Op::FlushAndLowerCeiling(reply)
        | Op::Reopen(reply) => drop(reply.send(Err(error))),
        Op::Expire(_, reply) => drop(reply.send(Err(error))),
    }
}

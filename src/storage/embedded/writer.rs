//! The writer: one thread that makes every change, many in one transaction (group commit). While
//! a commit waits for the disk the next operations gather in the queue, and share the next one.
//! Answers go out after the commit, so that what was acknowledged is as durable as configured.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::Durability;
use super::data::Data;
use super::error::{Fault, guarded};
use super::hub::Hub;
use super::maintain::REOPEN_PAUSE;
use super::tables::{self, Numbers, Tables};
use super::witness::Witness;
use crate::api::{ResourceVersion, StorageKey};
use crate::storage::{Outcome, Put, StorageError, StorageEvent};

/// Operations in one transaction at most: enough that the cost of the sync is shared by all who
/// can wait at once, few enough that the first of them does not wait for long.
pub(super) const BATCH_OPS_MAX: usize = 256;

/// Bytes of values after which a transaction takes no further operation.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// How long a transaction waits for as many operations as the last one had: less than a sync costs
/// on a fast disk, more than tasks take to be woken and write again.
const GATHER_MAX: Duration = Duration::from_micros(150);

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StorageError>>;

/// What can be asked of the writer.
pub(super) enum Op {
    /// A conditional put, with its deadline in milliseconds since the epoch (0: none).
    Put(Put, u64, Reply<Outcome>),
    /// A conditional delete.
    Delete(StorageKey, ResourceVersion, Reply<Outcome>),
    /// Forget history before this revision.
    Compact(ResourceVersion, Reply<()>),
    /// Delete the keys whose deadline is this or before; the answer is how many.
    Expire(u64, Reply<usize>),
    /// Bring everything to disk.
    Flush(Reply<()>),
    /// The same, as the last thing for now: a store that is opened from here has lost nothing.
    Rest(Reply<()>),
    /// Open the file again, if the system has failed.
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

/// An operation whose answer waits for the commit.
enum Settled {
    Write(Reply<Outcome>, Outcome),
    Expired(Reply<usize>, usize),
    Done(Reply<()>),
}

impl Settled {
    /// Answers. That the asker has gone is no error: a write it no longer waits for is still made.
    fn answer(self, committed: &Result<(), StorageError>) {
        let failed = committed.clone().err();
        match self {
            Self::Write(reply, outcome) => drop(reply.send(failed.map_or(Ok(outcome), Err))),
            Self::Expired(reply, count) => drop(reply.send(failed.map_or(Ok(count), Err))),
            Self::Done(reply) => drop(reply.send(failed.map_or(Ok(()), Err))),
        }
    }
}

/// What the writer shows to the async side.
#[derive(Debug, Default)]
pub(super) struct WriterStatus {
    /// The first deadline, in milliseconds since the epoch; `u64::MAX` for none.
    pub(super) next_deadline_ms: AtomicU64,
    /// Told when the first deadline has become earlier.
    pub(super) deadline_changed: Notify,
    /// Why the writer takes no writes now.
    pub(super) failed: Mutex<Option<StorageError>>,
    /// Told when the writer has failed.
    pub(super) has_failed: Notify,
}

impl WriterStatus {
    /// Why the writer takes no writes now.
    pub(super) fn failed(&self) -> Option<StorageError> {
        self.failed.lock().clone()
    }
}

/// The writer thread's state.
pub(super) struct Writer {
    pub(super) data: Arc<Data>,
    pub(super) hub: Arc<Hub>,
    pub(super) status: Arc<WriterStatus>,
    pub(super) witness: Option<Witness>,
    pub(super) durability: Durability,
    /// Whether commits wait for a flush.
    pub(super) unflushed: bool,
    /// Whether compacted history waits to be deleted.
    pub(super) collecting: bool,
    /// How many operations the last transaction had.
    pub(super) last_ops: usize,
    /// As it is on disk. See `tables`.
    pub(super) ceiling: u64,
}

/// Makes a file that was just opened ready for being written with this durability. Returns its numbers.
pub(super) fn prepare(data: &Data, durability: Durability) -> Result<Numbers, Fault> {
    guarded(|| {
        let txn = data.begin_write(true)?;
        let mut tables = Tables::open(&txn)?;
        let lost_after = tables.leap()?;
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

impl Writer {
    /// Works until the other side of the queue is dropped, then flushes.
    ///
    /// The queue: `Embedded`'s methods send, this thread receives, capacity [`BATCH_OPS_MAX`] (one
    /// transaction's worth gathers while another commits); when it is full, senders wait.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Op>) {
        loop {
            let first = if self.collecting {
                match queue.try_recv() {
                    Ok(op) => Some(op),
                    Err(mpsc::error::TryRecvError::Empty) => None,
                    // What is left to delete is deleted after the next open.
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
        // What failed has nothing to bring to disk but what is lost already.
        if self.durability != Durability::Fsync && self.status.failed().is_none() {
            self.batch(VecDeque::from([Op::Rest(oneshot::channel().0)]));
        }
    }

    /// Gives those who were answered together a moment to come again together. Without it the first
    /// of them gets a commit of its own and all others wait for two. Whoever writes alone, as the
    /// last transaction showed, is not kept waiting.
    fn gather(&self, queue: &mpsc::Receiver<Op>) {
        let start = Instant::now();
        while queue.len() + 1 < self.last_ops && start.elapsed() < GATHER_MAX {
            std::thread::yield_now();
        }
    }

    /// Makes `ops` in one transaction, publishes and answers.
    fn batch(&mut self, mut ops: VecDeque<Op>) {
        if ops.iter().any(|op| matches!(op, Op::Reopen(_))) {
            self.recover();
        }
        let mut settled = Vec::with_capacity(ops.len());
        let made = match self.status.failed() {
            Some(error) => Err(error),
            None => {
                guarded(|| self.transact(&mut ops, &mut settled)).map_err(|fault| self.fail(fault))
            }
        };
        let committed = made.map(|events| self.hub.publish(events));
        // What was tried may be on disk all the same; what was not tried is not.
        let unsure = committed.clone().map_err(|error| match error {
            StorageError::Failed(detail) => StorageError::Unavailable(detail),
            error => error,
        });
        for op in settled {
            op.answer(&unsure);
        }
        if let Err(error) = committed {
            self.collecting = false;
            for op in ops {
                refuse(op, error.clone());
            }
        }
    }

    /// A transaction that failed leaves the file as it was at best: only a new open can tell what
    /// is in it, so nothing more is written until there was one. See [`Self::recover`].
    fn fail(&mut self, fault: Fault) -> StorageError {
        let error = match fault.name_file(self.data.name()) {
            StorageError::Failed(detail) => StorageError::Failed(format!(
                "{detail}; nothing is written until the store could be opened again, which is \
                 tried every {REOPEN_PAUSE:?}"
            )),
            error => error,
        };
        tracing::error!(error = %error, "the store's writer has failed");
        *self.status.failed.lock() = Some(error.clone());
        self.status.has_failed.notify_one();
        error
    }

    /// After a failure of the system (disk full, I/O error), opens the file again and goes on. Damage
    /// stays.
    fn recover(&mut self) {
        if !matches!(self.status.failed(), Some(StorageError::Failed(_))) {
            return;
        }
        match guarded(|| self.reopen()) {
            Ok(events) => {
                tracing::info!(
                    found = events.len(),
                    "the store is open again after a failure"
                );
                *self.status.failed.lock() = None;
                self.unflushed = false;
                // Perhaps it was due, perhaps not; the next transaction finds out.
                self.collecting = true;
                self.hub.publish(events);
            }
            Err(fault) => drop(self.fail(fault)),
        }
    }

    /// Opens the file again, and returns what is in it that was never published: the transaction
    /// that failed, when it came as far as the disk. A store that does not wait for its disk can have
    /// lost what it published; its watches end, and begin anew above that.
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

    /// One transaction. What it took from `ops` and is not in `settled` was answered.
    fn transact(
        &mut self,
        ops: &mut VecDeque<Op>,
        settled: &mut Vec<Settled>,
    ) -> Result<Vec<StorageEvent>, Fault> {
        let rest = ops.iter().any(|op| matches!(op, Op::Rest(_)));
        let flush = rest || ops.iter().any(|op| matches!(op, Op::Flush(_)));
        let compact = |op: &Op| matches!(op, Op::Compact(..));
        let collect = self.collecting || ops.iter().any(compact);
        let fsync = self.durability == Durability::Fsync;
        let durable = flush || fsync || tables::is_near_ceiling(self.hub.published(), self.ceiling);
        let txn = self.data.begin_write(durable)?;
        let mut tables = Tables::open(&txn)?;
        while let Some(op) = ops.pop_front() {
            self.apply(&mut tables, op, settled)?;
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
            self.note(&numbers, durable);
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

    /// Makes one operation.
    fn apply(
        &self,
        tables: &mut Tables<'_>,
        op: Op,
        settled: &mut Vec<Settled>,
    ) -> Result<(), Fault> {
        match op {
            Op::Put(put, expires_ms, reply) => {
                let result = tables.put(put, expires_ms);
                self.settle(result, reply, settled, Settled::Write)
            }
            Op::Delete(key, expect, reply) => {
                let result = tables.delete(key, expect);
                self.settle(result, reply, settled, Settled::Write)
            }
            Op::Compact(at, reply) => {
                let result = tables.compact(at);
                self.settle(result, reply, settled, |reply, ()| Settled::Done(reply))
            }
            Op::Expire(now_ms, reply) => {
                let result = tables.expire(now_ms);
                self.settle(result, reply, settled, Settled::Expired)
            }
            Op::Flush(reply) | Op::Rest(reply) | Op::Reopen(reply) => {
                settled.push(Settled::Done(reply));
                Ok(())
            }
        }
    }

    /// Keeps an answer for after the commit. An operation that met something damaged, or asked for
    /// what cannot be, is answered alone; a write that failed half-way fails its transaction.
    fn settle<T>(
        &self,
        result: Result<T, Fault>,
        reply: Reply<T>,
        settled: &mut Vec<Settled>,
        keep: impl FnOnce(Reply<T>, T) -> Settled,
    ) -> Result<(), Fault> {
        let fault = match result {
            Ok(answer) => {
                settled.push(keep(reply, answer));
                return Ok(());
            }
            Err(fault) => fault,
        };
        let failed = matches!(fault, Fault::Failed(_));
        let error = fault.name_file(self.data.name());
        // That the asker has gone is no error.
        drop(reply.send(Err(error.clone())));
        if failed {
            return Err(Fault::Told(error));
        }
        Ok(())
    }

    /// Deletes some of what compaction forgot, and says whether that can go on.
    fn collect(&self, tables: &mut Tables<'_>) -> Result<bool, Fault> {
        match tables.collect() {
            Ok(()) => Ok(true),
            // The damage is in what is forgotten anyway: writes go on, deleting does not.
            Err(Fault::Damaged(detail)) => {
                let error = Fault::Damaged(detail).name_file(self.data.name());
                tracing::error!(error = %error, "compacted history cannot be deleted");
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Tells the witness. It is a second opinion, not the truth: without it the store goes on.
    fn note(&mut self, numbers: &Numbers, durable: bool) {
        let Some(witness) = self.witness.as_mut().filter(|_| durable) else {
            return;
        };
        if let Err(error) = witness.note(numbers.revision) {
            tracing::warn!(error = %error, "the store's witness file cannot be written");
        }
    }
}

fn refuse(op: Op, error: StorageError) {
    match op {
        Op::Put(_, _, reply) | Op::Delete(_, _, reply) => drop(reply.send(Err(error))),
        Op::Compact(_, reply) | Op::Flush(reply) | Op::Rest(reply) | Op::Reopen(reply) => {
            drop(reply.send(Err(error)))
        }
        Op::Expire(_, reply) => drop(reply.send(Err(error))),
    }
}

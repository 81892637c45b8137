//! The writer: one thread that makes all changes, many per batch (group commit). A batch is one frame
//! of the log and one sync. While it waits for the disk, further operations queue up for the next
//! one. Responses are sent after the sync, so acknowledged writes are as durable as configured.
//!
//! The changes are then in the active layer. When that is large enough, the writer freezes it, and
//! the checkpointer writes it to the tables. See `checkpointer`.

mod disk_space;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

pub(super) use self::disk_space::{SHRINK_LIVE_MAX, SHRINK_LIVE_MAX_AT_END};
use super::batch::{Batch, Changes};
use super::checkpointer::{Ceiling, Checkpointer};
use super::config::Durability;
use super::data::Data;
use super::deadlines::Deadlines;
use super::error::{Fault, catch_damage};
use super::hub::Hub;
use super::operation::{Op, Reply, WriterStatus};
use super::space::{AllowedWrites, Space};
use super::tables::{self, BATCH_OPS_MAX};
use super::wal::Wal;
use crate::{Outcome, StorageError};

/// Bytes of values after which a batch accepts no further operation.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// The size from which the active layer is written to the tables. A larger layer costs memory, and
/// time when the log is replayed; a smaller one more commits of the tables.
const CHECKPOINT_BYTES: usize = 4 << 20;
/// As [`CHECKPOINT_BYTES`], when the disk is nearly full: a smaller checkpoint needs less space.
const CHECKPOINT_BYTES_NO_SPACE: usize = 256 << 10;
/// The size from which writes wait until the frozen layer is in the tables.
const ACTIVE_BYTES_MAX: usize = 2 * CHECKPOINT_BYTES;

/// How long a batch waits for as many operations as the previous one had: less than a sync on a
/// fast disk, more than clients need to write again.
const GATHER_MAX: Duration = Duration::from_micros(150);

/// An operation whose response waits for the commit.
enum Pending {
    Write(Reply<Outcome>, Outcome),
    Expired(Reply<usize>, usize),
    Done(Reply<()>),
}

/// What is known about the changes of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// They are not in the log.
    NotLogged,
    /// The log may contain them: a write or a sync of the log has failed.
    Unknown,
    /// They are as durable as configured, and visible.
    Committed,
}

impl Pending {
    /// Sends the response. The receiver may have been dropped.
    fn answer(self, result: &Result<(), StorageError>, progress: Progress) {
        let is_write = !matches!(self, Self::Done(_));
        let failed = match (result.clone().err(), progress) {
            // A checkpoint failed, whose changes the log has. The store writes them when it opens its data
            // file again.
            (Some(StorageError::Failed(_)), Progress::Committed) if is_write => None,
            (Some(StorageError::Failed(detail)), Progress::Unknown) => {
                Some(StorageError::OutcomeUnknown(detail))
            }
            (failed, _) => failed,
        };
        match self {
            Self::Write(reply, outcome) => drop(reply.send(failed.map_or(Ok(outcome), Err))),
            Self::Expired(reply, count) => drop(reply.send(failed.map_or(Ok(count), Err))),
            Self::Done(reply) => drop(reply.send(failed.map_or(Ok(()), Err))),
        }
    }
}

/// The writer thread's state.
pub(super) struct WriterThread {
    pub(super) data: Arc<Data>,
    pub(super) hub: Arc<Hub>,
    pub(super) status: Arc<WriterStatus>,
    pub(super) durability: Durability,
    /// The log; `None` if writes do not wait for the disk.
    pub(super) wal: Option<Wal>,
    pub(super) deadlines: Deadlines,
    pub(super) checkpointer: Checkpointer,
    /// The space on the disk; `None` if there is no disk.
    pub(super) space: Option<Space>,
    /// The collected revision when the data file was made smaller the last time because the disk was
    /// full.
    pub(super) reclaimed_at: Option<u64>,
    /// True if a checkpoint is due, whatever the size of the active layer.
    pub(super) checkpoint_due: bool,
    /// The number of operations in the last batch.
    pub(super) last_ops: usize,
}

impl WriterThread {
    /// Runs until the sender is dropped, then flushes.
    ///
    /// The queue: the sender is `Embedded`, the receiver this thread, the capacity
    /// [`BATCH_OPS_MAX`] (one batch); senders wait while it is full.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Op>) {
        self.begin();
        while let Some(first) = queue.blocking_recv() {
            self.gather(&queue);
            self.batch_of(first, &mut queue);
        }
        self.end();
    }

    /// Writes the changes of a replayed log to the tables.
    pub(super) fn begin(&mut self) {
        self.report_space();
        if self.can_checkpoint() {
            if let Err(fault) = self.checkpoint_frozen() {
                self.status.fail(fault, self.data.name());
            }
        } else {
            self.checkpoint_due = true;
        }
    }

    /// Executes `first` and the operations that wait after it.
    pub(super) fn batch_of(&mut self, first: Op, queue: &mut mpsc::Receiver<Op>) {
        let mut bytes = first.bytes();
        let mut ops = VecDeque::from([first]);
        while ops.len() < BATCH_OPS_MAX && bytes < BATCH_BYTES_MAX {
            let Ok(op) = queue.try_recv() else { break };
            bytes += op.bytes();
            ops.push_back(op);
        }
        self.last_ops = ops.len();
        self.batch(ops, bytes);
    }

    /// Flushes, once the sender was dropped.
    pub(super) fn end(&mut self) {
        // After a failure the log has what was acknowledged.
        if self.data.is_on_disk() && self.status.failed().is_none() {
            let end = Op::FlushAndLowerCeiling(oneshot::channel().0);
            self.batch(VecDeque::from([end]), 0);
            self.reset_wal();
            self.shrink_at_end();
        }
    }

    /// Empties the log, whose frames are all in the tables, so that the data file is complete.
    fn reset_wal(&mut self) {
        if self.status.failed().is_some() || self.data.has_changes() {
            return;
        }
        if let Some(Err(detail)) = self.wal.as_mut().map(Wal::reset) {
            tracing::warn!(detail, "cannot empty the write-ahead log of the store");
        }
    }

    /// Waits briefly for clients whose writes were acknowledged together to write again. Otherwise
    /// the first of them gets its own sync, and all others wait for two. A single client, as in the
    /// previous batch, does not wait.
    fn gather(&self, queue: &mpsc::Receiver<Op>) {
        let start = Instant::now();
        while queue.len() + 1 < self.last_ops && start.elapsed() < GATHER_MAX {
            std::thread::yield_now();
        }
    }

    /// Executes `ops`, with values of `bytes` in total, publishes the events and responds.
    ///
    /// Not inlined, because scripts/instructions counts the instructions of this function, by its name.
    #[inline(never)]
    fn batch(&mut self, mut ops: VecDeque<Op>, bytes: usize) {
        if ops.iter().any(|op| matches!(op, Op::Reopen(_))) {
            self.recover();
        }
        for op in &ops {
            let work = match op {
                Op::Reclaim(_) => Self::reclaim,
                Op::Shrink(_) => Self::shrink,
                _ => continue,
            };
            if self.status.failed().is_none()
                && let Err(fault) = catch_damage(|| work(self))
            {
                self.status.fail(fault, self.data.name());
            }
        }
        let mut pending = Vec::with_capacity(ops.len());
        let mut progress = Progress::NotLogged;
        let made = match self.status.failed() {
            Some(error) => Err(error),
            None => catch_damage(|| self.execute(&mut ops, bytes, &mut pending, &mut progress))
                .map_err(|fault| self.status.fail(fault, self.data.name())),
        };
        for op in pending {
            op.answer(&made, progress);
        }
        if let Err(error) = made {
            for op in ops {
                reject(op, error.clone());
            }
        }
    }

    /// Opens the file again after a system failure (disk full, I/O error). A damaged file stays
    /// closed.
    fn recover(&mut self) {
        if !matches!(self.status.failed(), Some(StorageError::Failed(_))) {
            return;
        }
        if let Some(space) = &mut self.space
            && space.is_scarce(self.data.pending_bytes())
        {
            // The reserve has the space that the next attempt needs.
            space.raise_no_space();
        }
        self.report_space();
        match catch_damage(|| self.reopen()) {
            Ok(()) => {
                tracing::info!("store is open again after a failure");
                *self.status.failed.lock() = None;
            }
            Err(fault) => drop(self.status.fail(fault, self.data.name())),
        }
    }

    /// Opens the file again and writes everything that was acknowledged to the tables, whose sync
    /// does not depend on a log that failed. Then the log begins with an empty file, without the failed frame.
    fn reopen(&mut self) -> Result<(), Fault> {
        // Its failure is the reason, or is repeated below.
        drop(self.checkpointer.wait());
        self.data.reopen()?;
        self.checkpoint_all(self.ceiling())?;
        if let Some(wal) = &mut self.wal {
            wal.reset().map_err(Fault::Failed)?;
        }
        let deadlines = |snapshot| Deadlines::load(&snapshot);
        self.deadlines = self.data.with_snapshot(deadlines)?;
        Ok(())
    }

    /// Executes a batch. Removes its operations from `ops`; those without a response yet are in
    /// `pending`. `progress` is what is known about their changes if the result is an error.
    fn execute(
        &mut self,
        ops: &mut VecDeque<Op>,
        bytes: usize,
        pending: &mut Vec<Pending>,
        progress: &mut Progress,
    ) -> Result<(), Fault> {
        let lower = |op: &Op| matches!(op, Op::FlushAndLowerCeiling(_));
        let ceiling = match ops.iter().any(lower) && self.durability != Durability::Fsync {
            true => Ceiling::Lower,
            false => self.ceiling(),
        };
        let flush = ops.iter().any(|op| lower(op) || matches!(op, Op::Flush(_)));
        let writes = |op: &Op| matches!(op, Op::Put(..) | Op::Delete(..) | Op::Expire(..));
        if ops.iter().any(writes) {
            self.wait_for_space()?;
        }
        let allowed = match ops.iter().any(|op| matches!(op, Op::Put(..))) {
            true => self.check_space(bytes)?,
            false => AllowedWrites::All,
        };
        let (changes, next_deadline_ms) = self.data.with_snapshot(|snapshot| {
            let mut batch = Batch::begin(snapshot, &mut self.deadlines, ops.len(), bytes);
            batch.allow(allowed);
            while let Some(op) = ops.pop_front() {
                if matches!(op, Op::Compact(..) | Op::Checkpoint) {
                    self.checkpoint_due = true;
                }
                apply(&mut batch, op, &self.data, pending);
            }
            let next_deadline_ms = batch.next_deadline_ms();
            Ok((batch.finish(), next_deadline_ms))
        })?;
        // After the reads of this batch, which may have found it. No write is acknowledged then,
        // because no checkpoint can succeed.
        self.data.check_damage()?;
        if let Some(changes) = changes {
            *progress = Progress::Unknown;
            self.commit(changes)?;
        }
        *progress = Progress::Committed;
        if flush {
            self.checkpoint_all(ceiling)?;
        }
        self.checkpoint_if_due()?;
        let before = self
            .status
            .next_deadline_ms
            .swap(next_deadline_ms, Ordering::Relaxed);
        if next_deadline_ms < before {
            self.status.deadline_changed.notify_one();
        }
        Ok(())
    }

    /// Writes the frame of a batch to the log, and makes its changes visible once it is on disk.
    fn commit(&mut self, changes: Changes) -> Result<(), Fault> {
        let Changes {
            mut layer,
            frame,
            position,
            events,
        } = changes;
        if let Some(wal) = &mut self.wal {
            wal.append(&frame).map_err(Fault::Failed)?;
            self.data.record_durable(position.revision);
        }
        let written = frame.byte_len() as u64;
        self.status
            .written_bytes
            .fetch_add(written, Ordering::Relaxed);
        layer.push(frame);
        self.data.publish(layer, position);
        self.hub.publish(events);
        Ok(())
    }

    fn ceiling(&self) -> Ceiling {
        match self.durability {
            Durability::Fsync => Ceiling::Keep,
            Durability::Interval(_) | Durability::None => Ceiling::Raise,
        }
    }

    /// Waits while the layers are too large, and until the ceiling is high enough.
    fn wait_for_space(&mut self) -> Result<(), Fault> {
        if self.checkpointer.is_running()? && self.data.active_bytes() >= ACTIVE_BYTES_MAX {
            self.checkpointer.wait()?;
            self.checkpoint_if_due()?;
        }
        let near_ceiling = tables::is_near_ceiling(self.hub.published(), self.data.ceiling());
        if self.durability != Durability::Fsync && near_ceiling {
            self.checkpoint_all(Ceiling::Raise)?;
        }
        Ok(())
    }

    /// Begins a checkpoint of the active layer if it is due and none is running.
    fn checkpoint_if_due(&mut self) -> Result<(), Fault> {
        let bytes_max = match self.space.as_ref().is_some_and(Space::is_no_space) {
            true => CHECKPOINT_BYTES_NO_SPACE,
            false => CHECKPOINT_BYTES,
        };
        let due = self.checkpoint_due || self.data.active_bytes() >= bytes_max;
        if !due || self.checkpointer.is_running()? || !self.can_checkpoint() {
            return Ok(());
        }
        // A frozen layer waits if the disk had no space for it.
        self.checkpoint_due = self.data.frozen().is_some();
        if self.checkpoint_due {
            self.checkpoint_frozen()?;
        } else if self.data.has_changes() {
            self.checkpoint_active(self.ceiling())?;
        }
        Ok(())
    }

    /// Begins to write the active layer to the tables. There must be no frozen layer.
    fn checkpoint_active(&mut self, ceiling: Ceiling) -> Result<(), Fault> {
        let layer = self.data.freeze();
        if let Some(wal) = &mut self.wal {
            wal.rotate();
        }
        self.checkpointer.begin(layer, ceiling)
    }

    /// Begins to write the frozen layer to the tables, if there is one and no checkpoint is running.
    fn checkpoint_frozen(&mut self) -> Result<(), Fault> {
        if let Some(layer) = self.data.frozen() {
            self.checkpointer.begin(layer, self.ceiling())?;
        }
        Ok(())
    }

    /// Waits until the tables have all changes.
    fn checkpoint_all(&mut self, ceiling: Ceiling) -> Result<(), Fault> {
        self.checkpointer.wait()?;
        let is_needed = self.data.has_changes() || ceiling != Ceiling::Keep;
        if is_needed && !self.can_checkpoint() {
            let detail =
                "no space is left on the disk of the store, so its changes remain in the log";
            return Err(StorageError::Failed(detail.to_owned()).into());
        }
        self.checkpoint_frozen()?;
        self.checkpointer.wait()?;
        if self.data.has_changes() || ceiling != Ceiling::Keep {
            self.checkpoint_active(ceiling)?;
            self.checkpointer.wait()?;
        }
        Ok(())
    }
}

/// Executes one operation. Its response waits for the commit, except that an operation that found
/// damage or was invalid is answered immediately.
fn apply(batch: &mut Batch<'_>, op: Op, data: &Data, pending: &mut Vec<Pending>) {
    match op {
        Op::Put(put, expires_ms, reply) => {
            let result = batch.put(put, expires_ms);
            defer_reply(result, reply, data, pending, Pending::Write);
        }
        Op::Delete(key, expect, reply) => {
            let result = batch.delete(key, expect);
            defer_reply(result, reply, data, pending, Pending::Write);
        }
        Op::Compact(at, reply) => {
            let result = batch.compact(at);
            defer_reply(result, reply, data, pending, |reply, ()| {
                Pending::Done(reply)
            });
        }
        Op::Expire(now_ms, reply) => {
            let result = batch.expire(now_ms);
            defer_reply(result, reply, data, pending, Pending::Expired);
        }
        Op::Flush(reply)
        | Op::FlushAndLowerCeiling(reply)
        | Op::Reopen(reply)
        | Op::Reclaim(reply)
        | Op::Shrink(reply) => {
            pending.push(Pending::Done(reply));
        }
        Op::Checkpoint | Op::Checkpointed => {}
    }
}

fn defer_reply<T>(
    result: Result<T, Fault>,
    reply: Reply<T>,
    data: &Data,
    pending: &mut Vec<Pending>,
    keep: impl FnOnce(Reply<T>, T) -> Pending,
) {
    match result {
        Ok(answer) => pending.push(keep(reply, answer)),
        // The receiver may have been dropped.
        Err(fault) => drop(reply.send(Err(data.error(fault)))),
    }
}

fn reject(op: Op, error: StorageError) {
    match op {
        Op::Put(_, _, reply) | Op::Delete(_, _, reply) => drop(reply.send(Err(error))),
        Op::Compact(_, reply)
        | Op::Flush(reply)
        | Op::FlushAndLowerCeiling(reply)
        | Op::Reopen(reply)
        | Op::Reclaim(reply)
        | Op::Shrink(reply) => drop(reply.send(Err(error))),
        Op::Expire(_, reply) => drop(reply.send(Err(error))),
        Op::Checkpoint | Op::Checkpointed => {}
    }
}

//! The checkpointer: the thread that writes frozen layers to the tables and deletes compacted
//! records, so that the writer does neither.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::sync::mpsc::WeakSender;

use super::data::Data;
use super::error::{Fault, catch_damage};
use super::layer::FrozenLayer;
use super::operation::{Op, WriterStatus};
use super::tables::Tables;
use crate::StorageError;

/// The pause before compacted records are deleted, if the disk had no space for that.
const BLOCKED_PAUSE: Duration = Duration::from_millis(500);

/// What a checkpoint does with the ceiling. See `tables`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ceiling {
    /// Nothing: every acknowledged write is on disk.
    Keep,
    /// Raises it: writes go on without waiting for the disk.
    Raise,
    /// Lowers it to the last revision.
    Lower,
}

/// A layer to write to the tables.
struct Job {
    layer: Arc<FrozenLayer>,
    ceiling: Ceiling,
}

/// The writer's handle of the checkpointer. Dropping it ends the thread.
pub(super) struct Checkpointer {
    /// `None` once dropped. At most one job at a time.
    jobs: Option<SyncSender<Job>>,
    results: Receiver<Result<(), StorageError>>,
    is_running: bool,
    runner: Runner,
}

/// What runs the jobs.
enum Runner {
    /// A thread; `None` once dropped.
    Thread(Option<JoinHandle<()>>),
    /// The writer: a job runs when the writer looks whether it is complete, or later if `random` decides so.
    #[cfg(feature = "simulation")]
    Writer(Box<CheckpointThread>, Receiver<Job>, fastrand::Rng),
}

impl Checkpointer {
    /// Starts the thread. `queue` is notified after each job.
    pub(super) fn start(
        name: &str,
        data: Arc<Data>,
        status: Arc<WriterStatus>,
        queue: WeakSender<Op>,
    ) -> std::io::Result<Self> {
        let (jobs, received) = sync_channel(1);
        let (thread, results) = CheckpointThread::new(data, status, queue);
        let thread = Builder::new()
            .name(format!("{name}-checkpoint"))
            .spawn(move || thread.run(&received))?;
        Ok(Self {
            jobs: Some(jobs),
            results,
            is_running: false,
            runner: Runner::Thread(Some(thread)),
        })
    }

    /// Creates a checkpointer without a thread, whose times are decided by `random`.
    #[cfg(feature = "simulation")]
    pub(super) fn without_thread(
        data: Arc<Data>,
        status: Arc<WriterStatus>,
        queue: WeakSender<Op>,
        random: fastrand::Rng,
    ) -> Self {
        let (jobs, received) = sync_channel(1);
        let (thread, results) = CheckpointThread::new(data, status, queue);
        Self {
            jobs: Some(jobs),
            results,
            is_running: false,
            runner: Runner::Writer(Box::new(thread), received, random),
        }
    }

    /// Runs the job without a thread, if there is one, and if it `must` complete now or `random` decides so.
    #[cfg(feature = "simulation")]
    fn run_inline(&mut self, must: bool) {
        if let Runner::Writer(thread, jobs, random) = &mut self.runner
            && self.is_running
            && (must || random.u8(..4) == 0)
            && let Ok(job) = jobs.try_recv()
        {
            thread.run_job(Some(&job));
            while thread.is_collecting {
                thread.run_job(None);
            }
        }
    }

    /// Begins to write `layer` to the tables. No other job may be running.
    pub(super) fn begin(&mut self, layer: Arc<FrozenLayer>, ceiling: Ceiling) -> Result<(), Fault> {
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(Job { layer, ceiling }).map_err(|_| ended())?;
        self.is_running = true;
        Ok(())
    }

    /// Returns true if a job is running.
    pub(super) fn is_running(&mut self) -> Result<bool, Fault> {
        #[cfg(feature = "simulation")]
        self.run_inline(false);
        if self.is_running {
            match self.results.try_recv() {
                Ok(result) => {
                    self.is_running = false;
                    result?;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(ended()),
            }
        }
        Ok(self.is_running)
    }

    /// Waits until no job is running.
    pub(super) fn wait(&mut self) -> Result<(), Fault> {
        #[cfg(feature = "simulation")]
        self.run_inline(true);
        if self.is_running {
            self.is_running = false;
            self.results.recv().map_err(|_| ended())??;
        }
        Ok(())
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.jobs = None;
        let thread = match &mut self.runner {
            Runner::Thread(thread) => thread.take(),
            #[cfg(feature = "simulation")]
            Runner::Writer(..) => None,
        };
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("checkpointer of the store panicked");
        }
    }
}

fn ended() -> Fault {
    Fault::Storage(StorageError::Unavailable(
        "the checkpointer of the store has ended".to_owned(),
    ))
}

struct CheckpointThread {
    data: Arc<Data>,
    status: Arc<WriterStatus>,
    queue: WeakSender<Op>,
    done: SyncSender<Result<(), StorageError>>,
    /// True if compacted records wait to be deleted.
    is_collecting: bool,
}

impl CheckpointThread {
    /// Returns the thread's state, and the results of its jobs.
    fn new(
        data: Arc<Data>,
        status: Arc<WriterStatus>,
        queue: WeakSender<Op>,
    ) -> (Self, Receiver<Result<(), StorageError>>) {
        let (done, results) = sync_channel(1);
        let thread = Self {
            is_collecting: data.is_collecting(),
            data,
            status,
            queue,
            done,
        };
        (thread, results)
    }

    fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let job = if self.is_collecting && self.status.is_blocked.load(Ordering::Relaxed) {
                match jobs.recv_timeout(BLOCKED_PAUSE) {
                    Ok(job) => Some(job),
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            } else if self.is_collecting {
                match jobs.try_recv() {
                    Ok(job) => Some(job),
                    Err(TryRecvError::Empty) => None,
                    // Remaining compacted records are deleted after the next open.
                    Err(TryRecvError::Disconnected) => break,
                }
            } else {
                match jobs.recv() {
                    Ok(job) => Some(job),
                    Err(_) => break,
                }
            };
            self.run_job(job.as_ref());
        }
    }

    /// Writes the layer of `job`, if any, deletes some compacted records, and sends the result of the job.
    fn run_job(&mut self, job: Option<&Job>) {
        let result = catch_damage(|| {
            self.data
                .write_tables(|tables| transact(tables, job, &self.data))
        });
        let result = match result {
            Ok(is_collecting) => {
                self.is_collecting = is_collecting;
                Ok(())
            }
            Err(fault) => {
                self.is_collecting = false;
                Err(self.status.fail(fault, self.data.name()))
            }
        };
        if job.is_none() {
            return;
        }
        // The writer may have ended.
        drop(self.done.send(result));
        if let Some(queue) = self.queue.upgrade() {
            // If the queue is full, the writer is about to look anyway.
            drop(queue.try_send(Op::Checkpointed));
        }
    }
}

/// Writes the layer of `job` to the tables and deletes some compacted records. Returns true if there
/// are more.
fn transact(tables: &mut Tables<'_>, job: Option<&Job>, data: &Data) -> Result<bool, Fault> {
    if let Some(Job { layer, ceiling }) = job {
        tables.apply(layer)?;
        match ceiling {
            Ceiling::Keep => {}
            Ceiling::Raise => tables.raise_ceiling(),
            Ceiling::Lower => tables.lower_ceiling(),
        }
    }
    match tables.collect() {
        Ok(()) => Ok(tables.is_collecting()),
        // Only compacted data is damaged: writes continue, collection stops.
        Err(Fault::Damaged(detail)) => {
            let error = Fault::Damaged(detail).name_file(data.name());
            tracing::error!(error = %error, "cannot delete compacted history");
            Ok(false)
        }
        Err(fault) => Err(fault),
    }
}

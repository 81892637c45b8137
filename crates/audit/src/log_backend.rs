//! `LogBackend`: writes events to a log file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;

use crate::LOG_INTERVAL;
use crate::batch::{BatchOptions, BatchRate};
use crate::delivery::Mode;
use crate::log_backups::LogBackups;
use crate::log_file::{LogFile, Rotated};
use crate::queue::{Queue, QueueLimits};
use crate::rotation::Rotation;
use crate::truncate::Truncate;
use watchet_metrics::{LogInterval, Metrics};
use watchet_tasks::Tasks;

/// The maximum total size of the events that wait or are being written, in bytes.
const BYTES_MAX: usize = 64 << 20;

/// The maximum size of a batch in bytes, if the configuration has none.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// The format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// An `Event` of `audit.k8s.io/v1`.
    Json,
    /// kube-apiserver's legacy format: a line of text with the most important fields.
    Legacy,
}

/// The settings of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogOptions {
    /// The file; `-` is stdout.
    pub path: PathBuf,
    /// When the file is rotated.
    pub rotation: Rotation,
    /// The format of the lines.
    pub format: LogFormat,
    /// When events are written.
    pub mode: Mode,
    /// The batches, in mode [`Mode::Batch`].
    pub batch: BatchOptions,
    /// The maximum size of events, if there is one.
    pub truncate: Option<Truncate>,
}

/// Writes events to a log file.
#[derive(Debug)]
pub(crate) struct LogBackend {
    mode: Mode,
    pub(crate) format: LogFormat,
    pub(crate) truncate: Option<Truncate>,
    batch: BatchOptions,
    queue: Queue,
    file: Mutex<LogFile>,
    /// The rotated files; locked while they are deleted or compressed. `None` for stdout and devices.
    backups: Option<Arc<Mutex<LogBackups>>>,
    failures: LogInterval,
    tasks: Tasks,
    metrics: Arc<Metrics>,
}

impl LogBackend {
    pub(crate) fn open(
        options: &LogOptions,
        tasks: Tasks,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let file = LogFile::open(&options.path, options.rotation)?;
        let is_rotated = file.is_rotated();
        let batch_bytes = options.truncate.map(|truncate| truncate.batch_bytes_max);
        let limits = QueueLimits {
            events: options.batch.buffer_size,
            bytes: BYTES_MAX,
            batch_events: options.batch.size_max,
            batch_bytes: batch_bytes.unwrap_or(BATCH_BYTES_MAX),
        };
        let backups = LogBackups::new(&options.path, options.rotation);
        Ok(Self {
            mode: options.mode,
            format: options.format,
            batch: options.batch.clone(),
            truncate: options.truncate,
            queue: Queue::new(limits),
            file: Mutex::new(file),
            backups: is_rotated.then(|| Arc::new(Mutex::new(backups))),
            failures: LogInterval::new(LOG_INTERVAL),
            tasks,
            metrics,
        })
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Adds a line to the queue, or returns the future that writes it.
    pub(crate) fn record(self: &Arc<Self>, line: Bytes) -> Option<BoxFuture<'static, bool>> {
        if self.mode == Mode::Batch {
            if !self.queue.push(line) {
                self.metrics.audit().dropped.inc();
            }
            return None;
        }
        let (backend, is_strict) = (Arc::clone(self), self.mode == Mode::BlockingStrict);
        let write = async move {
            let tasks = backend.tasks.clone();
            let write = move || backend.write(&[line]);
            let written = tasks.spawn_blocking("audit-log write", write).await;
            written.unwrap_or(false) || !is_strict
        };
        Some(write.boxed())
    }

    /// Writes waiting events until the tasks stop, and then the last ones.
    pub(crate) async fn run(self: Arc<Self>) {
        self.spawn_clean_up();
        let stop = self.tasks.token();
        let mut rate = BatchRate::new(self.batch.throttle);
        let batches_max = match self.batch.throttle {
            Some(_) => 1,
            None => usize::MAX,
        };
        let ready = || stop.run_until_cancelled(self.queue.ready(self.batch.wait_max));
        while ready().await.is_some() {
            rate.wait(&stop).await;
            self.write_waiting(batches_max).await;
        }
        self.write_waiting(usize::MAX).await;
    }

    /// Writes at most `batches_max` batches of the events that wait.
    async fn write_waiting(self: &Arc<Self>, batches_max: usize) {
        let backend = Arc::clone(self);
        let write = move || {
            let batches = std::iter::from_fn(|| backend.queue.take());
            for batch in batches.take(batches_max) {
                backend.write(&batch.events);
                backend.queue.release(batch.bytes);
            }
        };
        let write = self.tasks.spawn_blocking("audit-log write", write);
        if let Err(error) = write.await {
            tracing::error!(%error, "audit events not written");
        }
    }

    /// Writes lines; returns false, after a log message, if none could be written.
    fn write(self: &Arc<Self>, lines: &[Bytes]) -> bool {
        let written = match lines {
            [line] => self.file.lock().write(line),
            lines => self.file.lock().write(&lines.concat()),
        };
        match written {
            Ok(Rotated::No) => true,
            Ok(Rotated::Yes) => {
                self.spawn_clean_up();
                true
            }
            Err(error) => {
                let errors = &self.metrics.audit().log_errors;
                errors.add(lines.len());
                if let Some(suppressed) = self.failures.next() {
                    let failed = errors.get();
                    tracing::error!(%error, failed, suppressed, "cannot write audit events");
                }
                false
            }
        }
    }

    /// Starts a task that deletes and compresses rotated files; at the start, those of an earlier process.
    fn spawn_clean_up(self: &Arc<Self>) {
        let Some(backups) = &self.backups else {
            return;
        };
        let backups = Arc::clone(backups);
        let clean_up = move || {
            if let Err(error) = backups.lock().clean_up() {
                tracing::error!(%error, "cannot delete or compress rotated audit logs");
            }
        };
        drop(self.tasks.spawn_blocking("audit-log clean-up", clean_up));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_maximum_size_of_a_batch_limits_what_is_written_together() {
        let directory = tempfile::tempdir().unwrap();
        let options = LogOptions {
            path: directory.path().join("audit.log"),
            rotation: Rotation::default(),
            format: LogFormat::Json,
            mode: Mode::Batch,
            batch: BatchOptions {
                buffer_size: 100,
                size_max: 100,
                wait_max: Duration::ZERO,
                throttle: None,
            },
            truncate: Some(Truncate {
                event_bytes_max: 8,
                batch_bytes_max: 8,
            }),
        };
        let log = LogBackend::open(&options, Tasks::new(), Metrics::new()).unwrap();
        let log = Arc::new(log);
        for line in ["one\n", "two\n", "six\n"] {
            assert!(log.record(line.into()).is_none());
        }
        let sizes = std::iter::from_fn(|| log.queue.take()).map(|batch| batch.events.len());
        assert_eq!(sizes.collect::<Vec<_>>(), [2, 1]);
    }
}

//! `Auditor`: evaluates the policy and writes events to the log.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::event::Event;
use crate::log_file::{LogFile, Rotation};
use crate::policy::{AuditConfig, Policy, RequestAttributes};
use crate::queue::Queue;
use watchet_metrics::{AuditMetrics, Metrics};
use watchet_tasks::Tasks;

/// The time that an event waits for others, which are written together with it. A crash loses the events of this time.
pub const BATCH_DELAY: Duration = Duration::from_millis(100);

/// The minimum time between two log messages about failed writes.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(60);

/// When events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By a task, together with other events: requests never wait. Events are dropped while too many wait.
    Batch,
    /// Before the request continues.
    Blocking,
}

/// Records the requests that the policy selects.
#[derive(Debug)]
pub struct Auditor {
    policy: Policy,
    mode: Mode,
    queue: Queue,
    writer: Mutex<Writer>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Writer {
    file: LogFile,
    /// The last message about failed writes.
    complained: Option<Instant>,
}

impl Auditor {
    /// Opens the log at `path`; `-` is stdout. In mode [`Mode::Batch`] nothing is written until [`Self::run`] runs.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub fn open(
        policy: Policy,
        path: &Path,
        rotation: Rotation,
        mode: Mode,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let writer = Mutex::new(Writer {
            file: LogFile::open(path, rotation)?,
            complained: None,
        });
        Ok(Self {
            policy,
            mode,
            queue: Queue::default(),
            writer,
            metrics,
        })
    }

    /// Returns what to record about `request`, and counts it.
    pub fn evaluate(&self, request: &RequestAttributes<'_>) -> AuditConfig {
        let config = self.policy.evaluate(request);
        self.counts().levels[config.level as usize].inc();
        config
    }

    /// Records an event. A failure is logged and counted; the request continues.
    pub fn record(&self, event: &Event<'_>) {
        let mut line = Vec::with_capacity(1024);
        if let Err(error) = serde_json::to_writer(&mut line, event) {
            self.counts().log_errors.inc();
            tracing::error!(%error, audit_id = event.audit_id, "cannot encode an audit event");
            return;
        }
        line.push(b'\n');
        self.counts().events.inc();
        match self.mode {
            Mode::Blocking => self.write(&line, 1),
            Mode::Batch => {
                if !self.queue.push(&line) {
                    self.counts().dropped.inc();
                }
            }
        }
    }

    /// Writes the events that wait, until `tasks` stops; then writes the last ones.
    pub async fn run(self: Arc<Self>, tasks: Tasks) {
        let stop = tasks.token();
        while stop
            .run_until_cancelled(self.queue.arrived())
            .await
            .is_some()
        {
            let others = tokio::time::sleep(BATCH_DELAY);
            // The events so far are written in either case.
            let _stopped = stop.run_until_cancelled(others).await;
            self.write_waiting(&tasks).await;
        }
        self.write_waiting(&tasks).await;
    }

    async fn write_waiting(self: &Arc<Self>, tasks: &Tasks) {
        let auditor = Arc::clone(self);
        let write = move || {
            let waiting = auditor.queue.take();
            if waiting.count > 0 {
                auditor.write(&waiting.lines, waiting.count);
            }
        };
        if let Err(error) = tasks.spawn_blocking("audit-log write", write).await {
            tracing::error!(%error, "audit events not written");
        }
    }

    fn write(&self, lines: &[u8], count: usize) {
        let mut writer = self.writer.lock();
        let Err(error) = writer.file.write(lines) else {
            return;
        };
        self.counts().log_errors.add(count);
        let is_due = |last: Instant| last.elapsed() >= COMPLAINT_PERIOD;
        if writer.complained.is_none_or(is_due) {
            writer.complained = Some(Instant::now());
            let failed = self.counts().log_errors.get();
            tracing::error!(%error, failed, "cannot write audit events");
        }
    }

    fn counts(&self) -> &AuditMetrics {
        self.metrics.audit()
    }
}

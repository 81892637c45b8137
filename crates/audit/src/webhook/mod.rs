//! `WebhookBackend`: posts batches of events to a webhook, as an `EventList` of `audit.k8s.io/v1`. It retries a failed
//! post with increasing delays, as upstream, and then drops the events of the batch.

mod deadline;
mod event_list;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::LOG_INTERVAL;
use crate::batch::{BatchOptions, BatchRate};
use crate::delivery::Mode;
use crate::queue::{Batch, Queue, QueueLimits};
use crate::truncate::Truncate;
use deadline::ShutdownDeadline;
use watchet_client::RestClient;
use watchet_metrics::{LogInterval, Metrics};
use watchet_tasks::Tasks;

/// The maximum number of posts of a batch, after which it is dropped, as upstream.
const ATTEMPTS_MAX: u32 = 5;

/// The factor between two delays, as upstream.
const BACKOFF_FACTOR: f64 = 1.5;

/// The maximum random part of a delay, relative to it, as upstream.
const BACKOFF_JITTER: f64 = 0.2;

/// The maximum delay during the shutdown.
const SHUTDOWN_BACKOFF_MAX: Duration = Duration::from_millis(500);

/// The maximum number of batches that are being posted or wait for a retry. Upstream has no maximum.
const IN_FLIGHT_MAX: usize = 16;

/// The maximum total size of events in bytes, waiting and in flight.
const BYTES_MAX: usize = 64 << 20;

/// The maximum size of a batch in bytes, if the configuration has none.
const BATCH_BYTES_MAX: usize = 10 << 20;

/// The settings of the webhook.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookOptions {
    /// When events are sent.
    pub mode: Mode,
    /// The delay before the first retry of a failed post.
    pub initial_backoff: Duration,
    /// The batches, in mode [`Mode::Batch`].
    pub batch: BatchOptions,
    /// The maximum sizes of events and batches, if there are any.
    pub truncate: Option<Truncate>,
}

/// Posts events.
#[derive(Debug)]
pub(crate) struct WebhookBackend {
    client: RestClient,
    options: WebhookOptions,
    queue: Queue,
    in_flight: Arc<Semaphore>,
    retries: LogInterval,
    drops: LogInterval,
    deadline: ShutdownDeadline,
    tasks: Tasks,
    metrics: Arc<Metrics>,
}

impl WebhookBackend {
    pub(crate) fn new(
        client: RestClient,
        options: WebhookOptions,
        tasks: Tasks,
        metrics: Arc<Metrics>,
    ) -> Self {
        let truncate = options.truncate;
        let limits = QueueLimits {
            events: options.batch.buffer_size,
            bytes: BYTES_MAX,
            batch_events: options.batch.size_max,
            batch_bytes: truncate.map_or(BATCH_BYTES_MAX, |truncate| truncate.batch_bytes_max),
        };
        Self {
            client,
            options,
            queue: Queue::new(limits),
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            retries: LogInterval::new(LOG_INTERVAL),
            drops: LogInterval::new(LOG_INTERVAL),
            deadline: ShutdownDeadline::new(tasks.token()),
            tasks,
            metrics,
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.options.mode
    }

    pub(crate) fn truncate(&self) -> Option<Truncate> {
        self.options.truncate
    }

    /// Adds an event to the queue, or returns the future that posts it.
    pub(crate) fn record(self: &Arc<Self>, event: Bytes) -> Option<BoxFuture<'static, bool>> {
        if self.options.mode == Mode::Batch {
            if !self.queue.push(event) {
                self.metrics.audit().dropped.inc();
            }
            return None;
        }
        let backend = Arc::clone(self);
        let is_strict = self.options.mode == Mode::BlockingStrict;
        Some(async move { backend.deliver(&[event]).await || !is_strict }.boxed())
    }

    /// Posts waiting events until the tasks stop, and then the last ones.
    pub(crate) async fn run(self: Arc<Self>) {
        let stop = self.tasks.token();
        let mut rate = BatchRate::new(self.options.batch.throttle);
        let wait = self.options.batch.wait_max;
        let ready = || stop.run_until_cancelled(self.queue.ready(wait));
        while ready().await.is_some() {
            rate.wait(&stop).await;
            self.start_next().await;
        }
        while self.start_next().await {}
    }

    /// Starts to post the next batch as a task, once fewer than [`IN_FLIGHT_MAX`] are in flight; returns false if there is
    /// none.
    async fn start_next(self: &Arc<Self>) -> bool {
        let permit = Arc::clone(&self.in_flight).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let Some(Batch { events, bytes }) = self.queue.take() else {
            return false;
        };
        let backend = Arc::clone(self);
        self.tasks.spawn("audit-webhook batch", async move {
            let _counted = backend.deliver(&events).await;
            backend.queue.release(bytes);
            drop(permit);
        });
        true
    }

    /// Posts events, with retries. Returns false, after a log message, if the events were dropped.
    async fn deliver(&self, events: &[Bytes]) -> bool {
        let attempts = self.attempts(event_list::encode(events));
        let error = tokio::select! {
            biased;
            result = attempts => match result {
                Ok(()) => return true,
                Err(error) => error,
            },
            () = self.deadline.passed() => "the server stops".to_owned(),
        };
        let errors = &self.metrics.audit().webhook_errors;
        errors.add(events.len());
        if let Some(suppressed) = self.drops.next() {
            let (server, dropped) = (self.client.server(), errors.get());
            tracing::error!(
                server,
                error,
                dropped,
                suppressed,
                "audit events dropped: the webhook failed"
            );
        }
        false
    }

    async fn attempts(&self, body: Bytes) -> Result<(), String> {
        let stop = self.tasks.token();
        let mut backoff = self.options.initial_backoff;
        let mut attempt = 1;
        loop {
            let Err(error) = self.client.post(body.clone()).await else {
                return Ok(());
            };
            // During shutdown the deadline ends the attempts.
            if attempt >= ATTEMPTS_MAX && !stop.is_cancelled() {
                return Err(error.to_string());
            }
            if let Some(suppressed) = self.retries.next() {
                let server = self.client.server();
                tracing::warn!(server, %error, ?backoff, suppressed, "audit webhook failed, retrying");
            }
            pause(&stop, backoff).await;
            backoff = backoff.mul_f64(BACKOFF_FACTOR);
            attempt += 1;
        }
    }
}

/// Waits for `backoff` and a random part of it; during shutdown, at most [`SHUTDOWN_BACKOFF_MAX`].
async fn pause(stop: &CancellationToken, backoff: Duration) {
    let jittered = backoff.mul_f64(1.0 + BACKOFF_JITTER * fastrand::f64());
    if stop.is_cancelled() {
        tokio::time::sleep(jittered.min(SHUTDOWN_BACKOFF_MAX)).await;
    } else {
        // A shutdown ends the pause: the next attempt follows immediately.
        let _stopped = stop.run_until_cancelled(tokio::time::sleep(jittered)).await;
    }
}

//! `Exporter`: sends ended spans to a collector by OTLP over gRPC.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint as Target};
use tonic::{Code, Status};
use watchet_metrics::{LogInterval, Metrics};
use watchet_tasks::Tasks;

use crate::configuration::Endpoint;
use crate::tracer::Tracer;

/// The maximum number of spans of an export, as upstream.
const BATCH_SPANS_MAX: usize = 512;

/// The maximum time for which an ended span waits until its batch is full, as upstream.
const BATCH_WAIT_MAX: Duration = Duration::from_secs(5);

/// The maximum time of an export including its retries, as upstream.
const EXPORT_MAX: Duration = Duration::from_secs(30);

/// The maximum time of one attempt of an export, as upstream.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// The delay before the first retry, and the maximum delay.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The maximum time of all exports during shutdown, and of closing the connection after them.
const FLUSH_MAX: Duration = Duration::from_secs(5);
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// Exports ended spans until the server stops.
#[derive(Debug)]
pub struct Exporter {
    ended: mpsc::Receiver<SpanData>,
    /// The spans of the next export.
    batch: Vec<SpanData>,
    endpoint: String,
    target: Target,
    resource: ResourceAttributesWithSchema,
    metrics: Arc<Metrics>,
    failures: LogInterval,
}

/// The stop of the server, and the deadline of the exports after it.
struct Shutdown {
    stop: CancellationToken,
    deadline: OnceLock<Instant>,
}

impl Shutdown {
    /// Waits until [`FLUSH_MAX`] has passed after the stop. Cancel safe.
    async fn deadline_passed(&self) {
        self.stop.cancelled().await;
        let deadline = self.deadline.get_or_init(|| Instant::now() + FLUSH_MAX);
        sleep_until(*deadline).await;
    }
}

impl Exporter {
    /// Creates an exporter of the spans of `tracer`. `ended` is the receiver that [`Tracer::new`] returned.
    pub fn new(
        endpoint: &Endpoint,
        tracer: &Tracer,
        ended: mpsc::Receiver<SpanData>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let name = endpoint.to_string();
        let target = match endpoint {
            Endpoint::Tcp(uri) => Target::from(uri.clone()),
            Endpoint::Unix(_) => {
                Target::from_shared(name.clone()).expect("any path of a socket is accepted")
            }
        };
        let resource: &Resource = tracer.resource();
        Self {
            ended,
            batch: Vec::new(),
            endpoint: name,
            target: target.connect_timeout(ATTEMPT_MAX),
            resource: resource.into(),
            metrics,
            failures: LogInterval::growing(),
        }
    }

    /// Exports spans until `stop` is cancelled, then exports the queued spans for at most 5 seconds. Must run in a Tokio
    /// runtime.
    pub async fn run(mut self, stop: CancellationToken) {
        let tasks = Tasks::with_metrics(self.metrics.tasks());
        let target = self.target.clone().executor(tasks.clone());
        let mut client = TraceServiceClient::new(target.connect_lazy());
        let shutdown = Shutdown {
            stop,
            deadline: OnceLock::new(),
        };
        while let Some(()) = shutdown.stop.run_until_cancelled(self.fill_batch()).await {
            self.export(&mut client, &shutdown).await;
        }
        self.ended.close();
        loop {
            let missing = BATCH_SPANS_MAX.saturating_sub(self.batch.len());
            self.ended.recv_many(&mut self.batch, missing).await;
            if self.batch.is_empty() {
                break;
            }
            self.export(&mut client, &shutdown).await;
        }
        drop(client);
        // No export is in progress: this only closes the connection.
        let _closed = tasks.drain(CLOSE_MAX).await;
    }

    /// Fills the batch: returns when it is full, or [`BATCH_WAIT_MAX`] after its first span. Cancel safe.
    async fn fill_batch(&mut self) {
        if self.ended.recv_many(&mut self.batch, BATCH_SPANS_MAX).await == 0 {
            // The tracer was dropped: no more spans arrive.
            std::future::pending().await
        }
        let deadline = Instant::now() + BATCH_WAIT_MAX;
        while self.batch.len() < BATCH_SPANS_MAX {
            let missing = BATCH_SPANS_MAX - self.batch.len();
            let more = self.ended.recv_many(&mut self.batch, missing);
            match timeout_at(deadline, more).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Exports the batch. If the export fails, drops the spans and counts them.
    async fn export(&mut self, client: &mut TraceServiceClient<Channel>, shutdown: &Shutdown) {
        let spans = self.batch.len();
        let batch = std::mem::take(&mut self.batch);
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let request = ExportTraceServiceRequest { resource_spans };
        let exported = tokio::select! {
            biased;
            exported = export_with_retries(client, &request, &shutdown.stop) => exported,
            () = shutdown.deadline_passed() => Err(Status::deadline_exceeded("the server stops")),
        };
        self.record(exported, spans);
    }

    /// Counts and logs the result of the export of `spans` spans.
    fn record(&self, exported: Result<Rejected, Status>, spans: usize) {
        let (dropped, error) = match exported {
            Ok(rejected) => (rejected.spans.min(spans), rejected.message),
            Err(status) => (spans, describe(&status)),
        };
        let metrics = self.metrics.traces();
        metrics.exported.add(spans - dropped);
        if dropped == 0 {
            self.record_warning(&error);
            return;
        }
        metrics.dropped_export_failed.add(dropped);
        if let Some(suppressed) = self.failures.next() {
            let (endpoint, dropped) = (&self.endpoint, metrics.dropped_export_failed.get());
            tracing::warn!(
                endpoint,
                error,
                dropped,
                suppressed,
                "trace spans dropped: the export failed"
            );
        }
    }

    /// Logs the warning of a collector that has accepted all spans; none if it is empty.
    fn record_warning(&self, warning: &str) {
        if warning.is_empty() {
            self.failures.reset();
        } else if let Some(suppressed) = self.failures.next() {
            let endpoint = &self.endpoint;
            tracing::warn!(
                endpoint,
                warning,
                suppressed,
                "warning of the trace collector"
            );
        }
    }
}

/// The spans of an export that the collector has rejected (`partial_success` of OTLP), and its reason. Without rejected
/// spans, the message is a warning.
struct Rejected {
    spans: usize,
    message: String,
}

/// Sends a request and retries it for at most [`EXPORT_MAX`]. After `stop` is cancelled, makes one more attempt only.
async fn export_with_retries(
    client: &mut TraceServiceClient<Channel>,
    request: &ExportTraceServiceRequest,
    stop: &CancellationToken,
) -> Result<Rejected, Status> {
    let deadline = Instant::now() + EXPORT_MAX;
    let mut backoff = BACKOFF_MIN;
    loop {
        let is_last = stop.is_cancelled();
        let attempt_deadline = deadline.min(Instant::now() + ATTEMPT_MAX);
        let attempt = timeout_at(attempt_deadline, client.export(request.clone())).await;
        let status = match attempt {
            Ok(Ok(response)) => {
                let partial = response.into_inner().partial_success.unwrap_or_default();
                return Ok(Rejected {
                    spans: usize::try_from(partial.rejected_spans).unwrap_or(0),
                    message: partial.error_message,
                });
            }
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded("no response before the deadline of the attempt"),
        };
        if is_last || !is_retryable(&status) || Instant::now() + backoff >= deadline {
            return Err(status);
        }
        // A stop ends the delay.
        let _stopped = stop.run_until_cancelled(sleep(backoff)).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Returns true if the [specification of OTLP](https://opentelemetry.io/docs/specs/otlp/#failures) defines the status as
/// retryable.
fn is_retryable(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// Returns the text of a status and its sources. The sources have the reason of a failed connection.
fn describe(status: &Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    let mut source = std::error::Error::source(status);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

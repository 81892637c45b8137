//! `Collector`: an OTLP receiver for gRPC in the process of the test, which records the spans that it receives.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::transport::Server as GrpcServer;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use watchet::tasks::Tasks;

use crate::harness::PATIENCE;

/// A received span with its attributes and those of the program that exported it.
#[derive(Debug, Clone)]
pub(super) struct ExportedSpan {
    pub(super) name: String,
    /// The trace ID in hexadecimal digits, as in `traceparent`.
    pub(super) trace: String,
    pub(super) id: String,
    /// The ID of the parent span; empty for the first span of a trace.
    pub(super) parent: String,
    pub(super) attributes: BTreeMap<String, String>,
    /// The attributes of the program.
    pub(super) resource: BTreeMap<String, String>,
    pub(super) span: Span,
}

/// A running collector, which ends when dropped.
pub(super) struct Collector {
    address: SocketAddr,
    received: Recorder,
    tasks: Tasks,
}

#[derive(Clone, Default)]
struct Recorder {
    spans: Arc<Mutex<Vec<ExportedSpan>>>,
    /// The number of exports that fail.
    failures: Arc<Mutex<usize>>,
}

impl Collector {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let (received, tasks) = (Recorder::default(), Tasks::new());
        let service = TraceServiceServer::new(received.clone());
        let token = tasks.token();
        tasks.spawn("collector", async move {
            let incoming = TcpIncoming::from(listener);
            let serving = GrpcServer::builder().serve_with_incoming(service, incoming);
            drop(token.run_until_cancelled(serving).await);
        });
        Self {
            address,
            received,
            tasks,
        }
    }

    /// Returns the endpoint of a `TracingConfiguration`.
    pub(super) fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Makes the next `exports` exports fail with a retryable error.
    pub(super) fn fail(&self, exports: usize) {
        *self.received.failures.lock() = exports;
    }

    /// Returns the spans that the collector has received so far.
    pub(super) fn spans(&self) -> Vec<ExportedSpan> {
        self.received.spans.lock().clone()
    }

    /// Returns the spans of a trace that the collector has received so far.
    pub(super) fn trace(&self, trace: &str) -> Vec<ExportedSpan> {
        let mut spans = self.spans();
        spans.retain(|span| span.trace == trace);
        spans
    }

    /// Waits for a span that meets `condition`.
    pub(super) async fn wait_for(&self, condition: impl Fn(&ExportedSpan) -> bool) -> ExportedSpan {
        let found = async {
            loop {
                if let Some(found) = self.spans().into_iter().find(&condition) {
                    return found;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        match timeout(PATIENCE, found).await {
            Ok(found) => found,
            Err(_) => panic!("no such span: {:#?}", self.spans()),
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

#[async_trait::async_trait]
impl TraceService for Recorder {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        {
            let mut failures = self.failures.lock();
            if *failures > 0 {
                *failures -= 1;
                return Err(Status::unavailable("the test makes this export fail"));
            }
        }
        let mut received = self.spans.lock();
        for exported in request.into_inner().resource_spans {
            let resource = attributes(&exported.resource.unwrap_or_default().attributes);
            let spans = exported.scope_spans.into_iter();
            for span in spans.flat_map(|scope| scope.spans) {
                received.push(ExportedSpan {
                    name: span.name.clone(),
                    trace: hex(&span.trace_id),
                    id: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                    attributes: attributes(&span.attributes),
                    resource: resource.clone(),
                    span,
                });
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| {
        let value = attribute.value.clone().and_then(|value| value.value);
        match value {
            Some(any_value::Value::StringValue(text)) => text,
            Some(any_value::Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        }
    };
    let attributes = attributes.iter();
    attributes
        .map(|attribute| (attribute.key.clone(), text(attribute)))
        .collect()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

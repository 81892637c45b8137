//! `Tracer`: starts the spans of requests.

use std::borrow::Cow;
use std::sync::Arc;

use opentelemetry::trace::{
    Link, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, SpanData};
use tokio::sync::mpsc;
use watchet_metrics::Metrics;

use crate::configuration::TracingConfiguration;
use crate::queue;

/// The attribute `service.name` of all spans, as upstream.
const SERVICE_NAME: &str = "apiserver";

/// Starts spans. Clones share the queue of ended spans.
#[derive(Debug, Clone)]
pub struct Tracer {
    tracer: SdkTracer,
    resource: Resource,
    /// Its drop would end the tracer.
    _provider: SdkTracerProvider,
}

/// The request of a span.
#[derive(Debug)]
pub struct RequestSpan<'a> {
    /// The context that the client sent.
    pub received: Option<Context>,
    /// Whether the client decides about the trace: its span is then the parent, and whether that is sampled decides
    /// whether this one is. Otherwise the span begins a new trace, with a link to the client's span.
    pub is_trusted: bool,
    /// The audit ID, an attribute of all spans of the request.
    pub audit_id: &'a str,
}

/// The span of a request. It ends when it is dropped.
#[derive(Debug)]
pub struct ServerSpan(Context);

impl ServerSpan {
    /// Returns the context in which the request is served.
    pub fn context(&self) -> &Context {
        &self.0
    }

    /// Sets the attributes of the response with the HTTP status `code`.
    pub fn set_response(&self, code: u16) {
        let span = self.0.span();
        if span.is_recording() {
            span.set_attribute(KeyValue::new("http.response.status_code", i64::from(code)));
            if code >= 500 {
                span.set_status(Status::error(""));
            }
        }
    }
}

impl Drop for ServerSpan {
    fn drop(&mut self) {
        // Futures that still run in the context do not delay the end of the span.
        self.0.span().end();
    }
}

/// What the child spans of a request need.
pub(crate) struct RequestScope {
    pub(crate) tracer: SdkTracer,
    pub(crate) audit_id: KeyValue,
}

impl Tracer {
    /// Creates a tracer with the sampling of `configuration`, and the queue of its ended spans. `instance` identifies this
    /// server among those that export to the same collector.
    pub fn new(
        configuration: &TracingConfiguration,
        instance: &str,
        metrics: &Arc<Metrics>,
    ) -> (Self, mpsc::Receiver<SpanData>) {
        let (queue, ended) = queue::new(metrics);
        let root = match configuration.sampling_rate_per_million {
            0 => Sampler::AlwaysOff,
            rate => Sampler::TraceIdRatioBased(f64::from(rate) / 1_000_000.0),
        };
        let resource = Resource::builder_empty()
            .with_service_name(SERVICE_NAME)
            .with_attribute(KeyValue::new("service.instance.id", instance.to_owned()))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(root)))
            .with_resource(resource.clone())
            .with_span_processor(queue)
            .build();
        let scope =
            InstrumentationScope::builder("watchet").with_version(env!("CARGO_PKG_VERSION"));
        let tracer = Self {
            tracer: provider.tracer_with_scope(scope.build()),
            resource,
            _provider: provider,
        };
        (tracer, ended)
    }

    /// Returns the attributes that identify this server.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Starts the span of a request. `describe` returns its name and its attributes; it is called only if the span is sampled.
    pub fn start_request(
        &self,
        request: RequestSpan<'_>,
        describe: impl FnOnce() -> (Cow<'static, str>, Vec<KeyValue>),
    ) -> ServerSpan {
        let mut parent = request.received.unwrap_or_default();
        // The name follows if the span is sampled.
        let mut builder = self.tracer.span_builder("").with_kind(SpanKind::Server);
        if !request.is_trusted && parent.has_active_span() {
            let link = parent.span().span_context().clone();
            builder = builder.with_links(vec![Link::with_context(link)]);
            parent = parent.with_remote_span_context(SpanContext::empty_context());
        }
        let span = self.tracer.build_with_context(builder, &parent);
        let context = parent.with_span(span);
        let span = context.span();
        if !span.is_recording() {
            return ServerSpan(context);
        }
        let (name, mut attributes) = describe();
        let audit_id = crate::text_attribute("audit-id", request.audit_id);
        attributes.push(audit_id.clone());
        span.update_name(name);
        span.set_attributes(attributes);
        let scope = RequestScope {
            tracer: self.tracer.clone(),
            audit_id,
        };
        ServerSpan(context.with_value(scope))
    }
}

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

/// Starts the spans of requests. Clones share the queue of ended spans.
#[derive(Debug, Clone)]
pub struct Tracer {
    tracer: SdkTracer,
    resource: Resource,
    /// Dropping the provider would shut down `tracer`.
    _provider: SdkTracerProvider,
}

/// The properties of a received request that determine the trace of its span.
#[derive(Debug)]
pub struct IncomingRequest<'a> {
    /// The trace context in the headers of the request.
    pub received: Option<Context>,
    /// True if the request continues the trace of the client: the span is a child of the client's span, and is sampled if
    /// and only if that is. Otherwise the span begins a new trace, with a link to the client's span.
    pub is_trusted: bool,
    /// The audit ID, an attribute of all spans of the request.
    pub audit_id: &'a str,
}

/// The span of a request. It ends when it is dropped.
#[derive(Debug)]
pub struct ServerSpan(Context);

impl ServerSpan {
    /// Returns the trace context in which this span is the current one.
    pub fn context(&self) -> &Context {
        &self.0
    }

    /// Sets the HTTP status code of the response. From 500 on, sets the status of the span to an error.
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

/// Starts the child spans of a request. It is stored in the trace context of the request.
pub(crate) struct RequestTracer {
    pub(crate) tracer: SdkTracer,
    pub(crate) audit_id: KeyValue,
}

impl Tracer {
    /// Creates a tracer with the sampling rate of `configuration`; returns it and the receiver of its ended spans. `instance`
    /// identifies this server among those that export to the same collector.
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
            .with_sampler(Sampler::parent_based(root))
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

    /// Starts the span of a request. `describe` returns the name and the attributes; it is called only if the span is sampled.
    pub fn start_server_span(
        &self,
        request: IncomingRequest<'_>,
        describe: impl FnOnce() -> (Cow<'static, str>, Vec<KeyValue>),
    ) -> ServerSpan {
        let mut parent = request.received.unwrap_or_default();
        // The name is set below if the span is sampled.
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
        let tracer = RequestTracer {
            tracer: self.tracer.clone(),
            audit_id,
        };
        ServerSpan(context.with_value(tracer))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::{ChildSpan, extract, with_context};

    fn received(sampled: bool) -> Option<Context> {
        let flags = u8::from(sampled);
        let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0{flags}");
        let value = HeaderValue::try_from(parent).unwrap();
        extract(&HeaderMap::from_iter([(
            http::HeaderName::from_static("traceparent"),
            value,
        )]))
    }

    /// Starts and ends a server span with a child. Returns the exported spans: the child, then the server span.
    async fn spans(rate: u32, received: Option<Context>, is_trusted: bool) -> Vec<SpanData> {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: {rate}"
        );
        let (tracer, mut ended) = Tracer::new(&text.parse().unwrap(), "a:1", &Metrics::new());
        let request = IncomingRequest {
            received,
            is_trusted,
            audit_id: "id",
        };
        let span = tracer.start_server_span(request, || ("GET".into(), Vec::new()));
        let child = async { drop(ChildSpan::start(|| ("part".into(), Vec::new()))) };
        with_context(Some(span.context().clone()), child).await;
        drop(span);
        let mut spans = Vec::new();
        while let Ok(span) = ended.try_recv() {
            spans.push(span);
        }
        spans
    }

    #[tokio::test]
    async fn the_parent_or_the_rate_decides_about_sampling() {
        for (rate, received, is_trusted, expect) in [
            (0, None, true, false),
            (1_000_000, None, false, true),
            (0, received(true), true, true),
            (1_000_000, received(false), true, false),
            (0, received(true), false, false),
            (1_000_000, received(false), false, true),
        ] {
            let has_parent = received.is_some() && is_trusted;
            let has_link = received.is_some() && !is_trusted;
            let spans = spans(rate, received, is_trusted).await;
            assert_eq!(
                spans.len(),
                if expect { 2 } else { 0 },
                "{rate} {is_trusted}"
            );
            let [child, request] = &spans[..] else {
                continue;
            };
            assert_eq!((&*child.name, &*request.name), ("part", "GET"));
            assert_eq!(child.parent_span_id, request.span_context.span_id());
            assert_eq!(request.parent_span_is_remote, has_parent);
            assert_eq!(request.links.links.len(), usize::from(has_link));
            for span in [child, request] {
                let audit_id = KeyValue::new("audit-id", "id");
                assert!(span.attributes.contains(&audit_id), "{span:?}");
            }
        }
    }
}

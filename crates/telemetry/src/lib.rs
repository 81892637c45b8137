//! Distributed tracing like kube-apiserver's
//! ([KEP-647](https://github.com/kubernetes/enhancements/tree/master/keps/sig-instrumentation/647-apiserver-tracing)):
//! propagates W3C Trace Context, starts a span for each request and for its expensive operations, and exports the spans to a
//! collector.
//!
//! ```text
//! request headers ─extract─▶ Context ─Tracer::start_server_span─▶ ServerSpan with its Context
//!                                                                    │ with_context: current while the request is served
//!                                    ChildSpan::start ◀── current ───┤
//!            request headers to webhooks, etcd ◀─inject─ current ────┘
//! ended spans ─▶ queue ─▶ Exporter (feature `otlp`) ─▶ collector
//! ```
//!
//! Without a [`Tracer`] there are no spans, but the server still propagates the context of a request to webhooks and etcd,
//! as upstream.
//!
//! # Invariants
//!
//! 1. A request never waits for the collector: the queue is bounded, and spans that do not fit are dropped and counted.
//! 2. The attributes of a span that is not sampled are not computed.
//! 3. No attribute is longer than [`ATTRIBUTE_BYTES_MAX`], so that clients cannot fill the memory with spans.
//!
//! # Example
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use http::{HeaderMap, HeaderValue};
//!
//! let mut received = HeaderMap::new();
//! let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
//! received.insert("traceparent", HeaderValue::from_static(parent));
//! let context = watchet_telemetry::extract(&received);
//!
//! let mut sent = HeaderMap::new();
//! let call = async { watchet_telemetry::inject(&mut sent) };
//! watchet_telemetry::with_context(context, call).await;
//! assert_eq!(sent["traceparent"], parent);
//! # }
//! ```

mod child_span;
mod configuration;
#[cfg(feature = "otlp")]
mod otlp;
mod propagation;
mod queue;
mod tracer;

use std::borrow::Cow;

pub use child_span::{ChildSpan, with_context, with_current_context};
pub use configuration::{Endpoint, InvalidConfiguration, TracingConfiguration};
pub use opentelemetry::{Context, KeyValue};
#[cfg(feature = "otlp")]
pub use otlp::Exporter;
pub use propagation::{extract, inject};
pub use queue::QUEUE_SPANS_MAX;
pub use tracer::{IncomingRequest, ServerSpan, Tracer};

/// The maximum length of the text of an attribute in bytes. Longer texts are truncated.
pub const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// Returns an attribute with `text`, truncated to at most [`ATTRIBUTE_BYTES_MAX`] bytes.
pub fn text_attribute<'a>(key: &'static str, text: impl Into<Cow<'a, str>>) -> KeyValue {
    let text: Cow<'a, str> = text.into();
    if text.len() <= ATTRIBUTE_BYTES_MAX {
        return KeyValue::new(key, text.into_owned());
    }
    let end = text.floor_char_boundary(ATTRIBUTE_BYTES_MAX);
    KeyValue::new(key, text[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_off_between_characters() {
        let text = |length: usize| text_attribute("key", "ä".repeat(length)).value.to_string();
        assert_eq!(text(3), "äää");
        assert_eq!(text(2000).len(), ATTRIBUTE_BYTES_MAX);
        let odd = text_attribute("key", format!("a{}", "ä".repeat(2000)));
        assert_eq!(odd.value.to_string().len(), ATTRIBUTE_BYTES_MAX - 1);
    }
}

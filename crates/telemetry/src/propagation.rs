//! Extracts W3C Trace Context and Baggage from HTTP headers, and injects them.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, baggage::BaggageExt as _};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// The maximum length of a `tracestate` in bytes; a longer one is ignored. The specification requires that at least 512
/// are propagated.
const TRACESTATE_BYTES_MAX: usize = 512;

struct HeaderExtractor<'a>(&'a HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key)?.to_str().ok()?;
        let is_too_long = key == TRACESTATE.as_str() && value.len() > TRACESTATE_BYTES_MAX;
        (!is_too_long).then_some(value)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeaderInjector<'a>(&'a mut HeaderMap);

impl Injector for HeaderInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        // An empty `tracestate` means the same as none.
        let value = HeaderValue::try_from(value).ok();
        let value = value.filter(|value| !value.is_empty());
        if let (Ok(name), Some(value)) = (HeaderName::try_from(key), value) {
            self.0.insert(name, value);
        }
    }
}

/// Returns the trace context in the headers `traceparent`, `tracestate` and `baggage` of a request; `None` if they are absent
/// or invalid.
pub fn extract(headers: &HeaderMap) -> Option<Context> {
    let has_parent = headers.contains_key(TRACEPARENT);
    let has_baggage = headers.contains_key(BAGGAGE);
    if !has_parent && !has_baggage {
        return None;
    }
    let extractor = HeaderExtractor(headers);
    let mut context = Context::new();
    if has_parent {
        context = TraceContextPropagator::new().extract_with_context(&context, &extractor);
    }
    if has_baggage {
        context = BaggagePropagator::new().extract_with_context(&context, &extractor);
    }
    (context.has_active_span() || !context.baggage().is_empty()).then_some(context)
}

/// Adds the current trace context, if any, to the headers of a request to another program.
pub fn inject(headers: &mut HeaderMap) {
    Context::map_current(|context| inject_context(context, headers));
}

/// Adds the trace context `context` to `headers`.
pub(crate) fn inject_context(context: &Context, headers: &mut HeaderMap) {
    if context.has_active_span() {
        TraceContextPropagator::new().inject_context(context, &mut HeaderInjector(headers));
    }
    if !context.baggage().is_empty() {
        BaggagePropagator::new().inject_context(context, &mut HeaderInjector(headers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_context;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
        let headers = values.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_str(value).unwrap())
        });
        headers.collect()
    }

    async fn propagated(values: &[(&'static str, &str)]) -> HeaderMap {
        let mut sent = HeaderMap::new();
        let context = extract(&headers(values));
        with_context(context, async { inject(&mut sent) }).await;
        sent
    }

    #[tokio::test]
    async fn a_context_is_propagated_unchanged() {
        let all = [
            ("traceparent", PARENT),
            ("tracestate", "a=1,b=2"),
            ("baggage", "user=ann"),
        ];
        assert_eq!(propagated(&all).await, headers(&all));
        assert_eq!(propagated(&all[..1]).await, headers(&all[..1]));
        assert_eq!(propagated(&all[2..]).await, headers(&all[2..]));
        // Flags that the specification does not define are not propagated.
        let flags = [("traceparent", &*PARENT.replace("-01", "-03"))];
        assert_eq!(propagated(&flags).await, headers(&all[..1]));
    }

    #[tokio::test]
    async fn invalid_headers_are_ignored() {
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for invalid in ["", "x", zero, "ff-1-2-3", &PARENT.to_uppercase()] {
            let values = [("traceparent", invalid), ("tracestate", "a=1")];
            assert!(extract(&headers(&values)).is_none(), "{invalid}");
            assert!(propagated(&values).await.is_empty(), "{invalid}");
        }
        assert!(propagated(&[("tracestate", "a=1")]).await.is_empty());
        let long = format!("a={},b={}", "1".repeat(256), "2".repeat(256));
        let values = [("traceparent", PARENT), ("tracestate", &*long)];
        assert_eq!(propagated(&values).await, headers(&values[..1]));
    }
}

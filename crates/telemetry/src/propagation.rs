//! W3C Trace Context and Baggage in HTTP headers, in and out.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, baggage::BaggageExt as _};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// The maximum length of a `tracestate` in bytes; a longer one is ignored. The specification requires that 512 can be
/// passed on.
const TRACESTATE_BYTES_MAX: usize = 512;

struct Received<'a>(&'a HeaderMap);

impl Extractor for Received<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key)?.to_str().ok()?;
        let is_too_long = key == TRACESTATE.as_str() && value.len() > TRACESTATE_BYTES_MAX;
        (!is_too_long).then_some(value)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct Sent<'a>(&'a mut HeaderMap);

impl Injector for Sent<'_> {
    fn set(&mut self, key: &str, value: String) {
        // An empty `tracestate` means the same as none.
        let value = HeaderValue::try_from(value).ok();
        let value = value.filter(|value| !value.is_empty());
        if let (Ok(name), Some(value)) = (HeaderName::try_from(key), value) {
            self.0.insert(name, value);
        }
    }
}

/// Returns the context of the trace that a request belongs to, by its headers `traceparent`, `tracestate` and `baggage`;
/// `None` if it has none of them, or only invalid ones.
pub fn extract(headers: &HeaderMap) -> Option<Context> {
    let has_parent = headers.contains_key(TRACEPARENT);
    let has_baggage = headers.contains_key(BAGGAGE);
    if !has_parent && !has_baggage {
        return None;
    }
    let received = Received(headers);
    let mut context = Context::new();
    if has_parent {
        context = TraceContextPropagator::new().extract_with_context(&context, &received);
    }
    if has_baggage {
        context = BaggagePropagator::new().extract_with_context(&context, &received);
    }
    (context.has_active_span() || !context.baggage().is_empty()).then_some(context)
}

/// Adds the headers that continue the current trace in another program; none if there is no trace.
pub fn inject(headers: &mut HeaderMap) {
    Context::map_current(|context| inject_context(context, headers));
}

/// Adds the headers that continue the trace of `context`.
pub(crate) fn inject_context(context: &Context, headers: &mut HeaderMap) {
    if context.has_active_span() {
        TraceContextPropagator::new().inject_context(context, &mut Sent(headers));
    }
    if !context.baggage().is_empty() {
        BaggagePropagator::new().inject_context(context, &mut Sent(headers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_in;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
        let headers = values.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_str(value).unwrap())
        });
        headers.collect()
    }

    async fn passed_on(values: &[(&'static str, &str)]) -> HeaderMap {
        let mut sent = HeaderMap::new();
        let context = extract(&headers(values));
        run_in(context, async { inject(&mut sent) }).await;
        sent
    }

    #[tokio::test]
    async fn a_context_is_passed_on_unchanged() {
        let all = [
            ("traceparent", PARENT),
            ("tracestate", "a=1,b=2"),
            ("baggage", "user=ann"),
        ];
        assert_eq!(passed_on(&all).await, headers(&all));
        assert_eq!(passed_on(&all[..1]).await, headers(&all[..1]));
        assert_eq!(passed_on(&all[2..]).await, headers(&all[2..]));
        // The flags that the specification does not define are not passed on.
        let flags = [("traceparent", &*PARENT.replace("-01", "-03"))];
        assert_eq!(passed_on(&flags).await, headers(&all[..1]));
    }

    #[tokio::test]
    async fn invalid_headers_are_ignored() {
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for invalid in ["", "x", zero, "ff-1-2-3", &PARENT.to_uppercase()] {
            let values = [("traceparent", invalid), ("tracestate", "a=1")];
            assert!(extract(&headers(&values)).is_none(), "{invalid}");
            assert!(passed_on(&values).await.is_empty(), "{invalid}");
        }
        assert!(passed_on(&[("tracestate", "a=1")]).await.is_empty());
        let long = format!("a={},b={}", "1".repeat(256), "2".repeat(256));
        let values = [("traceparent", PARENT), ("tracestate", &*long)];
        assert_eq!(passed_on(&values).await, headers(&values[..1]));
    }
}

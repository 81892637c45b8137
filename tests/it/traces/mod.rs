//! Tests of distributed tracing with the real program: spans at a collector, and the trace context at webhooks and etcd.

mod collector;
mod configuration;
mod export;
mod propagation;
mod spans;

use std::path::Path;
use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::custom::webhooks::{NEWER, converted_foos, sized};
use crate::harness::{PATIENCE, Response, Webhook, Wire};
use collector::ExportedSpan;

pub(super) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The IDs of the client's trace and span.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

/// Returns the header `traceparent` of a request by the span [`CLIENT`] of `trace`.
fn traceparent(trace: &str, sampled: bool) -> String {
    format!("00-{trace}-{CLIENT}-0{}", u8::from(sampled))
}

/// Writes a `TracingConfiguration` into `directory`, and returns the flag that names it.
fn flag(directory: &Path, endpoint: &str, rate: u32) -> String {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n\
         endpoint: {endpoint}\nsamplingRatePerMillion: {rate}\n"
    );
    let path = directory.join("tracing.yaml");
    std::fs::write(&path, text).expect("the configuration can be written");
    format!("--tracing-config-file={}", path.display())
}

/// Creates a config map as part of the trace of `traceparent`.
async fn create(wire: &mut Wire, name: &str, traceparent: &str) -> Response {
    let body = json!({"metadata": {"name": name}}).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("traceparent", traceparent),
        ("audit-id", "of-the-test"),
        ("user-agent", "test/1"),
    ];
    wire.send(Method::POST, MAPS, &headers, &body).await
}

/// Creates a definition whose objects `webhook` converts between v1 and v2, and waits until v1 is served.
async fn define_converted(wire: &mut Wire, webhook: &Webhook) {
    let definition = converted_foos("v1", webhook.client_config("/convert"));
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let defined = wire.post(definitions, &definition).await;
    assert_eq!(defined.status, 201, "{}", defined.text());
    let deadline = Instant::now() + PATIENCE;
    while wire.get("/apis/example.com/v1/foos").await.status != 200 {
        assert!(Instant::now() < deadline, "not served");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Creates a foo in v2, which the webhook converts, as part of the trace of `traceparent`.
async fn create_converted(wire: &mut Wire, traceparent: &str) -> Response {
    let headers = [
        ("content-type", "application/json"),
        ("traceparent", traceparent),
    ];
    let body = sized("v2", "a", 1).to_string();
    wire.send(Method::POST, NEWER, &headers, &body).await
}

/// Returns the span with this name. Panics unless there is exactly one.
fn named<'a>(spans: &'a [ExportedSpan], name: &str) -> &'a ExportedSpan {
    let mut found = spans.iter().filter(|span| span.name == name);
    match (found.next(), found.next()) {
        (Some(span), None) => span,
        _ => panic!("not exactly one span {name}: {spans:#?}"),
    }
}

//! The trace context in requests to other programs: admission webhooks, authorization webhooks, etcd.

use serde_json::json;

use super::collector::{Collector, ExportedSpan};
use super::{MAPS, TRACE, create, create_converted, define_converted, flag, named, traceparent};
use crate::admission::cluster::{Cluster, allow, hook, rule};
use crate::custom::webhooks::converter;
use crate::harness::{Protocol, Reply, Server, Webhook};
use crate::storage::etcd::EtcdProcess;

/// Returns the span whose ID is in `traceparent`, which must be sampled.
fn sender<'a>(spans: &'a [ExportedSpan], traceparent: &str) -> &'a ExportedSpan {
    let parts: Vec<&str> = traceparent.split('-').collect();
    assert_eq!((parts[1], parts[3]), (TRACE, "01"), "{traceparent}");
    let span = spans.iter().find(|span| span.id == parts[2]);
    span.unwrap_or_else(|| panic!("{traceparent} in {spans:#?}"))
}

/// Configures a mutating and a validating webhook for config maps.
async fn configure(server: &Server, webhook: &Webhook) {
    let cluster = Cluster(server);
    let rules = json!({"rules": [rule(&["CREATE"], "", "configmaps")]});
    let hooks = [hook(webhook, "/mutate", rules.clone())];
    cluster.configure("Mutating", "changes", &hooks).await;
    let hooks = [hook(webhook, "/validate", rules)];
    cluster.configure("Validating", "checks", &hooks).await;
}

#[tokio::test]
async fn admission_webhooks_continue_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let (collector, webhook) = (Collector::start().await, Webhook::answering(allow).await);
    let server = Server::start(&[&flag(directory.path(), &collector.endpoint(), 0)]).await;
    configure(&server, &webhook).await;
    let mut plain = server.plain(Protocol::Http1).await;
    let created = create(&mut plain, "traced", &traceparent(TRACE, true)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let unsampled = "1".repeat(32);
    let created = create(&mut plain, "unsampled", &traceparent(&unsampled, false)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    server.stop().await;

    let spans = collector.trace(TRACE);
    let calls = webhook.calls();
    let of = |name: &str, path: &str| {
        let mut calls = calls.iter().filter(|call| call.path.starts_with(path));
        let call = calls.find(|call| call.body["request"]["name"] == name);
        call.expect("the call").clone()
    };
    for (path, span_name, configuration) in [
        ("/mutate", "Call mutating webhook", "changes"),
        ("/validate", "Call validating webhook", "checks"),
    ] {
        let call = of("traced", path);
        let post = sender(&spans, &call.traceparent);
        assert_eq!(
            (&*post.name, post.span.kind),
            ("HTTP POST", 3),
            "SPAN_KIND_CLIENT"
        );
        assert_eq!(post.attributes["http.response.status_code"], "200");
        assert!(post.attributes["url.full"].contains(path), "{post:#?}");
        let review = named(&spans, span_name);
        assert_eq!(post.parent, review.id);
        assert_eq!(review.parent, named(&spans, "Create").id);
        for (key, expect) in [
            ("configuration", configuration),
            ("operation", "CREATE"),
            ("resource", "/v1, Resource=configmaps"),
            ("UID", call.body["request"]["uid"].as_str().unwrap()),
        ] {
            assert_eq!(review.attributes[key], expect, "{key}");
        }
        // The server propagates the context of a trace that is not sampled, but exports no span of it.
        let call = of("unsampled", path);
        let start = format!("00-{unsampled}-");
        assert!(call.traceparent.starts_with(&start), "{call:?}");
        assert!(call.traceparent.ends_with("-00"), "{call:?}");
    }
}

#[tokio::test]
async fn conversion_webhooks_continue_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let (collector, webhook) = (Collector::start().await, converter().await);
    let server = Server::start(&[&flag(directory.path(), &collector.endpoint(), 0)]).await;
    let mut plain = server.plain(Protocol::Http1).await;
    define_converted(&mut plain, &webhook).await;
    let before = webhook.calls().len();
    let created = create_converted(&mut plain, &traceparent(TRACE, true)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    server.stop().await;

    let spans = collector.trace(TRACE);
    let calls = webhook.calls().split_off(before);
    assert!(!calls.is_empty(), "an object of v2 is converted");
    for call in calls {
        let post = sender(&spans, &call.traceparent);
        assert_eq!(post.name, "HTTP POST");
        let conversion = spans.iter().find(|span| span.id == post.parent);
        let conversion = conversion.unwrap_or_else(|| panic!("the parent of {post:#?}"));
        assert_eq!(conversion.name, "Call conversion webhook");
        for (key, expect) in [
            ("custom-resource-definition", "foos.example.com"),
            ("object-count", "1"),
            ("UID", call.body["request"]["uid"].as_str().unwrap()),
            (
                "desired-api-version",
                call.body["request"]["desiredAPIVersion"].as_str().unwrap(),
            ),
        ] {
            assert_eq!(conversion.attributes[key], expect, "{key}");
        }
    }
}

#[tokio::test]
async fn without_tracing_the_context_of_the_client_is_propagated() {
    let webhook = Webhook::answering(allow).await;
    let server = Server::start(&[]).await;
    configure(&server, &webhook).await;
    let mut plain = server.plain(Protocol::Http1).await;
    let parent = traceparent(TRACE, true);
    assert_eq!(create(&mut plain, "a", &parent).await.status, 201);
    let without = json!({"metadata": {"name": "b"}});
    assert_eq!(plain.post(MAPS, &without).await.status, 201);
    for call in webhook.calls() {
        let expect = match call.body["request"]["name"].as_str() {
            Some("a") => &*parent,
            _ => "",
        };
        assert_eq!(call.traceparent, expect, "{}", call.path);
    }
    server.stop().await;
}

#[tokio::test]
async fn the_authorization_webhook_continues_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let webhook = Webhook::answering(|call| {
        let mut review = call.body.clone();
        review["status"] = json!({"allowed": true});
        Reply::json(&review)
    })
    .await;
    let file = directory.path().join("webhook.kubeconfig");
    std::fs::write(&file, webhook.kubeconfig("/authorize")).unwrap();
    let tokens = directory.path().join("tokens.csv");
    std::fs::write(&tokens, "t-mo,mo,1,\"system:monitoring\"\n").unwrap();
    let server = Server::start(&[
        &flag(directory.path(), &collector.endpoint(), 0),
        "--authorization-mode=RBAC,Webhook",
        &format!("--authorization-webhook-config-file={}", file.display()),
        &format!("--token-auth-file={}", tokens.display()),
    ])
    .await;
    let mut wire = server.stranger(Protocol::Http1).await;
    let parent = traceparent(TRACE, true);
    let headers = [("authorization", "Bearer t-mo"), ("traceparent", &*parent)];
    let listed = wire.send(http::Method::GET, MAPS, &headers, "").await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    server.stop().await;
    let calls = webhook.calls();
    let calls: Vec<_> = calls
        .iter()
        .filter(|call| !call.traceparent.is_empty())
        .collect();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let spans = collector.trace(TRACE);
    let post = sender(&spans, &calls[0].traceparent);
    assert_eq!(post.name, "HTTP POST");
    assert_eq!(post.parent, named(&spans, "authorization").id);
}

#[tokio::test]
async fn etcd_continues_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let address = collector.endpoint();
    let etcd = EtcdProcess::start(&[
        "--experimental-enable-distributed-tracing=true",
        &format!("--experimental-distributed-tracing-address={address}"),
    ])
    .await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let tracing = flag(directory.path(), &address, 0);
    let server = Server::start(&["--storage=etcd", &servers, &tracing]).await;
    let mut plain = server.plain(Protocol::Http1).await;
    let created = create(&mut plain, "a", &traceparent(TRACE, true)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let is_of_etcd = |span: &ExportedSpan| span.resource["service.name"] == "etcd";
    let etcd_span = collector
        .wait_for(|span| span.trace == TRACE && is_of_etcd(span))
        .await;
    server.stop().await;
    assert_eq!(etcd_span.name, "etcdserverpb.KV/Txn");
    let spans = collector.trace(TRACE);
    let call = spans.iter().find(|span| span.id == etcd_span.parent);
    let call = call.unwrap_or_else(|| panic!("the parent of {etcd_span:#?} in {spans:#?}"));
    assert_eq!(call.name, "etcdserverpb.KV/Txn");
    assert_eq!(call.attributes["rpc.system"], "grpc");
    assert_eq!(call.parent, named(&spans, "Create etcd3").id);
}

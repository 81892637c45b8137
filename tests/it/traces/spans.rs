//! The spans of requests: names, attributes, parents, and which requests are sampled.

use std::time::Duration;

use futures::StreamExt as _;
use http::Method;
use serde_json::json;
use tokio::net::TcpStream;

use super::collector::{Collector, hex};
use super::{
    CLIENT, MAPS, TRACE, create, create_converted, define_converted, flag, named, traceparent,
};
use crate::harness::{Protocol, Reply, Scrape, Server, Webhook};
use crate::websocket;

const ALL: u32 = 1_000_000;

#[tokio::test]
async fn a_request_has_spans_in_the_trace_of_its_client() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let server = Server::start(&[&flag(directory.path(), &collector.endpoint(), 0)]).await;
    let port = server.secure().port();
    let mut admin = server.admin(Protocol::Http2).await;
    let created = create(&mut admin, "a", &traceparent(TRACE, true)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    // The running server exports the span; the test does not rely on the export at shutdown.
    let request = collector.wait_for(|span| span.parent == CLIENT).await;
    server.stop().await;

    assert_eq!(request.trace, TRACE);
    assert_eq!(
        request.name,
        "POST /api/v1/namespaces/{:namespace}/configmaps"
    );
    assert_eq!(request.span.kind, 2, "SPAN_KIND_SERVER");
    for (key, expect) in [
        ("http.request.method", "POST"),
        ("http.target", MAPS),
        ("http.route", "/api/v1/namespaces/{:namespace}/configmaps"),
        ("http.response.status_code", "201"),
        ("url.path", MAPS),
        ("network.protocol.version", "2"),
        ("network.peer.address", "127.0.0.1"),
        ("user_agent.original", "test/1"),
        ("audit-id", "of-the-test"),
    ] {
        assert_eq!(request.attributes[key], expect, "{key}: {request:#?}");
    }
    assert_eq!(request.resource["service.name"], "apiserver");
    let instance = &request.resource["service.instance.id"];
    assert!(instance.ends_with(&format!(":{port}")), "{instance}");

    let spans = collector.trace(TRACE);
    assert_eq!(named(&spans, "authorization").parent, request.id);
    let create = named(&spans, "Create");
    assert_eq!(create.parent, request.id);
    assert_eq!(create.attributes["user-agent"], "test/1");
    assert_eq!(create.attributes["scope"], "resource");
    assert_eq!(create.attributes["client"], "127.0.0.1");
    let stored = named(&spans, "Create embedded");
    assert_eq!(stored.parent, create.id);
    assert_eq!(stored.attributes["key"], "/configmaps/default/a");
    assert_eq!(stored.attributes["resource"], "configmaps");
    assert_eq!(stored.attributes["audit-id"], "of-the-test");
    assert!(stored.span.end_time_unix_nano >= stored.span.start_time_unix_nano);
    assert!(stored.span.end_time_unix_nano <= request.span.end_time_unix_nano);
}

#[tokio::test]
async fn each_verb_has_a_span_over_its_storage_operation() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let server = Server::start(&[&flag(directory.path(), &collector.endpoint(), 0)]).await;
    let mut plain = server.plain(Protocol::Http1).await;
    let object =
        |value: &str| json!({"metadata": {"name": "a"}, "data": {"key": value}}).to_string();
    let one = format!("{MAPS}/a");
    let large = object(&"x".repeat(500_000));
    for (digit, method, path, content_type, body, verb, operation) in [
        (
            '1',
            Method::POST,
            MAPS,
            "application/json",
            &large,
            "Create",
            "Create embedded",
        ),
        (
            '2',
            Method::PUT,
            &one,
            "application/json",
            &object("b"),
            "Update",
            "GuaranteedUpdate embedded",
        ),
        (
            '3',
            Method::PATCH,
            &one,
            "application/merge-patch+json",
            &object("c"),
            "Patch",
            "GuaranteedUpdate embedded",
        ),
        ('4', Method::GET, &one, "", &String::new(), "Get", ""),
        ('5', Method::GET, MAPS, "", &String::new(), "List", ""),
        (
            '6',
            Method::DELETE,
            &one,
            "",
            &String::new(),
            "Delete",
            "Delete embedded",
        ),
    ] {
        let trace = digit.to_string().repeat(32);
        let parent = traceparent(&trace, true);
        let headers = [("content-type", content_type), ("traceparent", &*parent)];
        let response = plain.send(method, path, &headers, body).await;
        assert!(response.status.is_success(), "{verb}: {}", response.text());
        collector
            .wait_for(|span| span.trace == trace && span.parent == CLIENT)
            .await;
        let spans = collector.trace(&trace);
        let verb = named(&spans, verb);
        if !operation.is_empty() {
            assert_eq!(named(&spans, operation).parent, verb.id, "{spans:#?}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn requests_that_are_not_sampled_export_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let server = Server::start(&[&flag(directory.path(), &collector.endpoint(), 0)]).await;
    let mut plain = server.plain(Protocol::Http1).await;
    let unsampled = "1".repeat(32);
    let created = create(&mut plain, "a", &traceparent(&unsampled, false)).await;
    assert_eq!(created.status, 201);
    assert_eq!(create(&mut plain, "b", "invalid").await.status, 201);
    assert_eq!(plain.get(MAPS).await.status, 200);
    // After the sampled request is exported, the earlier requests would have been exported too.
    let created = create(&mut plain, "c", &traceparent(TRACE, true)).await;
    assert_eq!(created.status, 201);
    server.stop().await;
    let spans = collector.spans();
    assert!(!spans.is_empty());
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");
}

#[tokio::test]
async fn only_requests_of_privileged_users_continue_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.csv");
    std::fs::write(&tokens, "t-ann,ann,1\nt-mo,mo,2,\"system:monitoring\"\n").unwrap();
    let tokens = format!("--token-auth-file={}", tokens.display());
    for rate in [0, ALL] {
        let collector = Collector::start().await;
        let tracing = flag(directory.path(), &collector.endpoint(), rate);
        let server = Server::start(&[&tracing, &tokens]).await;
        let mut wire = server.stranger(Protocol::Http1).await;
        for (user, digit) in [("ann", "1"), ("mo", "2")] {
            let bearer = format!("Bearer t-{user}");
            let parent = traceparent(&digit.repeat(32), true);
            let headers = [("authorization", &*bearer), ("traceparent", &*parent)];
            let response = wire.send(Method::GET, "/version", &headers, "").await;
            assert_eq!(response.status, 200);
        }
        server.stop().await;
        let mo = collector.trace(&"2".repeat(32));
        assert_eq!(named(&mo, "GET").parent, CLIENT);
        assert!(collector.trace(&"1".repeat(32)).is_empty());
        let spans = collector.spans();
        let ann = spans.iter().find(|span| !span.span.links.is_empty());
        if rate == 0 {
            assert!(ann.is_none(), "{ann:#?}");
            continue;
        }
        let ann = ann.expect("ann's request begins a trace");
        assert_eq!((&*ann.name, &*ann.parent), ("GET", ""));
        let link = &ann.span.links[0];
        assert_eq!(hex(&link.trace_id), "1".repeat(32));
        assert_eq!(hex(&link.span_id), CLIENT);
    }
}

#[tokio::test]
async fn the_span_of_a_watch_ends_with_the_watch() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let server = Server::start(&[&flag(directory.path(), &collector.endpoint(), 0)]).await;
    let mut plain = server.plain(Protocol::Http1).await;
    // Long enough that the watch is still open when the test reads the metrics.
    let path = format!("{MAPS}?watch=true&timeoutSeconds=5");
    let parent = traceparent(TRACE, true);
    let watched = plain
        .send(Method::GET, &path, &[("traceparent", &parent)], "")
        .await;
    assert_eq!(watched.status, 200);
    let of_websocket = "1".repeat(32);
    let parent = traceparent(&of_websocket, true);
    let stream = TcpStream::connect(server.insecure()).await.unwrap();
    let headers = [("traceparent", &*parent)];
    let mut socket = websocket::open_over(stream, &path, &headers)
        .await
        .unwrap()
        .0;
    let metrics = Scrape::parse(&plain.get("/metrics").await.text());
    let open = metrics.sum(
        "apiserver_longrunning_requests",
        &[r#"resource="configmaps""#],
    );
    assert!(open >= 1.0, "it ended at the upgrade: {open}");
    while let Some(Ok(_)) = socket.next().await {}
    server.stop().await;
    for trace in [TRACE, &of_websocket] {
        let spans = collector.trace(trace);
        let request = named(&spans, "GET /api/v1/namespaces/{:namespace}/configmaps");
        let nanos = request.span.end_time_unix_nano - request.span.start_time_unix_nano;
        assert!(Duration::from_nanos(nanos) >= Duration::from_secs(1));
        assert!(!spans.iter().any(|span| span.name == "List"), "{spans:#?}");
    }
}

#[tokio::test]
async fn only_a_5xx_sets_the_status_of_the_span_to_error() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let server = Server::start(&[&flag(directory.path(), &collector.endpoint(), 0)]).await;
    let mut plain = server.plain(Protocol::Http1).await;
    let webhook = Webhook::answering(|_| Reply::other(500, "broken")).await;
    define_converted(&mut plain, &webhook).await;
    let failed = create_converted(&mut plain, &traceparent(&"1".repeat(32), true)).await;
    assert_eq!(failed.status, 500, "{}", failed.text());
    let parent = traceparent(&"2".repeat(32), true);
    let missing = [("traceparent", &*parent)];
    let missing = plain.send(Method::GET, "/no", &missing, "").await;
    assert_eq!(missing.status, 404);
    server.stop().await;
    let spans = collector.spans();
    let request = |digit: &str| {
        let trace = digit.repeat(32);
        let mut spans = spans.iter().filter(|span| span.trace == trace);
        spans
            .find(|span| span.parent == CLIENT)
            .expect("the request")
    };
    let failed = request("1");
    assert_eq!(failed.attributes["http.response.status_code"], "500");
    let of_webhook = |name| spans.iter().find(|span| span.name == name);
    let of_webhook = ["Call conversion webhook", "HTTP POST"].map(of_webhook);
    for span in [Some(failed)].into_iter().chain(of_webhook) {
        let span = span.expect("a span of the call");
        let status = span.span.status.clone().unwrap_or_default();
        assert_eq!(status.code, 2, "STATUS_CODE_ERROR: {span:#?}");
    }
    let missing = request("2");
    assert_eq!(missing.attributes["http.response.status_code"], "404");
    assert_eq!(missing.span.status.clone().unwrap_or_default().code, 0);
}

//! Tests of connections over a pipe: clients that do not read, and local access without
//! authentication.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::{http1 as client1, http2 as client2};
use hyper_util::rt::TokioExecutor;
use serde_json::json;

use super::*;
use crate::api::UserInfo;
use crate::builtin::new_registry;
use crate::http::{GuardedBody, HealthCheck, HttpConfig, SendDeadline, router};
use crate::metrics::Metrics;
use crate::registry::CacherConfig;
use crate::server::transport::connections::Connections;
use crate::storage::Storage;
use crate::storage::embedded::{Embedded, EmbeddedConfig};
use crate::storage::memory::Memory;

/// A generous time limit for operations that take milliseconds on an idle machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The request timeout of these tests: enough for a response of 4 MB from a build that is not optimized.
const LIMIT: Duration = Duration::from_secs(10);

struct Fixture {
    service: Service,
    tasks: Tasks,
    metrics: Arc<Metrics>,
    connections: Arc<Connections>,
}

impl Fixture {
    /// Creates a server that allows one read in flight, with config maps larger than all buffers.
    async fn new() -> Self {
        Self::over(Memory::new(Duration::from_secs(300)).unwrap()).await
    }

    /// As [`Self::new`], over a storage that makes backups.
    async fn with_backups(directory: &std::path::Path) -> Self {
        Self::over(Embedded::open(directory, EmbeddedConfig::default()).unwrap()).await
    }

    async fn over(storage: Arc<dyn Storage>) -> Self {
        let metrics = Metrics::new();
        let tasks = Tasks::with_metrics(metrics.tasks());
        let registry = new_registry(storage, &tasks, CacherConfig::default(), Metrics::new());
        registry.bootstrap().await.unwrap();
        let config_maps = registry.resource("", "v1", "configmaps").unwrap();
        for n in 0..4 {
            let body =
                json!({"metadata": {"name": format!("c{n}")}, "data": {"x": "x".repeat(1 << 20)}});
            let options = crate::api::WriteOptions::default();
            let created = registry.create(&config_maps, Some("default"), body, &options);
            created.await.unwrap();
        }
        let config = HttpConfig {
            reads_in_flight_max: 1,
            request_timeout: LIMIT,
            checks: vec![HealthCheck::new("bad", || async {
                panic_now("planted in a check")
            })],
            ..HttpConfig::new(Arc::default(), Arc::clone(&metrics))
        };
        let service = Service {
            router: router(registry, config),
            console: None,
            authentication: Authentication::Unsecured(Arc::new(UserInfo::unsecured())),
            auditor: None,
            tasks: tasks.clone(),
        };
        Self {
            service,
            tasks,
            metrics,
            connections: Connections::new(9, &Arc::default()),
        }
    }

    /// Connects a client with minimal receive windows.
    async fn connect(&self, protocol: Protocol) -> Client {
        self.connect_with_window(protocol, 1).await
    }

    async fn connect_with_window(&self, protocol: Protocol, window: u32) -> Client {
        let (server, client) = tokio::io::duplex(16 << 10);
        let slot = self.connections.slot(&self.tasks.token()).await;
        let slot = slot.expect("a free slot");
        let connection = Arc::clone(slot.connection());
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let handler = Handler::new(&self.service, PeerCertificate::Absent, peer, connection);
        let io = TokioIo::new(client);
        let (client, driver) = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = client1::handshake(io).await.unwrap();
                (Client::Http1(sender), connection.map(drop).left_future())
            }
            Protocol::Http2 => {
                let mut builder = client2::Builder::new(TokioExecutor::new());
                let builder = builder
                    .initial_stream_window_size(window)
                    .initial_connection_window_size(1 << 30);
                let (sender, connection) = builder.handshake(io).await.unwrap();
                (Client::Http2(sender), connection.map(drop).right_future())
            }
        };
        let tasks = self.tasks.clone();
        let served = http(server, peer, protocol, handler, tasks);
        self.tasks.spawn("server", async move {
            let _slot = slot;
            served.await
        });
        let stop = self.tasks.token();
        self.tasks
            .spawn("client", stop.run_until_cancelled_owned(driver));
        client
    }
}

enum Client {
    Http1(client1::SendRequest<Body>),
    Http2(client2::SendRequest<Body>),
}

impl Client {
    async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(format!("http://localhost{path}"))
            .header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let answer = async {
            match self {
                Self::Http1(sender) => sender.send_request(request).await,
                Self::Http2(sender) => sender.send_request(request).await,
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, answer)
            .await
            .unwrap()
            .unwrap()
    }
}

/// A client that did not read its response used to occupy the in-flight limit until it
/// disconnected; with 400 streams it could block all others.
#[tokio::test]
async fn a_client_that_does_not_read_releases_its_permit() {
    let untaken = async |protocol| {
        let fixture = Fixture::new().await;
        let mut idle = fixture.connect(protocol).await;
        let untaken = idle.get("/api/v1/configmaps", &[]).await;
        assert_eq!(untaken.status(), StatusCode::OK);

        let list_status = async || {
            let mut other = fixture.connect(Protocol::Http1).await;
            other.get("/api/v1/namespaces", &[]).await.status()
        };
        assert_eq!(list_status().await, StatusCode::TOO_MANY_REQUESTS);
        let freed = async {
            while list_status().await != StatusCode::OK {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let freed = tokio::time::timeout(TEST_TIMEOUT, freed).await;
        freed.expect("the permit is released");
        let rest = tokio::time::timeout(TEST_TIMEOUT, untaken.into_body().collect());
        rest.await.unwrap().expect_err("the response was aborted");
        fixture.tasks.drain(TEST_TIMEOUT).await.unwrap();
    };
    tokio::join!(untaken(Protocol::Http1), untaken(Protocol::Http2));
}

/// A response that is received in time is complete, and a watch may outlast the request timeout.
#[tokio::test]
async fn a_client_that_reads_is_not_cut_off() {
    let fixture = Fixture::new().await;
    let mut client = fixture.connect(Protocol::Http1).await;
    for _ in 0..2 {
        let list = client.get("/api/v1/configmaps", &[]).await;
        let body = list.into_body().collect().await.unwrap().to_bytes();
        assert!(body.len() > 4 << 20);
    }
    let seconds = LIMIT.as_secs() + 1;
    let path = format!("/api/v1/namespaces?watch=1&timeoutSeconds={seconds}");
    let started = tokio::time::Instant::now();
    let watch = client.get(&path, &[]).await;
    let body = watch.into_body().collect().await.unwrap().to_bytes();
    assert!(started.elapsed() >= LIMIT, "the watch lasted");
    assert!(body.starts_with(br#"{"type":"ADDED""#));
    fixture.tasks.drain(TEST_TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn a_web_page_is_rejected_with_a_status() {
    let fixture = Fixture::new().await;
    let mut client = fixture.connect(Protocol::Http1).await;
    let refused = client.get("/api", &[("origin", "http://evil.test")]).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert!(refused.headers().contains_key("audit-id"));
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&status["kind"], &status["reason"]),
        (&json!("Status"), &json!("Forbidden"))
    );
    assert_eq!(client.get("/api", &[]).await.status(), StatusCode::OK);
    fixture.tasks.drain(TEST_TIMEOUT).await.unwrap();
}

/// The uncorking task used to replace the waker of the writing task: a client with wide windows,
/// which sends nothing while it reads, received more data only after the next ping, 30 s later.
#[tokio::test]
async fn a_slow_silent_client_receives_without_a_pause() {
    let fixture = Fixture::new().await;
    let mut client = fixture.connect_with_window(Protocol::Http2, 1 << 30).await;
    let read = async {
        for _ in 0..5 {
            let list = client.get("/api/v1/configmaps", &[]).await;
            let body = list.into_body().collect().await.unwrap().to_bytes();
            assert!(body.len() > 4 << 20);
        }
    };
    // Less than the interval of pings.
    let read = tokio::time::timeout(TEST_TIMEOUT, read).await;
    read.expect("data arrives without a pause");
    fixture.tasks.drain(TEST_TIMEOUT).await.unwrap();
}

fn panic_now<T>(message: &str) -> T {
    panic!("{message}")
}

/// Panics when it is dropped.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic_now::<()>("planted in a drop");
    }
}

/// Adds paths below `/panics` whose handler, whose body, and the drop of whose body panic outside of what the router of the API
/// catches.
fn with_panics(service: &mut Service) {
    let body = || {
        let pieces = futures_util::stream::iter(0..2).then(|piece| async move {
            if piece == 1 {
                // The head and the first piece are sent meanwhile.
                tokio::time::sleep(Duration::from_millis(100)).await;
                panic_now::<()>("planted in a body");
            }
            Ok::<_, Infallible>("the first piece")
        });
        Response::new(Body::from_stream(pieces))
    };
    // Dropped at its deadline, after the first piece.
    let dropped = || {
        let first = futures_util::stream::iter([Ok::<_, Infallible>("the first piece")]);
        let body = Body::from_stream(first.chain(futures_util::stream::pending()));
        let mut response = Response::new(GuardedBody::wrap(body, PanicOnDrop));
        let deadline = tokio::time::Instant::now() + Duration::from_millis(100);
        response
            .extensions_mut()
            .insert(SendDeadline::from(deadline));
        response
    };
    let handler = || async { panic_now::<Response<Body>>("planted in a handler") };
    service.router = axum::Router::new()
        .route("/panics/body", axum::routing::get(async move || body()))
        .route("/panics/drop", axum::routing::get(async move || dropped()))
        .route("/panics/handler", axum::routing::get(handler))
        .fallback_service(service.router.clone());
}

/// A panic of a body, or of a request outside of the router, ended the connection, and with it all its watches.
#[tokio::test]
async fn a_panic_ends_only_its_request() {
    let mut fixture = Fixture::new().await;
    with_panics(&mut fixture.service);
    let mut client = fixture.connect_with_window(Protocol::Http2, 1 << 20).await;
    let watch = client
        .get("/api/v1/namespaces?watch=1&timeoutSeconds=2", &[])
        .await;
    assert_eq!(watch.status(), StatusCode::OK);

    for path in ["/panics/handler", "/readyz"] {
        let failed = client.get(path, &[]).await;
        assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR, "{path}");
        let status = failed.into_body().collect().await.unwrap().to_bytes();
        let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
        assert_eq!(
            (&status["kind"], &status["code"]),
            (&json!("Status"), &json!(500))
        );
        assert!(
            !status.to_string().contains("planted"),
            "the detail is only logged: {status}"
        );
    }
    for path in ["/panics/body", "/panics/drop"] {
        let cut = client.get(path, &[]).await;
        assert_eq!(cut.status(), StatusCode::OK, "the panic comes later");
        let cut = cut.into_body().collect().await;
        cut.expect_err("the stream is reset");
    }

    let events = tokio::time::timeout(TEST_TIMEOUT, watch.into_body().collect()).await;
    let events = events
        .unwrap()
        .expect("the watch ends regularly")
        .to_bytes();
    assert!(events.starts_with(br#"{"type":"ADDED""#));
    assert_eq!(client.get("/api", &[]).await.status(), StatusCode::OK);
    let text = fixture.metrics.render(crate::metrics::Format::Prometheus);
    for (task, count) in [("request", 2), ("http2-stream", 2)] {
        let sample = format!("watchet_task_panics_total{{task=\"{task}\"}} {count}\n");
        assert!(text.contains(&sample), "{sample}");
    }
    fixture.tasks.drain(TEST_TIMEOUT).await.unwrap();
}

/// Over HTTP/1.1 only the connection of the request ends, and only if its response has begun.
#[tokio::test]
async fn a_panic_over_http1_is_a_status() {
    let mut fixture = Fixture::new().await;
    with_panics(&mut fixture.service);
    let mut client = fixture.connect(Protocol::Http1).await;
    let failed = client.get("/readyz", &[]).await;
    assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
    failed.into_body().collect().await.unwrap();
    let cut = client.get("/panics/body", &[]).await;
    cut.into_body()
        .collect()
        .await
        .expect_err("the body is incomplete");
    let mut other = fixture.connect(Protocol::Http1).await;
    assert_eq!(other.get("/api", &[]).await.status(), StatusCode::OK);
    fixture.tasks.drain(TEST_TIMEOUT).await.unwrap();
}

/// Ends idle connections, as the server does.
fn end_idle(fixture: &Fixture) {
    let connections = Arc::clone(&fixture.connections);
    let ends = connections.end_idle(fixture.tasks.token());
    fixture.tasks.spawn("idle", ends);
}

/// The connection of a backup over HTTP/1.1 was idle from the head of the response on, and ended after 90 seconds.
#[tokio::test]
async fn a_backup_that_is_read_slowly_is_complete() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let directory = tempfile::tempdir().unwrap();
        let fixture = Fixture::with_backups(directory.path()).await;
        end_idle(&fixture);
        let mut client = fixture.connect_with_window(protocol, 1 << 16).await;
        tokio::time::pause();
        let backup = client.get("/debug/storage/backup", &[]).await;
        assert_eq!(backup.status(), StatusCode::OK);
        let mut body = backup.into_body();
        let mut received = 0;
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_secs(45)).await;
            let end = received + (256 << 10);
            while received < end {
                let frame = body.frame().await.expect("not the end");
                received += frame.expect("no error").into_data().unwrap().len();
            }
        }
        let rest = body.collect().await.expect("a complete backup").to_bytes();
        assert!(received + rest.len() > 4 << 20, "{received}");
        drop(client);
        fixture.tasks.drain(TEST_TIMEOUT).await.unwrap();
        tokio::time::resume();
    }
}

/// A backup over HTTP/2 whose client did not read had no end: it had its permit for ever, and the server could not stop.
#[tokio::test]
async fn a_backup_that_is_not_read_is_aborted() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let directory = tempfile::tempdir().unwrap();
        let fixture = Fixture::with_backups(directory.path()).await;
        let mut client = fixture.connect(protocol).await;
        let mut other = fixture.connect(Protocol::Http1).await;
        tokio::time::pause();
        let backup = client.get("/debug/storage/backup", &[]).await;
        tokio::time::sleep(Duration::from_secs(55)).await;
        let list = other.get("/api/v1/namespaces", &[]).await;
        assert_eq!(list.status(), StatusCode::TOO_MANY_REQUESTS);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let list = other.get("/api/v1/namespaces", &[]).await;
        assert_eq!(list.status(), StatusCode::OK, "the permit is released");
        let aborted = backup.into_body().collect().await;
        aborted.expect_err("the response was aborted");

        // At the shutdown it ends earlier.
        let mut client = fixture.connect(protocol).await;
        let backup = client.get("/debug/storage/backup", &[]).await;
        assert_eq!(backup.status(), StatusCode::OK);
        fixture.tasks.drain(TEST_TIMEOUT).await.unwrap();
        tokio::time::resume();
    }
}

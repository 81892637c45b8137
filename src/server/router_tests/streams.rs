//! Tests of watches through the router and over a connection.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

async fn watch(server: &Server, query: &str) -> Body {
    let line = format!("GET {CONFIG_MAPS}?watch=1&{query}");
    let response = server.send(request(&line, &[], "")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/json");
    response.into_body()
}

/// Returns `TYPE name` of each frame.
fn summary(frames: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let name = |frame: &Value| text(&frame["object"]["metadata"]["name"]);
    frames
        .iter()
        .map(|frame| format!("{} {}", text(&frame["type"]), name(frame)))
        .collect()
}

#[tokio::test]
async fn a_watch_sends_state_and_changes_and_ends_on_drain() {
    let server = Server::new().await;
    let made = server.put_config_map("a", "x").await;
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
    let mut body = watch(&server, initial).await;
    let first = frames(&mut body, 2).await;
    assert_eq!(summary(&first), ["ADDED a", "BOOKMARK -"]);
    let annotations = &first[1]["object"]["metadata"]["annotations"];
    assert_eq!(annotations["k8s.io/initial-events-end"], "true");
    server.put_config_map("b", "x").await;
    server
        .call(&format!("DELETE {CONFIG_MAPS}/a"), &[], "")
        .await;
    let both = ["ADDED b", "DELETED a"];
    assert_eq!(summary(&frames(&mut body, 2).await), both);

    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let mut resumed = watch(&server, &format!("resourceVersion={version}")).await;
    assert_eq!(summary(&frames(&mut resumed, 2).await), both);
    let mut selected = watch(&server, "labelSelector=app%3Db&resourceVersion=0").await;
    assert_eq!(summary(&frames(&mut selected, 1).await), ["ADDED b"]);
    // The next event proves that no other event came before it.
    let line = format!("PATCH {CONFIG_MAPS}/b");
    let headers = ["content-type: application/merge-patch+json"];
    let patched = server.call(&line, &headers, r#"{"data":{"text":"y"}}"#);
    assert_eq!(patched.await.code, 200);
    for body in [&mut body, &mut resumed, &mut selected] {
        assert_eq!(summary(&frames(body, 1).await), ["MODIFIED b"]);
    }

    server.config.connections.cancel();
    for body in [&mut body, &mut resumed, &mut selected] {
        assert!(
            body.frame().await.is_none(),
            "the body ends, without an ERROR"
        );
    }
    server.stop().await;
}

/// client-go starts a new watch as soon as one ends. A new watch that started before the client
/// read the GOAWAY ended within a second without an event, which makes an informer list again.
#[tokio::test]
async fn a_watch_is_rejected_while_the_server_drains() {
    let server = Server::new().await;
    server.put_config_map("a", "x").await;
    server.config.connections.cancel();
    let refused = server.get(&format!("{CONFIG_MAPS}?watch=1")).await;
    refused.failure(429, "TooManyRequests");
    assert_eq!(refused.headers["retry-after"], "1");
    server.stop().await;
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout() {
    let server = Server::new().await;
    let begun = tokio::time::Instant::now();
    let received = server.get("/api/v1/pods?watch=1&timeoutSeconds=1");
    // Without the parameter it lasts at least half an hour.
    let received = tokio::time::timeout(Duration::from_secs(60), received).await;
    let received = received.expect("the watch ends");
    assert_eq!((received.code, received.body.len()), (200, 0));
    let lasted = begun.elapsed();
    assert!(lasted >= Duration::from_millis(900), "{lasted:?}");
    server.stop().await;
}

#[tokio::test]
async fn failures_before_and_within_a_watch() {
    let server = Server::new().await;
    let bad = server.get("/api/v1/pods?watch=1&resourceVersion=abc").await;
    bad.failure(400, "BadRequest");
    let bad = server
        .get("/api/v1/pods?watch=1&sendInitialEvents=true")
        .await;
    bad.failure(422, "Invalid");
    let yaml = ["accept: application/yaml"];
    let bad = server.call("GET /api/v1/pods?watch=1", &yaml, "").await;
    assert_eq!(bad.code, 406);
    // The error response itself can be YAML.
    let actual = String::from_utf8_lossy(&bad.body);
    assert!(actual.contains("reason: NotAcceptable"), "{actual}");
    let upgrade = ["connection: upgrade", "upgrade: websocket"];
    let bad = server.call("GET /api/v1/pods?watch=1", &upgrade, "").await;
    let actual = bad.failure(400, "BadRequest");
    assert!(actual.contains("Sec-WebSocket-Key"), "{actual}");
    let future = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                  &resourceVersion=99999999";
    let within = server.get(future).await;
    assert_eq!(within.code, 200);
    assert_eq!(within.json()["type"], "ERROR");
    assert_eq!(within.json()["object"]["code"], 504);
    server.stop().await;
}

#[tokio::test]
async fn legacy_watch_paths_watch_one_object() {
    let server = Server::new().await;
    server.put_config_map("a", "x").await;
    server.put_config_map("b", "x").await;
    let path = "/api/v1/watch/namespaces/default/configmaps/b";
    let received = watched(&server, path, 1).await;
    assert_eq!(summary(&received), ["ADDED b"]);
    let clash = server
        .get(&format!("{path}?fieldSelector=metadata.name%3Da"))
        .await;
    clash.failure(400, "BadRequest");
    server.stop().await;
}

/// Reads until `text` has arrived.
async fn read_until(client: &mut tokio::io::DuplexStream, text: &str) -> String {
    let mut all = Vec::new();
    while !String::from_utf8_lossy(&all).contains(text) {
        let read = tokio::time::timeout(Duration::from_secs(5), client.read_buf(&mut all)).await;
        assert!(
            read.expect("data arrives soon").unwrap() > 0,
            "the connection ended early"
        );
    }
    String::from_utf8(all).unwrap()
}

#[tokio::test]
async fn the_head_and_each_event_are_flushed_immediately() {
    let server = Server::new().await;
    let (mut client, connection) = tokio::io::duplex(64 << 10);
    let service = TowerToHyperService::new(server.router.clone());
    let io = hyper_util::rt::TokioIo::new(connection);
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(io, service);
    let tasks = Tasks::new();
    let served = tasks.spawn("connection", serving);
    let request = format!("GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let head = read_until(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    server.put_config_map("a", "x").await;
    let event = read_until(&mut client, "}\n\r\n").await;
    assert!(event.contains(r#"{"type":"ADDED","object":{"#), "{event}");
    server.config.connections.cancel();
    read_until(&mut client, "0\r\n\r\n").await;
    drop(client);
    served.await.unwrap().unwrap();
    server.stop().await;
}

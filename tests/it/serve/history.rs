//! A history window that is shorter than the time between two bookmarks, on both back ends.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Protocol, Server};
use crate::storage::etcd::EtcdProcess;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The number of events that a cache retains whatever its window is.
const EVENTS_MIN: usize = 100;

/// The server rejected a window below a minute, so that no test of a client could cause a 410 in less time.
#[tokio::test]
async fn a_short_history_window_makes_a_watch_expire_within_seconds() {
    let window = "--watch-history-window=200ms";
    let server = Server::start(&[window]).await;
    expires(&server).await;
    server.stop().await;
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers, window]).await;
    expires(&server).await;
    server.stop().await;
}

async fn expires(server: &Server) {
    assert!(
        server
            .log()
            .contains("shorter than the time between two bookmarks"),
        "{}",
        server.log()
    );
    let mut wire = server.plain(Protocol::Http1).await;
    let list = wire.get(MAPS).await.json();
    let start = list["metadata"]["resourceVersion"].as_str().expect("one");
    let body = json!({"metadata": {"generateName": "m-"}});
    for _ in 0..EVENTS_MIN + 10 {
        assert_eq!(wire.post(MAPS, &body).await.status, StatusCode::CREATED);
    }
    let path = format!("{MAPS}?watch=1&resourceVersion={start}&timeoutSeconds=1");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        // History is trimmed when events arrive.
        tokio::time::sleep(Duration::from_millis(300)).await;
        wire.post(MAPS, &body).await;
        let answer = wire.send(Method::GET, &path, &[], "").await;
        let first = answer.body.split(|byte| *byte == b'\n').next();
        let first: Value = match first.unwrap_or_default() {
            // On a busy machine the watch can time out before its first event.
            [] => Value::Null,
            line => serde_json::from_slice(line).expect("an event"),
        };
        if first["type"] == "ERROR" {
            assert_eq!(first["object"]["code"], 410, "{first}");
            assert_eq!(first["object"]["reason"], "Expired", "{first}");
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{first}");
    }
}

//! Tests of `watchet_watch_event_write_duration_seconds` with the real program: an event counts when the socket of its client has
//! accepted it, over each protocol, and the duration includes the time during which the client does not read.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::harness::{OpenWatch, PATIENCE, Protocol, Scrape, Server, Wire};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITES: &str = "watchet_watch_event_write_duration_seconds";

/// Flags of a server without controllers, which watch config maps too.
const WITHOUT_CONTROLLERS: [&str; 2] = ["--storage=memory", "--controllers=-namespace"];

async fn create(wire: &mut Wire, name: &str, bytes: usize) {
    let object: Value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"text": "x".repeat(bytes)}});
    let created = wire.post(MAPS, &object).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
}

/// Waits until `count` events of config maps have been written, and returns the sum of their durations in seconds.
async fn until_written(wire: &mut Wire, count: f64) -> f64 {
    let labels = ["version=\"v1\"", "resource=\"configmaps\""];
    let written = async {
        loop {
            let scraped = Scrape::parse(&wire.get("/metrics").await.text());
            if scraped.sum(&format!("{WRITES}_count"), &labels) == count {
                return scraped.sum(&format!("{WRITES}_sum"), &labels);
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, written).await.expect("all are counted")
}

/// Waits until `count` watches of config maps are live, so that later events are not read from history.
async fn until_live(wire: &mut Wire, count: f64) {
    let live = async {
        loop {
            let scraped = Scrape::parse(&wire.get("/metrics").await.text());
            if scraped.sum("watchet_live_watchers", &["resource=\"configmaps\""]) == count {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, live).await.expect("live watches");
}

/// Opens a watch, which begins with the existing objects, over a connection with a small receive buffer. The caller does not read
/// from it.
async fn open_unread(server: &Server, headers: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4 << 10).expect("a buffer size");
    let mut stream = socket.connect(server.insecure()).await.expect("accepted");
    let head = format!("GET {MAPS}?watch=true HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    stream
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

#[tokio::test]
async fn an_event_counts_when_the_socket_has_accepted_it() {
    let server = Server::start(&WITHOUT_CONTROLLERS).await;
    let mut watches = Vec::new();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        watches.push(OpenWatch::start(server.plain(protocol).await, &[]).await);
        watches.push(OpenWatch::start(server.admin(protocol).await, &[]).await);
    }
    // A few small events fit into the socket's buffer.
    let _websocket = open_unread(&server, UPGRADE).await;
    let mut wire = server.plain(Protocol::Http1).await;
    until_live(&mut wire, 5.0).await;
    for name in ["a", "b", "c"] {
        create(&mut wire, name, 10).await;
        for watch in &mut watches {
            let event = watch.next().await.expect("an open watch");
            assert_eq!(event["object"]["metadata"]["name"], name);
        }
    }
    let seconds = until_written(&mut wire, 15.0).await;
    assert!(
        seconds > 0.0 && seconds < PATIENCE.as_secs_f64(),
        "{seconds}"
    );
    server.stop().await;
}

#[tokio::test]
async fn the_duration_includes_the_time_while_the_client_does_not_read() {
    let server = Server::start(&WITHOUT_CONTROLLERS).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let mut slow = open_unread(&server, "").await;
    until_live(&mut wire, 1.0).await;
    // More than the socket buffers hold.
    for name in 0..16 {
        create(&mut wire, &format!("large-{name}"), 1 << 20).await;
    }
    sleep(Duration::from_millis(1500)).await;
    let written = async {
        loop {
            let scraped = Scrape::parse(&wire.get("/metrics").await.text());
            let seconds = scraped.sum(&format!("{WRITES}_sum"), &["resource=\"configmaps\""]);
            if seconds >= 1.5 {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let mut sink = tokio::io::sink();
    tokio::select! {
        // The order does not matter: only one of them ends.
        biased;
        ended = tokio::io::copy(&mut slow, &mut sink) => panic!("the watch ended: {ended:?}"),
        written = timeout(PATIENCE, written) => written.expect("the event that did not fit into the buffer"),
    }
    server.stop().await;
}

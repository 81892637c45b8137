//! The maximum number of connections: idle ones are closed for new ones, busy ones are not.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::harness::{PATIENCE, PROTOCOLS, Protocol, Server, Wire, full, request};

const WATCH: &str = "/api/v1/namespaces?watch=true";

/// Opens connections that send nothing.
async fn silent(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let stream = TcpStream::connect(address).await;
        streams.push(stream.expect("a connection"));
    }
    streams
}

/// Returns true when the server has closed the connection.
fn is_closed(stream: &TcpStream) -> bool {
    // A silent client gets no response.
    !matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

async fn events(wire: &mut Wire) -> hyper::body::Incoming {
    let watch = request(Method::GET, WATCH, &[], full(""));
    let response = wire.open(watch).await.expect("a response");
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

/// Under a limit of 256 open files, 239 idle connections shut all other clients out, whatever their credentials.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_exhaust_the_open_files() {
    let server = Server::start_with_open_files(256, &["--secure-port=0"]).await;
    let mut watcher = server.admin(Protocol::Http2).await;
    let mut watch = events(&mut watcher).await;
    // These connections are older than the client's. However slowly the machine accepts the next ones, the client's
    // idle time reaches the second after which it can be closed only after theirs.
    let mut streams = silent(server.secure(), 150).await;
    let mut client = server.admin(Protocol::Http1).await;
    assert_eq!(client.get("/healthz").await.status, StatusCode::OK);

    streams.extend(silent(server.secure(), 150).await);
    // New connections are refused while all idle ones are younger than a second.
    sleep(Duration::from_secs(1)).await;
    streams.extend(silent(server.secure(), 100).await);
    for protocol in PROTOCOLS {
        let mut late = server.admin(protocol).await;
        assert_eq!(late.get("/healthz").await.status, StatusCode::OK);
    }
    // Silent connections are closed first: the idle client with a request stays, and the watch.
    assert_eq!(client.get("/healthz").await.status, StatusCode::OK);
    let created = client
        .post(
            "/api/v1/namespaces",
            &serde_json::json!({"metadata": {"name": "seen"}}),
        )
        .await;
    assert_eq!(created.status, StatusCode::CREATED);
    let seen = async {
        loop {
            let frame = watch.frame().await.expect("an event").expect("no error");
            let data = frame.into_data().expect("data");
            if String::from_utf8_lossy(&data).contains("\"seen\"") {
                return;
            }
        }
    };
    timeout(PATIENCE, seen).await.expect("the event arrives");
    let closed = streams.iter().filter(|stream| is_closed(stream)).count();
    assert!(closed >= 400 - 256, "{closed} closed");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_maximum_are_refused_while_all_are_busy() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let flags = [
        "--secure-port=0",
        "--insecure-port=auto",
        "--max-connections=4",
    ];
    let server = Server::start_exactly(directory.path(), &flags).await;
    let mut watches = Vec::new();
    for protocol in [PROTOCOLS, PROTOCOLS].concat() {
        let mut wire = server.admin(protocol).await;
        let events = events(&mut wire).await;
        watches.push((wire, events));
    }
    // Watches stay busy for longer than the age from which an idle connection may be closed.
    sleep(Duration::from_millis(1500)).await;
    for mut refused in silent(server.secure(), 20).await {
        let read = timeout(PATIENCE, refused.read(&mut [0])).await;
        assert!(matches!(read.expect("it is closed"), Ok(0) | Err(_)));
    }
    let log = server.log();
    let warnings = log.matches("connection refused: --max-connections").count();
    assert!((1..20).contains(&warnings), "{log}");
    for (_, events) in &mut watches {
        let event = timeout(PATIENCE, events.frame()).await.expect("in time");
        event.expect("an event").expect("no error");
    }
    drop(watches);
    // The server refuses connections until it has noticed that others are closed. The maximum is that of both ports.
    let served = async {
        loop {
            let mut next = server.plain(Protocol::Http1).await;
            let healthz = request(Method::GET, "/healthz", &[], full(""));
            if let Ok(response) = next.open(healthz).await {
                return response.status();
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let status = timeout(PATIENCE, served).await.expect("a free slot");
    assert_eq!(status, StatusCode::OK);
    server.stop().await;
}

//! Tests of the end of the process: watches are closed without an error, writes are completed, and a second signal or
//! the end of the grace period ends the process immediately.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::harness::{PATIENCE, PROTOCOLS, Protocol, Server, Wire, full, request};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A grace period that is longer than any test: a test fails if the process waits for its end.
const ENDLESS_GRACE: [&str; 2] = ["--storage=memory", "--shutdown-grace-period=1h"];

/// Opens a watch and waits for its first event.
async fn watch(wire: &mut Wire) -> Incoming {
    let path = "/api/v1/namespaces?watch=true";
    let response = wire
        .open(request(Method::GET, path, &[], full("")))
        .await
        .expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let first = timeout(PATIENCE, body.frame()).await.expect("in time");
    first.expect("an event").expect("no error");
    body
}

/// Returns the rest of a body, which must end without an error.
async fn rest(body: Incoming) -> Bytes {
    let rest = timeout(PATIENCE, body.collect()).await.expect("it ends");
    rest.expect("it ends in order").to_bytes()
}

/// Sends a part of a POST, so that the request is in flight; returns the rest of the body.
async fn unfinished_post(server: &Server, body: &Value) -> (TcpStream, String) {
    let body = body.to_string();
    let (now, later) = body.split_at(body.len() / 2);
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(server.insecure())
        .await
        .expect("a connection");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    // The server sends this when the handler begins to read the body.
    let mut interim = [0; 25];
    timeout(PATIENCE, stream.read_exact(&mut interim))
        .await
        .expect("in time")
        .expect("an interim answer");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(now.as_bytes()).await.expect("it reads");
    (stream, later.to_owned())
}

#[tokio::test]
async fn watches_end_without_an_error() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&ENDLESS_GRACE).await;
        let mut bodies = Vec::new();
        let mut wires = Vec::new();
        for protocol in PROTOCOLS {
            for mut wire in [server.admin(protocol).await, server.plain(protocol).await] {
                bodies.push(watch(&mut wire).await);
                wires.push(wire);
            }
        }
        server.signal(signal);
        for body in bodies {
            let rest = rest(body).await;
            let text = String::from_utf8_lossy(&rest);
            assert!(!text.contains("ERROR"), "{text}");
        }
        let ended = server.wait().await;
        assert!(ended.success(), "{signal}: {ended}");
        let log = server.log();
        assert!(!log.contains("ERROR"), "{log}");
    }
}

#[tokio::test]
async fn a_write_in_flight_is_finished_and_kept() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut server = Server::start_in(directory.path(), &["--durability=none"]).await;
    let object = json!({"metadata": {"name": "late"}, "data": {"k": "v"}});
    let (mut stream, later) = unfinished_post(&server, &object).await;
    server.signal("TERM");
    refuses_connections(&server).await;
    stream.write_all(later.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .expect("in time")
        .expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(server.wait().await.success());
    drop(server);

    let server = Server::start_in(directory.path(), &[]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let kept = wire.get(&format!("{CONFIG_MAPS}/late")).await;
    assert_eq!(kept.json()["data"]["k"], "v");
    server.stop().await;
}

/// Waits until the server accepts no connections.
async fn refuses_connections(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(server.secure()).await.is_ok() {
        assert!(Instant::now() < deadline, "it still accepts");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_second_signal_ends_the_process_immediately() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let mut server = Server::start(&ENDLESS_GRACE).await;
        let _in_flight = unfinished_post(&server, &json!({"metadata": {"name": "a"}})).await;
        server.signal("TERM");
        refuses_connections(&server).await;
        server.signal(signal);
        assert_eq!(server.wait().await.code(), Some(code));
    }
}

#[tokio::test]
async fn requests_beyond_the_grace_period_are_cancelled_and_logged() {
    let flags = ["--storage=memory", "--shutdown-grace-period=300ms"];
    let mut server = Server::start(&flags).await;
    let (mut in_flight, _) = unfinished_post(&server, &json!({"metadata": {"name": "a"}})).await;
    let asked = Instant::now();
    server.signal("TERM");
    assert!(server.wait().await.success());
    assert!(asked.elapsed() >= Duration::from_millis(300));
    assert!(
        server.log().contains("connections aborted"),
        "{}",
        server.log()
    );
    let mut answer = Vec::new();
    // Whether the connection was closed or reset, no write was acknowledged.
    if let Ok(count) = in_flight.read_to_end(&mut answer).await {
        assert_eq!(count, 0, "{answer:?}");
    }
}

#[tokio::test]
async fn a_vanished_client_does_not_delay_shutdown() {
    let mut server = Server::start(&ENDLESS_GRACE).await;
    // The client sends the preface and an empty SETTINGS frame of HTTP/2, and then nothing.
    let mut stream = TcpStream::connect(server.insecure())
        .await
        .expect("a connection");
    let opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(opening).await.expect("it reads");
    let mut settings = [0; 9];
    timeout(PATIENCE, stream.read_exact(&mut settings))
        .await
        .expect("in time")
        .expect("an answer");
    server.signal("TERM");
    assert!(server.wait().await.success());
    assert!(
        !server.log().contains("connections aborted"),
        "{}",
        server.log()
    );
}

#[tokio::test]
async fn idle_connections_do_not_delay_shutdown() {
    let mut server = Server::start(&ENDLESS_GRACE).await;
    let mut wires = Vec::new();
    for protocol in PROTOCOLS {
        let mut wire = server.admin(protocol).await;
        wire.get("/version").await;
        wires.push(wire);
        wires.push(server.plain(protocol).await);
    }
    let silent = TcpStream::connect(server.secure())
        .await
        .expect("a connection");
    server.signal("TERM");
    assert!(server.wait().await.success());
    drop(silent);
}

#[tokio::test]
async fn a_signal_ends_the_server_while_etcd_does_not_respond() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // The port is bound but not listened on, so connections are refused as long as this value exists.
    let reserved = tokio::net::TcpSocket::new_v4().expect("a socket");
    reserved
        .bind("127.0.0.1:0".parse().expect("an address"))
        .expect("a port");
    let servers = format!(
        "--etcd-servers=http://{}",
        reserved.local_addr().expect("its address")
    );
    let mut child = crate::harness::command()
        .current_dir(directory.path())
        .args(["--storage=etcd", "--secure-port=0", &servers])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the binary starts");
    let deadline = Instant::now() + PATIENCE;
    while !directory.path().join(".watchet/pki/admin.crt").exists() {
        assert!(Instant::now() < deadline, "no certificates");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    crate::harness::signal(child.id().expect("it runs"), "TERM");
    let ended = timeout(PATIENCE, child.wait()).await.expect("in time");
    assert!(ended.expect("its own child").success());
}

/// Returns a server whose config maps are more than the buffers of a connection hold, and the connection that created them.
async fn server_with_20_mb() -> (Server, Wire) {
    let server = Server::start(&ENDLESS_GRACE).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let padding = "x".repeat(200_000);
    for n in 0..100 {
        let body = json!({"metadata": {"name": format!("m{n}")}, "data": {"p": padding}});
        assert_eq!(wire.post(CONFIG_MAPS, &body).await.status, 201);
    }
    (server, wire)
}

/// The body of a watch ended only when the client read it. One client that did not read delayed every shutdown by the
/// whole grace period, and its watch outlived its timeout.
#[tokio::test]
async fn watches_that_no_client_reads_are_closed() {
    let (mut server, mut wire) = server_with_20_mb().await;
    let mut stuck = Vec::new();
    for protocol in PROTOCOLS {
        // Long enough for all to be open before the first ends.
        for timeout in ["", "&timeoutSeconds=10"] {
            let mut wire = server.plain(protocol).await;
            let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0{timeout}");
            let response = wire.open(request(Method::GET, &path, &[], full(""))).await;
            stuck.push((wire, response.expect("an answer").into_body()));
        }
    }
    let mut running = async || {
        let metrics = wire.get("/metrics").await;
        let text = String::from_utf8(metrics.body.to_vec()).expect("text");
        let of_watches = |line: &&str| {
            line.starts_with("apiserver_longrunning_requests{") && line.contains("configmaps")
        };
        let lines = text.lines().filter(of_watches);
        lines
            .map(|line| {
                line.rsplit(' ')
                    .next()
                    .unwrap()
                    .parse::<f64>()
                    .expect("a number")
            })
            .sum::<f64>()
    };
    assert_eq!(running().await, 4.0);
    // Two of the watches have a timeout, and the clients have some seconds to read up to it.
    let begun = Instant::now();
    while running().await > 2.0 {
        assert!(begun.elapsed() < PATIENCE, "they outlive their timeout");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(wire);
    server.signal("TERM");
    assert!(server.wait().await.success());
    drop(stuck);
}

/// 20 half request heads, or one half body, delayed the shutdown by the whole grace period.
#[tokio::test]
async fn half_requests_do_not_delay_shutdown() {
    let mut server = Server::start(&ENDLESS_GRACE).await;
    let mut heads = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(server.insecure())
            .await
            .expect("a connection");
        let head = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nX-";
        stream.write_all(head).await.expect("it reads");
        heads.push(stream);
    }
    let (mut half, _) = unfinished_post(&server, &json!({"metadata": {"name": "a"}})).await;
    let begun = Instant::now();
    server.signal("TERM");
    assert!(server.wait().await.success());
    println!("ended after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(20));
    let mut answer = String::new();
    let read = timeout(PATIENCE, half.read_to_string(&mut answer)).await;
    read.expect("in time").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("the server is shutting down"), "{answer}");
    drop(heads);
}

/// A client that reads steadily, but slowly, delayed the shutdown for as long as it read.
#[tokio::test]
async fn slow_readers_do_not_delay_shutdown() {
    let (mut server, wire) = server_with_20_mb().await;
    let mut readers = Vec::new();
    for query in ["", "?watch=true&resourceVersion=0"] {
        let mut stream = TcpStream::connect(server.insecure())
            .await
            .expect("a connection");
        let head = format!("GET {CONFIG_MAPS}{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("it reads");
        let mut some = [0; 1000];
        stream.read_exact(&mut some).await.expect("a response");
        readers.push(stream);
    }
    drop(wire);
    let begun = Instant::now();
    server.signal("TERM");
    let slow = async {
        loop {
            for stream in &mut readers {
                let mut some = [0; 1000];
                // The end, which the server's wait below observes.
                drop(stream.read(&mut some).await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ended = server.wait() => assert!(ended.success()),
        () = slow => {}
    }
    println!("ended after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(20));
}

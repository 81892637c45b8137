//! Tests of many connections and many watches: what each takes, and that other clients are served.

use std::time::Duration;

use futures::future::join_all;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::{MAPS, RECOVERY_MAX, map};
use crate::harness::{PATIENCE, PROTOCOLS, Protocol, Server, Wire, full, request, usage};

/// The connections that the tests open at most.
const CONNECTIONS: usize = 20_000;

/// Open files of this process that other tests and the watches need.
const OTHER_FILES: usize = 2_000;

const WATCHES: usize = 10_000;
/// The watches of one connection: the maximum of concurrent streams.
const WATCHES_PER_CONNECTION: usize = 1000;

/// Returns the limit of open files of this process, which is also that of the server.
fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("it runs");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    soft.and_then(|soft| soft.parse().ok()).expect("a number")
}

/// Opens a connection and requests `/livez` on it, which then is idle.
async fn idle(server: &Server) -> TcpStream {
    let connect = TcpStream::connect(server.insecure());
    let mut stream = timeout(PATIENCE, connect)
        .await
        .expect("in time")
        .expect("accepted");
    let head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(head).await.expect("it reads");
    let mut start = [0; 12];
    let read = timeout(PATIENCE, stream.read_exact(&mut start)).await;
    read.expect("in time").expect("a response");
    assert_eq!(&start, b"HTTP/1.1 200");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_idle_connections_leave_the_server_available() {
    let count = CONNECTIONS.min(open_files().saturating_sub(OTHER_FILES));
    let server = Server::start(&["--storage=memory", "--memory-limit=0"]).await;
    let before = usage::kib(&server, "RssAnon");
    let mut streams = Vec::new();
    while streams.len() < count {
        streams.extend(join_all((0..100).map(|_| idle(&server))).await);
    }
    let each = usage::kib(&server, "RssAnon").saturating_sub(before) / streams.len() as u64;
    let begun = Instant::now();
    for protocol in PROTOCOLS {
        let mut client = server.admin(protocol).await;
        let created = client
            .post(MAPS, &map(&format!("{protocol:?}").to_lowercase(), 0, 0))
            .await;
        assert_eq!(created.status, StatusCode::CREATED);
    }
    let served = begun.elapsed();
    println!(
        "{} connections of {each} KiB each; two clients were served in {served:?}",
        streams.len()
    );
    assert!(each < 48, "{each} KiB");
    assert!(served < PATIENCE / 2, "{served:?}");
    server.stop().await;
}

/// Slowloris: heads that do not end occupied all connections, and no other client could connect.
#[tokio::test(flavor = "multi_thread")]
async fn heads_that_do_not_end_are_closed_for_other_clients() {
    const MAX: usize = 50;
    let flags = ["--storage=memory", "--max-connections=50"];
    let server = Server::start(&flags).await;
    let mut slow = Vec::new();
    for _ in 0..MAX {
        let mut stream = TcpStream::connect(server.insecure())
            .await
            .expect("accepted");
        let begin = b"GET /api HTTP/1.1\r\nHost: localhost\r\n";
        stream.write_all(begin).await.expect("it reads");
        slow.push(stream);
    }
    for _ in 0..3 {
        sleep(Duration::from_millis(700)).await;
        for stream in &mut slow {
            // The server may have closed it.
            let _closed = stream.write_all(b"x-slow: 1\r\n").await;
        }
    }
    for protocol in PROTOCOLS {
        let mut client = server.admin(protocol).await;
        assert_eq!(client.get("/healthz").await.status, StatusCode::OK);
    }
    let mut closed = 0;
    for stream in &mut slow {
        let read = timeout(Duration::from_millis(20), stream.read(&mut [0])).await;
        closed += usize::from(matches!(read, Ok(Ok(0) | Err(_))));
    }
    assert!(
        (1..=MAX / 2).contains(&closed),
        "{closed} of {MAX} were closed"
    );
    server.stop().await;
}

async fn watch(wire: &mut Wire) -> Incoming {
    let path = format!("{MAPS}?watch=true");
    let headers = [("impersonate-user", "ann")];
    let opened = wire
        .open(request(Method::GET, &path, &headers, full("")))
        .await;
    let opened = opened.expect("a response");
    assert_eq!(opened.status(), StatusCode::OK);
    opened.into_body()
}

/// Returns when the body has the event of an object.
async fn event(body: &mut Incoming, name: &str) {
    loop {
        let frame = body.frame().await.expect("no end").expect("no error");
        let data = frame.into_data().unwrap_or_default();
        if String::from_utf8_lossy(&data).contains(name) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_ten_thousand_watches_gets_each_event_on_all() {
    let flags = [
        "--storage=memory",
        "--authorization-mode=AlwaysAllow",
        "--memory-limit=0",
    ];
    let server = Server::start(&flags).await;
    let before = usage::kib(&server, "RssAnon");
    let open = || async {
        let mut wire = server.plain(Protocol::Http2).await;
        let mut bodies = Vec::new();
        for _ in 0..WATCHES_PER_CONNECTION {
            bodies.push(watch(&mut wire).await);
        }
        (wire, bodies)
    };
    let connections = (0..WATCHES / WATCHES_PER_CONNECTION).map(|_| open());
    let mut connections = join_all(connections).await;
    let each = usage::kib(&server, "RssAnon").saturating_sub(before) / WATCHES as u64;
    let mut other = server.plain(Protocol::Http1).await;
    let begun = Instant::now();
    assert_eq!(
        other.post(MAPS, &map("seen-by-all", 0, 0)).await.status,
        StatusCode::CREATED
    );
    let acknowledged = begun.elapsed();
    let bodies = connections.iter_mut().flat_map(|(_, bodies)| bodies);
    let events = join_all(bodies.map(|body| event(body, "seen-by-all")));
    timeout(RECOVERY_MAX, events)
        .await
        .expect("each watch gets the event");
    println!(
        "{WATCHES} watches of {each} KiB each; a write took {acknowledged:?}, the last watch had it after {:?}",
        begun.elapsed()
    );
    assert!(each < 48, "{each} KiB");
    server.stop().await;
}

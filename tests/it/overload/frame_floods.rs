//! Tests of connections that send more frames of HTTP/2 than a client needs: each either ends or is no longer read, the server
//! takes little memory for it, and it serves other clients meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use watchet::tasks::Tasks;

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, INDEXED_HEADER, PING, RST_STREAM,
    SETTINGS, header, indexed_header, preface, request,
};
use super::record_peak;
use crate::harness::{PATIENCE, Protocol, Server, usage};

/// The connections of a flood.
const CONNECTIONS: usize = 20;

/// What a connection of a flood sends at most: far more than the buffers of the kernel take.
const FLOOD_BYTES: usize = 64 << 20;

/// A server that does not read for this time does not go on reading.
const BLOCKED: Duration = Duration::from_secs(5);

/// How a flood ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The server closed the connection.
    Closed,
    /// The server does not read on.
    Blocked,
    /// The server has read everything.
    Read,
}

/// What happened during a flood.
struct Observed {
    ends: Vec<End>,
    growth_mib: u64,
    slowest: Duration,
}

/// Sends `begin`, and then rounds of frames without reading any response.
async fn flood(server: &Server, begin: Vec<u8>, round: fn(u32) -> Vec<u8>) -> End {
    let mut stream = TcpStream::connect(server.insecure())
        .await
        .expect("accepted");
    let begin = [preface(), begin].concat();
    let (mut next, mut sent, mut number) = (begin, 0, 0);
    while sent < FLOOD_BYTES {
        match timeout(BLOCKED, stream.write_all(&next)).await {
            Err(_) => return End::Blocked,
            Ok(Err(_)) => return End::Closed,
            Ok(Ok(())) => sent += next.len(),
        }
        next = round(number);
        number += 1;
    }
    End::Read
}

/// Requests `/healthz` over new connections until `stop`. Returns the longest time that a request took.
async fn probe(server: &Server, stop: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let mut wire = server.plain(Protocol::Http1).await;
        assert_eq!(wire.get("/healthz").await.status, StatusCode::OK);
        slowest = slowest.max(begun.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    slowest
}

async fn observe(name: &str, begin: Vec<u8>, round: fn(u32) -> Vec<u8>) -> Observed {
    let server = Server::start(&["--storage=memory", "--memory-limit=0"]).await;
    usage::wait_until_idle(&server).await;
    let before = usage::kib(&server, "RssAnon");
    let (peak, tasks) = (Arc::<AtomicU64>::default(), Tasks::new());
    tasks.spawn("peak", record_peak(server.pid(), Arc::clone(&peak)));
    let stop = AtomicBool::new(false);
    let floods = async {
        let floods = (0..CONNECTIONS).map(|_| flood(&server, begin.clone(), round));
        let ends = futures::future::join_all(floods).await;
        stop.store(true, Ordering::Relaxed);
        ends
    };
    let (ends, slowest) = tokio::join!(floods, probe(&server, &stop));
    let growth_mib = peak.load(Ordering::Relaxed).saturating_sub(before) >> 10;
    println!("{name}: {ends:?}, {growth_mib} MiB, slowest request {slowest:?}");
    server.stop().await;
    Observed {
        ends,
        growth_mib,
        slowest,
    }
}

impl Observed {
    /// Checks that all connections ended like this, that the flood took at most `growth_mib`, and that others were served.
    fn check(&self, allowed: &[End], growth_mib: u64) {
        let all = self.ends.iter().all(|end| allowed.contains(end));
        assert!(all, "{:?}", self.ends);
        assert!(self.growth_mib <= growth_mib, "{} MiB", self.growth_mib);
        assert!(self.slowest < PATIENCE / 2, "{:?}", self.slowest);
    }
}

/// CVE-2023-44487: streams that are reset immediately do not count as open, so that their number is not limited.
#[tokio::test(flavor = "multi_thread")]
async fn rapid_resets_end_the_connection() {
    let observed = observe("rapid resets", Vec::new(), |number| {
        let head = request("GET", "/api/v1/namespaces");
        let streams = (number * 200 + 1..number * 200 + 201).step_by(2);
        let frames = streams.flat_map(|stream| {
            let cancel = 8_u32.to_be_bytes();
            [
                HEADERS.frame(END_STREAM | END_HEADERS, stream, &head),
                RST_STREAM.frame(0, stream, &cancel),
            ]
        });
        frames.flatten().collect()
    });
    observed.await.check(&[End::Closed], 64);
}

/// CVE-2024-27316: a head of any number of CONTINUATION frames is one request, of which the server stores all headers.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_end_ends_the_connection() {
    let begin = HEADERS.frame(END_STREAM, 1, &request("GET", "/api"));
    let observed = observe("CONTINUATION", begin, |_| {
        let part = header("x-flood", &"x".repeat(120)).repeat(100);
        CONTINUATION.frame(0, 1, &part)
    });
    observed.await.check(&[End::Closed], 64);
}

/// CVE-2019-9515: each SETTINGS frame is acknowledged, and the acknowledgements are not read.
#[tokio::test(flavor = "multi_thread")]
async fn settings_are_not_read_faster_than_their_acknowledgements() {
    let observed = observe("SETTINGS", Vec::new(), |_| {
        let window = [&[0, 4][..], &65_535_u32.to_be_bytes()].concat();
        SETTINGS.frame(0, 0, &window).repeat(1000)
    });
    observed.await.check(&[End::Closed, End::Blocked], 64);
}

/// CVE-2019-9512: each PING is answered, and the answers are not read.
#[tokio::test(flavor = "multi_thread")]
async fn pings_are_not_read_faster_than_their_answers() {
    let observed = observe("PING", Vec::new(), |_| {
        PING.frame(0, 0, b"12345678").repeat(1000)
    });
    observed.await.check(&[End::Closed, End::Blocked], 64);
}

/// CVE-2019-9518: frames of a body that have no data cost no flow control.
#[tokio::test(flavor = "multi_thread")]
async fn empty_data_takes_no_memory() {
    let head = [
        request("POST", "/api/v1/namespaces"),
        header("content-type", "application/json"),
    ];
    let begin = HEADERS.frame(END_HEADERS, 1, &head.concat());
    let observed = observe("empty DATA", begin, |_| DATA.frame(0, 1, &[]).repeat(1000));
    observed
        .await
        .check(&[End::Closed, End::Blocked, End::Read], 64);
}

/// CVE-2016-6581: a reference of one byte to a large header of the table is a head of up to 256 KiB for each request.
#[tokio::test(flavor = "multi_thread")]
async fn heads_that_expand_take_little_memory() {
    let head = [request("GET", "/api"), indexed_header()].concat();
    let begin = HEADERS.frame(END_STREAM | END_HEADERS, 1, &head);
    let observed = observe("headers", begin, |number| {
        let head = [request("GET", "/api"), vec![INDEXED_HEADER; 60]].concat();
        let streams = (number * 100 + 3..number * 100 + 103).step_by(2);
        let frames = streams.map(|stream| HEADERS.frame(END_STREAM | END_HEADERS, stream, &head));
        frames.collect::<Vec<_>>().concat()
    });
    observed.await.check(&[End::Closed, End::Blocked], 128);
}

//! Tests of connections whose clients do not read, without a memory limit: what each takes, and when it ends.

use std::time::Duration;

use http::Method;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::slow_clients::{SlowClients, request};
use super::{MAPS, OBJECT_BYTES, OBJECTS, RECOVERY_MAX, fill, map};
use crate::harness::{PATIENCE, Protocol, Server, usage};

const FLAGS: [&str; 3] = [
    "--storage=memory",
    "--authorization-mode=AlwaysAllow",
    "--memory-limit=0",
];

/// Waits for `limit`, and until the server has closed its socket: reading before that continues the response.
async fn until_closed(server: &Server, stream: &TcpStream, limit: Duration) {
    let sockets = || std::fs::read_to_string("/proc/net/tcp").expect("procfs");
    let address = |port: u16| format!("0100007F:{port:04X}");
    let client = address(stream.local_addr().expect("an address").port());
    let server = address(server.insecure().port());
    assert!(sockets().contains(&format!(" {client} {server} ")));
    sleep(limit).await;
    let deadline = Instant::now() + PATIENCE;
    // 01 is the state ESTABLISHED.
    while sockets().contains(&format!(" {server} {client} 01 ")) {
        assert!(Instant::now() < deadline, "the response does not end");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_not_read_ends_at_the_request_timeout() {
    let limit = Duration::from_secs(3);
    let server = Server::start(&[&FLAGS[..], &["--request-timeout=3s"]].concat()).await;
    fill(&server).await;
    let started = Instant::now();
    let mut stream = request(&server, MAPS, "").await;
    until_closed(&server, &stream, limit).await;
    let mut received = Vec::new();
    let end = timeout(PATIENCE, stream.read_to_end(&mut received)).await;
    // The connection is closed, with or without a reset.
    let _reset = end.expect("the server has ended the response");
    assert!(started.elapsed() > limit);
    let whole = OBJECTS * OBJECT_BYTES;
    let received = received.len();
    println!("{received} of {whole} bytes were in buffers");
    // In buffers of the server, of the kernel and of the client.
    assert!((1..whole / 4).contains(&received), "{received} of {whole}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_not_read_take_little_memory_and_release_it() {
    const LISTS: usize = 100;
    const WATCHES: usize = 200;
    const SOCKETS: usize = 100;
    let server = Server::start(&FLAGS).await;
    fill(&server).await;
    usage::wait_until_idle(&server).await;
    let before = usage::kib(&server, "RssAnon");
    let slow = SlowClients::open(&server, [LISTS, WATCHES, SOCKETS]).await;
    usage::wait_until_idle(&server).await;
    let during = usage::kib(&server, "RssAnon");
    let each = during.saturating_sub(before) / (LISTS + WATCHES + SOCKETS) as u64;
    drop(slow);
    let started = Instant::now();
    let released = before + (during - before) / 4;
    while usage::kib(&server, "RssAnon") > released {
        let now = usage::kib(&server, "RssAnon") >> 10;
        assert!(started.elapsed() < RECOVERY_MAX, "{now} MiB remain");
        sleep(Duration::from_millis(100)).await;
    }
    let after = usage::kib(&server, "RssAnon") >> 10;
    println!(
        "{} MiB, {} MiB with {} connections ({each} KiB each), {after} MiB {:.1} s after their end",
        before >> 10,
        during >> 10,
        LISTS + WATCHES + SOCKETS,
        started.elapsed().as_secs_f64()
    );
    assert!(each < 400, "{each} KiB");
    server.stop().await;
}

/// In rounds of bursts to 500 watches that were not read, the memory grew from 330 to 549 MiB and stayed there.
#[tokio::test(flavor = "multi_thread")]
async fn rounds_of_watches_that_are_not_read_leave_no_memory() {
    const WATCHES: usize = 500;
    const UPDATES: u64 = 2_000;
    // The history grows for 75 s otherwise, which hides what the watches leave.
    let history = ["--watch-history-window=2s"];
    let server = Server::start(&[&FLAGS[..], &history].concat()).await;
    fill(&server).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let (mut count, mut after) = (0, Vec::new());
    for round in 1..=4 {
        usage::wait_until_idle(&server).await;
        let before = usage::kib(&server, "RssAnon") >> 10;
        let slow = SlowClients::open(&server, [0, WATCHES, 0]).await;
        usage::reset_peak_kib(&server);
        for _ in 0..UPDATES {
            count += 1;
            let body = map("writer-0", count, 1_000).to_string();
            let headers = [("content-type", "application/json")];
            let path = format!("{MAPS}/writer-0");
            let updated = wire.send(Method::PUT, &path, &headers, &body).await;
            assert!(updated.status.is_success(), "{}", updated.text());
        }
        let during = usage::kib(&server, "RssAnon") >> 10;
        let peak = usage::kib(&server, "VmHWM") >> 10;
        drop(slow);
        sleep(Duration::from_secs(5)).await;
        usage::wait_until_idle(&server).await;
        let now = usage::kib(&server, "RssAnon") >> 10;
        println!(
            "round {round}: {before} MiB, {during} MiB with {WATCHES} watches (peak {peak}), then {now} MiB"
        );
        after.push(now);
    }
    assert!(after[3] <= after[0] + after[0] / 2, "{after:?} MiB");
    server.stop().await;
}

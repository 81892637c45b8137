//! Exports to collectors that cannot be reached, do not respond, or fail temporarily.

use std::time::Duration;

use futures::future::join_all;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use super::collector::Collector;
use super::{TRACE, create, flag, traceparent};
use crate::harness::{PATIENCE, Protocol, Scrape, Server, free_port};

/// The number of spans that the server drops in the test: far more than the messages that it may log about them.
const DROPPED: f64 = 100.0;

async fn metrics(server: &Server) -> Scrape {
    let scraped = server.plain(Protocol::Http1).await.get("/metrics").await;
    Scrape::parse(std::str::from_utf8(&scraped.body).expect("text"))
}

/// Creates config maps until the server has dropped spans because the export queue is full.
async fn fill_queue(server: &Server) {
    let parent = &traceparent(TRACE, true);
    let mut wires = join_all((0..10).map(|_| server.plain(Protocol::Http1))).await;
    let dropped = r#"watchet_trace_spans_dropped_total{reason="queue_full"}"#;
    let mut round = 0;
    while metrics(server).await.get(dropped) < Some(DROPPED) {
        round += 1;
        // Concurrently, because the exporter removes a batch from the queue every 30 s.
        let creates = wires.iter_mut().enumerate();
        let creates = creates.map(|(wire_number, wire)| async move {
            for number in 0..10 {
                let name = format!("m-{round}-{wire_number}-{number}");
                assert_eq!(create(wire, &name, parent).await.status, 201);
            }
        });
        join_all(creates).await;
    }
}

#[tokio::test]
async fn requests_succeed_while_the_collector_cannot_be_reached() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!("127.0.0.1:{}", free_port());
    let flag = flag(directory.path(), &endpoint, 0);
    let server = Server::start(&["--storage=memory", &flag]).await;
    let filled = timeout(PATIENCE, fill_queue(&server)).await;
    filled.expect("spans are dropped");
    let log = server.log();
    // Another one follows after 10 s, and a third one after 30 s.
    let messages = log.matches("the export queue is full").count();
    assert!((1..=3).contains(&messages), "{log}");
    let stopping = Instant::now();
    server.signal("TERM");
    let mut server = server;
    assert!(server.wait().await.success());
    assert!(stopping.elapsed() < Duration::from_secs(15));
    let log = server.log();
    // The full queue makes five exports, of which some fail together during the shutdown.
    let messages = log.matches("the export failed").count();
    assert!((1..=3).contains(&messages), "{log}");
    assert!(log.contains(&endpoint), "{log}");
}

#[tokio::test]
async fn a_collector_that_does_not_respond_delays_the_shutdown_by_seconds_only() {
    let directory = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = silent.local_addr().unwrap().to_string();
    let mut server = Server::start(&[&flag(directory.path(), &endpoint, 0)]).await;
    let mut plain = server.plain(Protocol::Http1).await;
    let created = create(&mut plain, "a", &traceparent(TRACE, true)).await;
    assert_eq!(created.status, 201);
    let stopping = Instant::now();
    server.signal("TERM");
    assert!(server.wait().await.success());
    assert!(stopping.elapsed() < Duration::from_secs(15));
    assert!(
        server.log().contains("the export failed"),
        "{}",
        server.log()
    );
}

#[tokio::test]
async fn exports_are_retried_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let server = Server::start(&[&flag(directory.path(), &collector.endpoint(), 0)]).await;
    let mut plain = server.plain(Protocol::Http1).await;
    collector.fail(2);
    let created = create(&mut plain, "a", &traceparent(TRACE, true)).await;
    assert_eq!(created.status, 201);
    collector.wait_for(|span| span.trace == TRACE).await;
    let counted = async {
        while metrics(&server)
            .await
            .get("watchet_trace_spans_exported_total")
            < Some(1.0)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, counted).await.expect("it is counted");
    assert!(!server.log().contains("spans dropped"), "{}", server.log());
    server.stop().await;
}

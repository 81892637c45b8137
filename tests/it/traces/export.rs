//! Exports to collectors that cannot be reached, do not respond, or fail temporarily.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use super::collector::Collector;
use super::{TRACE, create, flag, traceparent};
use crate::harness::{PATIENCE, Protocol, Scrape, Server, free_port};

/// The number of requests, whose spans are more than the export queue can contain.
const REQUESTS: usize = 1000;

async fn metrics(server: &Server) -> Scrape {
    let scraped = server.plain(Protocol::Http1).await.get("/metrics").await;
    Scrape::parse(std::str::from_utf8(&scraped.body).expect("text"))
}

#[tokio::test]
async fn requests_succeed_while_the_collector_cannot_be_reached() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!("127.0.0.1:{}", free_port());
    let server = Server::start(&[&flag(directory.path(), &endpoint, 0)]).await;
    let mut plain = server.plain(Protocol::Http1).await;
    let parent = traceparent(TRACE, true);
    for number in 0..REQUESTS {
        let created = create(&mut plain, &format!("m{number}"), &parent).await;
        assert_eq!(created.status, 201);
    }
    let dropped = r#"watchet_trace_spans_dropped_total{reason="queue_full"}"#;
    let dropped = metrics(&server).await.get(dropped);
    assert!(dropped.is_some_and(|spans| spans > 0.0), "{dropped:?}");
    let log = server.log();
    let messages = log.matches("the export queue is full").count();
    assert!((1..=2).contains(&messages), "{log}");
    let stopping = Instant::now();
    server.signal("TERM");
    let mut server = server;
    assert!(server.wait().await.success());
    assert!(stopping.elapsed() < Duration::from_secs(15));
    let log = server.log();
    assert_eq!(log.matches("the export failed").count(), 1, "{log}");
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

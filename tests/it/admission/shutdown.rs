//! Tests the shutdown while a webhook does not respond.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::cluster::{Cluster, allow, hook};
use crate::harness::{Server, Webhook};

/// A write waits for the timeout of its webhook; the shutdown waits for its grace period only.
#[tokio::test]
async fn hanging_webhook_does_not_delay_shutdown() {
    let mut server = Server::start(&["--shutdown-grace-period=2s"]).await;
    let webhook = Webhook::start(|call| {
        Box::pin(async move {
            if call.path.starts_with("/hangs") && call.body["request"]["name"] == "one" {
                std::future::pending::<()>().await;
            }
            allow(&call)
        })
    })
    .await;
    let hangs = hook(&webhook, "/hangs", json!({"timeoutSeconds": 30}));
    let cluster = Cluster(&server);
    cluster.configure("Validating", "w", &[hangs]).await;
    let mut wire = server.plain(crate::harness::Protocol::Http1).await;
    let map = super::cluster::map("one").to_string();
    let write = watchet::tasks::Tasks::new().spawn("write", async move {
        let headers = [("content-type", "application/json")];
        let post = crate::harness::request(
            http::Method::POST,
            super::cluster::MAPS,
            &headers,
            crate::harness::full(&map),
        );
        wire.open(post).await.map(|answer| answer.status())
    });
    let begun = Instant::now();
    while !super::cluster::requests(&webhook, "/hangs")
        .iter()
        .any(|r| r["name"] == "one")
    {
        assert!(begun.elapsed() < crate::harness::PATIENCE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let begun = Instant::now();
    server.signal("TERM");
    server.wait().await;
    // Shorter than the timeout of the webhook.
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    let answered = write.await.expect("it does not panic");
    assert!(
        answered.is_err() || !answered.unwrap().is_success(),
        "nothing was promised"
    );
}

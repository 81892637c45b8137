//! The end of a server while a webhook does not answer.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::cluster::{Cluster, allow, hook};
use crate::harness::{Server, Webhook};

/// The write has its webhook's time; the server has its own, and does not wait for more.
#[tokio::test]
async fn a_webhook_that_hangs_does_not_hold_the_server() {
    let mut server = Server::start(&["--shutdown-grace-period=2s"]).await;
    let webhook = Webhook::start(|asked| {
        Box::pin(async move {
            if asked.path.starts_with("/hangs") && asked.body["request"]["name"] == "one" {
                std::future::pending::<()>().await;
            }
            allow(&asked)
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
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "{:?}",
        begun.elapsed()
    );
    let answered = write.await.expect("it does not panic");
    assert!(
        answered.is_err() || !answered.unwrap().is_success(),
        "nothing was promised"
    );
}

//! Tests the memory of an idle watcher, which does not depend on the speed of the machine.

use super::{bench, succeed};
use crate::harness::Server;

/// The maximum memory of an idle watcher that shares its connection with 99 others.
const WATCHER_KIB_MAX: f64 = 4.0;

#[tokio::test]
async fn ten_thousand_watchers_take_little_memory() {
    let server = Server::start(&["--storage=memory"]).await;
    let (kubeconfig, pid) = (server.kubeconfig(), server.pid().to_string());
    let idle = ["watch", "--events", "0", "--watchers", "10000"];
    let args = [&idle[..], &["--connections", "100", "--pid", &pid]].concat();
    let report = succeed(bench(&kubeconfig, &args)).await;
    let kib = report["rss_kib_per_watcher"].as_f64().expect("a number");
    assert!(kib <= WATCHER_KIB_MAX, "{report:#}");
    server.stop().await;
}

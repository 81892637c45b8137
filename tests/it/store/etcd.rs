//! Tests of `watchet store export` and `import`, with a real etcd.

use std::fs;

use serde_json::json;

use super::{create, list, store_done, store_refused, version};
use crate::harness::{Protocol, Server};
use crate::storage::etcd::EtcdProcess;

const EVENTS: &str = "/api/v1/namespaces/default/events";

/// Creates an event, which expires.
async fn create_event(server: &Server, name: &str) {
    let mut wire = server.plain(Protocol::Http1).await;
    let object = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    let event = json!({"metadata": {"name": name}, "involvedObject": object, "reason": "Test"});
    let created = wire.post(EVENTS, &event).await;
    assert_eq!(created.status, 201, "{}", created.text());
}

/// Returns the names in the order of their versions.
fn in_order(items: &[(String, u64)]) -> Vec<String> {
    let mut items = items.to_vec();
    items.sort_by_key(|(_, at)| *at);
    items.into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn a_store_is_exported_and_imported_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    // Not in the order of the names.
    for number in [3, 1, 4, 0, 5, 9, 2, 6] {
        create(&server, &format!("m-{number}")).await;
    }
    create_event(&server, "brief").await;
    let (exported, _) = list(&server).await;
    server.kill().await;

    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let args = ["export", &servers, "--etcd-prefix=/copy"];
    let printed = store_done(directory.path(), &args).await;
    assert!(printed.contains("Exported"), "{printed}");
    let refused = store_refused(directory.path(), &args, 1).await;
    assert!(
        refused.contains("keys under /copy") && refused.contains("--force"),
        "{refused}"
    );
    // Overwrites with the same values.
    store_done(directory.path(), &[&args[..], &["--force"]].concat()).await;

    let of_etcd = tempfile::tempdir().expect("a temporary directory");
    let flags = ["--storage=etcd", &servers, "--etcd-prefix=/copy"];
    let server = Server::start_in(of_etcd.path(), &flags).await;
    let (copied, _) = list(&server).await;
    assert_eq!(in_order(&copied), in_order(&exported));
    assert_eq!(copied.len(), 8);
    let changed = create(&server, "in-etcd").await;
    let (copied, at) = list(&server).await;
    server.stop().await;

    let args = ["import", &servers, "--etcd-prefix=/copy"];
    let refused = store_refused(directory.path(), &args, 1).await;
    assert!(refused.contains("has a store"), "{refused}");
    let imported = tempfile::tempdir().expect("a temporary directory");
    let printed = store_done(imported.path(), &args).await;
    assert!(printed.contains("Imported"), "{printed}");
    let report = store_done(imported.path(), &["check"]).await;
    assert!(report.contains(", 1 with a TTL"), "{report}");
    let server = Server::start_in(imported.path(), &[]).await;
    let (items, now) = list(&server).await;
    assert_eq!(items, copied, "keys, values and revisions");
    assert!(now >= at && changed <= now, "{now} after {at}");
    let mut wire = server.plain(Protocol::Http1).await;
    let events = wire.get(EVENTS).await.json();
    assert_eq!(
        events["items"].as_array().map(Vec::len),
        Some(1),
        "{events}"
    );
    assert!(version(&events) >= at);
    server.stop().await;
}

#[tokio::test]
async fn invalid_targets_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for name in ["export", "import"] {
        fs::create_dir_all(directory.path().join("data/store")).expect("a directory");
        let missing = store_refused(directory.path(), &[name], 2).await;
        assert!(missing.contains("--etcd-servers"), "{missing}");
        let invalid = store_refused(directory.path(), &[name, "--etcd-servers=nowhere"], 2).await;
        assert!(invalid.contains("is not an endpoint"), "{invalid}");
    }
}

#[tokio::test]
async fn an_etcd_with_tls_is_a_target() {
    let files = crate::storage::tls::TlsFiles::new();
    let etcd = EtcdProcess::start_tls(&files).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    create(&server, "a").await;
    let (exported, _) = list(&server).await;
    server.stop().await;
    let flags = [
        format!("--etcd-servers={}", etcd.url()),
        format!("--etcd-cafile={}", files.ca.display()),
        format!("--etcd-certfile={}", files.client_cert.display()),
        format!("--etcd-keyfile={}", files.client_key.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    store_done(directory.path(), &[&["export"], &flags[..]].concat()).await;
    let imported = tempfile::tempdir().expect("a temporary directory");
    store_done(imported.path(), &[&["import"], &flags[..]].concat()).await;
    let server = Server::start_in(imported.path(), &[]).await;
    assert_eq!(in_order(&list(&server).await.0), in_order(&exported));
    server.stop().await;
}

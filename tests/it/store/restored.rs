//! Tests of servers whose store was replaced by an older copy, or lost.

use std::fs;
use std::path::Path;

use http::{Method, StatusCode};
use serde_json::Value;

use super::{CONFIG_MAPS, copy_directory, create, list, store_done};
use crate::harness::{PATIENCE, Protocol, Server, command, eventually};
use crate::storage::etcd::EtcdProcess;

/// Asserts that a watch and a list of the state at `version` get a 410, and that a watch from the present list misses
/// nothing.
async fn assert_expired(server: &Server, version: u64) {
    let mut wire = server.plain(Protocol::Http1).await;
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=5&resourceVersion={version}");
    let watch = wire.send(Method::GET, &path, &[], "").await;
    let first = watch.body.split(|byte| *byte == b'\n').next();
    let first: Value = serde_json::from_slice(first.unwrap_or_default()).expect("an event");
    let status = match watch.status {
        StatusCode::OK => {
            assert_eq!(first["type"], "ERROR", "{first}");
            &first["object"]
        }
        _ => &first,
    };
    assert_eq!(status["code"], 410, "{first}");
    let path = format!("{CONFIG_MAPS}?resourceVersionMatch=Exact&resourceVersion={version}");
    let exact = wire.get(&path).await;
    assert_eq!(exact.status, StatusCode::GONE, "{}", exact.text());

    let (_, now) = list(server).await;
    assert!(now > version, "{now} after {version}");
    let made = create(server, "after").await;
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=5&resourceVersion={now}");
    let watch = wire.send(Method::GET, &path, &[], "").await;
    let event: Value = serde_json::from_slice(watch.body.trim_ascii()).expect("one event");
    assert_eq!(super::version(&event["object"]), made, "{event}");
}

/// The revision went from 22 back to 17, and a watch that resumed from 22 silently missed five events.
#[tokio::test]
async fn an_older_store_continues_at_a_later_revision() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    create(&server, "a").await;
    server.stop().await;
    let store = directory.path().join("data/store");
    let backup = directory.path().join("backup");
    copy_directory(&store, &backup);
    let server = Server::start_in(directory.path(), &[]).await;
    let mut last = 0;
    for name in ["b", "c", "d", "e", "f"] {
        last = create(&server, name).await;
    }
    server.kill().await;

    fs::remove_dir_all(&store).expect("a directory");
    copy_directory(&backup, &store);
    let server = Server::start_in(directory.path(), &[]).await;
    let log = server.log();
    let warnings = log.lines().filter(|line| line.contains("WARN"));
    let warnings: Vec<_> = warnings
        .filter(|line| line.contains("older than"))
        .collect();
    assert_eq!(warnings.len(), 1, "{log}");
    let seen = warnings[0].split("seen=").nth(1).expect("a revision");
    let seen: u64 = seen
        .split(' ')
        .next()
        .unwrap_or_default()
        .parse()
        .expect("a number");
    // The server may have written after the last object.
    assert!(seen >= last, "{seen} after {last}: {log}");
    let (items, _) = list(&server).await;
    let names: Vec<_> = items.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a"], "the objects of the backup");
    assert_expired(&server, last).await;
    let (items, now) = list(&server).await;
    server.stop().await;
    // The next start is an ordinary one.
    let server = Server::start_in(directory.path(), &[]).await;
    assert_eq!(server.log().matches("older than").count(), 1);
    let (again, after) = list(&server).await;
    assert_eq!(again, items);
    assert!(after - now < 1000, "{after} after {now}");
    server.stop().await;
}

#[tokio::test]
async fn a_lost_store_begins_at_a_later_revision_with_a_warning() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    assert!(
        !server.log().contains("missing or empty"),
        "{}",
        server.log()
    );
    let last = create(&server, "a").await;
    server.stop().await;
    let store = directory.path().join("data/store");
    fs::remove_dir_all(&store).expect("a directory");
    fs::create_dir(&store).expect("a directory");
    let server = Server::start_in(directory.path(), &[]).await;
    let log = server.log();
    let warned =
        |line: &str| line.contains("WARN") && line.contains("the store is missing or empty");
    assert!(log.lines().any(warned), "{log}");
    assert_eq!(list(&server).await.0, []);
    assert_expired(&server, last).await;
    server.stop().await;
}

/// A data directory that was restored as a whole remembers nothing newer.
#[tokio::test]
async fn the_revision_of_a_restored_data_directory_is_bumped_on_request() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    let last = create(&server, "a").await;
    server.stop().await;
    let printed = store_done(directory.path(), &["restore", "--bump-revision=5000"]).await;
    assert!(printed.contains("continues at"), "{printed}");
    let server = Server::start_in(directory.path(), &[]).await;
    assert_expired(&server, last).await;
    let (items, now) = list(&server).await;
    assert_eq!(items.len(), 2);
    assert!(
        (last + 5000..last + 6000).contains(&now),
        "{now} after {last}"
    );
    server.stop().await;
}

/// Starts a server of `etcd` whose data directory is in `directory`.
async fn start_with(etcd: &EtcdProcess, directory: &Path) -> Server {
    let servers = format!("--etcd-servers={}", etcd.url());
    Server::start_in(directory, &["--storage=etcd", &servers]).await
}

/// Waits until the file with the last revision, which the server replaces once per second, has `revision`.
async fn until_remembered(directory: &Path, revision: u64) {
    let file = directory.join("data/etcd-revision");
    eventually("the file is written", async || {
        let line = fs::read_to_string(&file).unwrap_or_default();
        let stored = line.split(' ').next();
        stored.and_then(|word| word.parse::<u64>().ok()) >= Some(revision)
    })
    .await;
}

/// etcd gave out the revisions after those of the backup again, and a watch that resumed from one of them missed changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_was_restored_while_no_server_ran_continues_at_a_later_revision() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut etcd = EtcdProcess::start(&[]).await;
    let server = start_with(&etcd, directory.path()).await;
    create(&server, "a").await;
    server.stop().await;
    etcd.kill();
    etcd.back_up();
    etcd.restart().await;
    let server = start_with(&etcd, directory.path()).await;
    assert!(!server.log().contains("restored"), "{}", server.log());
    let mut last = 0;
    for name in ["b", "c", "d", "e", "f"] {
        last = create(&server, name).await;
    }
    until_remembered(directory.path(), last).await;
    server.kill().await;

    etcd.kill();
    etcd.restore();
    etcd.restart().await;
    let advanced = "advanced the revision of the restored etcd";
    let server = start_with(&etcd, directory.path()).await;
    let log = server.log();
    assert_eq!(log.matches("etcd was replaced").count(), 1, "{log}");
    assert_eq!(log.matches(advanced).count(), 1, "{log}");
    let (items, _) = list(&server).await;
    let names: Vec<_> = items.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a"], "the objects of the backup");
    assert_expired(&server, last).await;
    server.stop().await;
    // Another server, which remembers nothing, ends such watches too, and the next start is an ordinary one.
    let other = tempfile::tempdir().expect("a temporary directory");
    let server = start_with(&etcd, other.path()).await;
    assert!(!server.log().contains(advanced), "{}", server.log());
    let mut wire = server.plain(Protocol::Http1).await;
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=5&resourceVersion={last}");
    let watched = wire.get(&path).await;
    assert!(watched.text().contains("410"), "{}", watched.text());
    server.stop().await;
    let server = start_with(&etcd, directory.path()).await;
    assert_eq!(server.log().matches(advanced).count(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_was_restored_from_a_much_older_backup_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let etcd = EtcdProcess::start(&[]).await;
    start_with(&etcd, directory.path()).await.stop().await;
    let file = directory.path().join("data/etcd-revision");
    let line = fs::read_to_string(&file).expect("a file");
    let (revision, rest) = line.split_once(' ').expect("a revision");
    assert!(revision.parse::<u64>().expect("a number") > 1, "{line}");
    fs::write(&file, format!("5000000 {rest}")).expect("a file");
    let run = command()
        .args(["--storage=etcd", "--etcd-servers", etcd.url()])
        .arg("--data-dir")
        .arg(directory.path().join("data"))
        .output();
    let output = tokio::time::timeout(PATIENCE, run).await;
    let output = output.expect("it ends").expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    for words in [
        "up to about 5010000",
        "--bump-revision 6000000",
        "etcd-revision",
    ] {
        assert!(error.contains(words), "{error}");
    }
}

/// The process was killed between the last write and the compaction: etcd was past the lost revisions, and the next process did
/// not end watches from them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_advance_of_a_restored_etcd_continues_at_the_next_start() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let etcd = EtcdProcess::start(&[]).await;
    let server = start_with(&etcd, directory.path()).await;
    let last = create(&server, "a").await;
    server.stop().await;
    let connected = etcd_client::Client::connect([etcd.url()], None).await;
    let mut client = connected.expect("etcd runs");
    let (key, target) = ("watchet_advance_key", last + 2000);
    let put = client.put(key, target.to_string(), None).await;
    put.expect("etcd runs");
    let server = start_with(&etcd, directory.path()).await;
    let (_, now) = list(&server).await;
    assert!(now > target, "{now} and {target}");
    let left = client.get(key, None).await.expect("etcd runs");
    assert_eq!(left.count(), 0, "the key is deleted");
    assert_expired(&server, last).await;
    server.stop().await;
}

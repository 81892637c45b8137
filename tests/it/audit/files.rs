//! Tests of the log's files: rotation, compression, a killed server and a full disk.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use futures_util::future::{join, join_all};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{CONFIG_MAPS, errors, logged, start};
use crate::harness::{PATIENCE, PROTOCOLS, Protocol, Server, Wire, eventually, full, request};

/// Records the creation of config maps with their objects, and nothing else.
const WRITES: &str = "omitStages: [RequestReceived]\nrules: [{level: Request, verbs: [create], \
                      resources: [{group: '', resources: [configmaps]}]}]";

/// Creates a config map with `size` bytes of data.
async fn create(wire: &mut Wire, name: &str, size: usize) -> StatusCode {
    let body = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(size)}});
    wire.post(CONFIG_MAPS, &body).await.status
}

/// Returns the rotated files, oldest first.
fn rotated(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_rotated = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.starts_with("audit-")
    };
    let mut paths: Vec<PathBuf> = paths.filter(is_rotated).collect();
    paths.sort();
    paths
}

/// Returns the names of the objects in the events of a text; every line must be complete.
fn names(text: &str) -> Vec<String> {
    let events = text.lines().map(|line| {
        let event: Value = serde_json::from_str(line).expect(line);
        event["objectRef"]["name"]
            .as_str()
            .expect("a name")
            .to_owned()
    });
    events.collect()
}

#[tokio::test]
async fn rotated_files_have_every_event_and_old_ones_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let ancient = directory.path().join("audit-2020-01-02T03-04-05.678.log");
    fs::write(&ancient, "").unwrap();
    let flags = [
        "--audit-log-maxsize=1",
        "--audit-log-maxage=1",
        "--audit-log-mode=blocking",
    ];
    let server = start(directory.path(), WRITES, &flags).await;
    let mut wire = server.admin(Protocol::Http2).await;
    for index in 0..11 {
        let status = create(&mut wire, &format!("m{index}"), 400_000).await;
        assert_eq!(status, StatusCode::CREATED);
    }
    assert!(errors(&server, "log").await == 0.0);
    server.stop().await;
    assert!(!ancient.exists(), "older than a day");
    let mut files = rotated(directory.path());
    assert_eq!(files.len(), 5, "two events have space in 1 MiB: {files:?}");
    files.push(directory.path().join("audit.log"));
    let mut found = Vec::new();
    for file in files {
        assert!(file.metadata().unwrap().len() <= 1 << 20, "{file:?}");
        found.extend(names(&fs::read_to_string(file).unwrap()));
    }
    let expect: Vec<String> = (0..11).map(|index| format!("m{index}")).collect();
    assert_eq!(found, expect);
}

#[tokio::test]
async fn the_newest_rotated_files_stay_and_are_compressed() {
    let directory = tempfile::tempdir().unwrap();
    let flags = [
        "--audit-log-maxsize=1",
        "--audit-log-maxbackup=2",
        "--audit-log-compress",
    ];
    let flags = [&flags[..], &["--audit-log-mode=blocking"]].concat();
    let server = start(directory.path(), WRITES, &flags).await;
    let mut wire = server.admin(Protocol::Http2).await;
    for index in 0..11 {
        let status = create(&mut wire, &format!("m{index}"), 400_000).await;
        assert_eq!(status, StatusCode::CREATED);
    }
    // The shutdown waits for the compression.
    server.stop().await;
    let files = rotated(directory.path());
    let mut found = Vec::new();
    for file in &files {
        assert!(file.to_string_lossy().ends_with(".log.gz"), "{files:?}");
        let mut text = String::new();
        let decoded = GzDecoder::new(File::open(file).unwrap()).read_to_string(&mut text);
        decoded.expect("gzip");
        found.extend(names(&text));
    }
    assert_eq!(found, ["m6", "m7", "m8", "m9"], "{files:?}");
}

/// Creates config maps until the connection fails; `sender` gets the names of those whose response is complete.
async fn create_until_killed(mut wire: Wire, prefix: String, sender: mpsc::Sender<String>) {
    for index in 0.. {
        let name = format!("{prefix}-{index}");
        let data = json!({"k": "x".repeat(10_000)});
        let body = json!({"metadata": {"name": name}, "data": data}).to_string();
        let headers = [("content-type", "application/json")];
        let request = request(Method::POST, CONFIG_MAPS, &headers, full(&body));
        let Ok(response) = wire.open(request).await else {
            return;
        };
        assert_eq!(response.status(), StatusCode::CREATED);
        if response.into_body().collect().await.is_err() {
            return;
        }
        sender.send(name).await.expect("the test receives");
    }
}

/// Writes are in the log when they are acknowledged. Only the last line of a killed server may be incomplete, and the next
/// server continues the file.
#[tokio::test]
async fn a_killed_server_has_logged_every_acknowledged_write() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    for life in 1..=3 {
        let mut server = start(directory.path(), WRITES, &["--audit-log-mode=blocking"]).await;
        let (sender, mut receiver) = mpsc::channel(1_000);
        let mut writers = Vec::new();
        for protocol in PROTOCOLS {
            let wire = server.admin(protocol).await;
            let prefix = format!("m{life}-{protocol:?}").to_lowercase();
            writers.push(create_until_killed(wire, prefix, sender.clone()));
        }
        drop(sender);
        let kill = async {
            let mut names = Vec::new();
            while let Some(name) = receiver.recv().await {
                names.push(name);
                if names.len() == 50 {
                    server.signal("KILL");
                }
            }
            names
        };
        let (_, names) = timeout(PATIENCE, join(join_all(writers), kill))
            .await
            .unwrap();
        acknowledged.extend(names);
        server.wait().await;
        let text = fs::read_to_string(directory.path().join("audit.log")).unwrap();
        let events = text.lines().map(serde_json::from_str::<Value>);
        let (complete, cut): (Vec<_>, Vec<_>) = events.partition(Result::is_ok);
        assert!(cut.len() <= life, "{cut:?}");
        let names = complete.into_iter().flatten();
        let names = names.map(|event| event["objectRef"]["name"].as_str().unwrap().to_owned());
        let names: Vec<String> = names.collect();
        let logged: BTreeSet<String> = names.iter().cloned().collect();
        assert_eq!(names.len(), logged.len(), "each once");
        let lost: Vec<&String> = acknowledged.difference(&logged).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }
}

/// A process that is killed while it writes may leave an incomplete line.
#[tokio::test]
async fn an_incomplete_line_costs_only_that_line() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    fs::write(&log, r#"{"kind":"Event","level":"Meta"#).unwrap();
    let server = start(directory.path(), WRITES, &[]).await;
    let mut wire = server.admin(Protocol::Http1).await;
    assert_eq!(create(&mut wire, "m", 1).await, StatusCode::CREATED);
    server.stop().await;
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0], r#"{"kind":"Event","level":"Meta"#);
    assert_eq!(names(lines[1]), ["m"]);
}

/// Waits until `count` events are lost in the log.
async fn until_lost(server: &Server, count: f64) {
    let lost = async {
        while errors(server, "log").await < count {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, lost).await.expect("errors are counted");
}

#[tokio::test]
async fn a_full_disk_loses_events_and_no_request() {
    for mode in ["batch", "blocking"] {
        let directory = tempfile::tempdir().unwrap();
        let full = [
            "--audit-log-path=/dev/full",
            &format!("--audit-log-mode={mode}"),
        ];
        let server = start(directory.path(), WRITES, &full).await;
        let mut wire = server.admin(Protocol::Http1).await;
        for index in 0..5 {
            let status = create(&mut wire, &format!("m{index}"), 1).await;
            assert_eq!(status, StatusCode::CREATED, "{mode}");
        }
        until_lost(&server, 5.0).await;
        assert!(errors(&server, "log").await == 5.0);
        assert!(errors(&server, "buffered").await == 0.0);
        // The log follows the metric.
        let message = "cannot write audit events";
        eventually(message, async || server.log().contains(message)).await;
        let log = server.log();
        assert_eq!(log.matches(message).count(), 1, "{log}");
        server.stop().await;
    }
}

#[tokio::test]
async fn the_strict_mode_rejects_requests_on_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let full = [
        "--audit-log-path=/dev/full",
        "--audit-log-mode=blocking-strict",
    ];
    let rules = WRITES.replace("omitStages: [RequestReceived]\n", "");
    let server = start(directory.path(), &rules, &full).await;
    let mut wire = server.admin(Protocol::Http2).await;
    let rejected = wire
        .post(CONFIG_MAPS, &json!({"metadata": {"name": "m"}}))
        .await;
    assert_eq!(rejected.status, StatusCode::INTERNAL_SERVER_ERROR);
    let message = rejected.json()["message"].to_string();
    assert!(message.contains("failed to store audit event"), "{message}");
    // Requests that the policy does not record are served.
    let read = wire.get(&format!("{CONFIG_MAPS}/m")).await;
    assert_eq!(read.status, StatusCode::NOT_FOUND);
    server.stop().await;
}

/// A body of almost 3 MiB at the level RequestResponse: its event is complete and has one line.
#[tokio::test]
async fn the_event_of_a_large_write_is_complete() {
    for mode in ["batch", "blocking"] {
        let directory = tempfile::tempdir().unwrap();
        let rules = WRITES.replace("level: Request", "level: RequestResponse");
        let mode = format!("--audit-log-mode={mode}");
        let server = start(directory.path(), &rules, &[&mode]).await;
        let mut wire = server.admin(Protocol::Http1).await;
        let data = json!({"a": "\u{1f980}".repeat(200_000), "b": "\n".repeat(1000)});
        let body = json!({"metadata": {"name": "m"}, "data": data});
        let pretty = serde_json::to_string_pretty(&body).unwrap();
        let headers = [("content-type", "application/json")];
        let created = wire
            .send(Method::POST, CONFIG_MAPS, &headers, &pretty)
            .await;
        assert_eq!(created.status, StatusCode::CREATED);
        let response = created.json();
        let events = logged(server, directory.path()).await;
        assert_eq!(events.len(), 1, "{mode}");
        assert_eq!(events[0]["requestObject"]["data"], data);
        assert_eq!(events[0]["responseObject"], response);
        assert_eq!(events[0]["objectRef"]["name"], "m");
    }
}

//! Tests of `bench churn`: the writes of the workers and the events of the watchers agree. The run fails if another
//! client writes or an event is lost.

use http::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::tampering_proxy::{self, Replacement};
use super::{bench, check, failed, succeed};
use crate::harness::{PATIENCE, Protocol, Server, Wire, command};

const MAPS: &str = "/api/v1/namespaces/bench-churn/configmaps";

/// The counts that are 0 in a run without faults.
const FAULTS: [&str; 9] = [
    "operations_failed",
    "reads_stale",
    "events_lost",
    "events_duplicate",
    "events_out_of_order",
    "events_foreign",
    "events_mistyped",
    "objects_differing",
    "watches_ended",
];

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().expect("a number")
}

fn check_churn(report: &Value, operations: u64, watchers: u64) {
    for fault in FAULTS {
        assert_eq!(report[fault], 0, "{fault} of {report:#}");
    }
    let count = |verb: &str| number(&report[format!("latency_us_{verb}")], "count");
    let changes = ["create", "update", "patch", "delete"].map(count);
    assert!(changes.iter().all(|count| *count > 0), "{report:#}");
    let changes = changes.iter().sum::<u64>();
    let reads = count("get") + count("list");
    assert_eq!(changes + reads, operations, "{report:#}");
    assert_eq!(number(report, "operations"), operations);
    assert_eq!(number(report, "changes"), changes);
    assert_eq!(number(report, "events_delivered"), changes * watchers);
    assert_eq!(count("watch"), changes * watchers);
}

#[tokio::test]
async fn every_watch_receives_every_write() {
    let server = Server::start(&["--storage=memory"]).await;
    let pid = server.pid().to_string();
    for flags in [
        "--resume=100",
        "--resume=0 --http=1.1 --workers=3",
        "--resume=70 --accept=protobuf --rate=2000",
    ] {
        let line = format!(
            "churn --operations 1200 --watchers 5 --objects 40 --size 600 --pid {pid} {flags}"
        );
        let args: Vec<&str> = line.split(' ').collect();
        let report = succeed(bench(&server.kubeconfig(), &args)).await;
        check_churn(&report, 1200, 5);
        // Each watcher receives about 1,000 changes.
        let resumed = number(&report, "watches_resumed");
        let least = if flags.contains("=0 ") { 0 } else { 20 };
        assert!(resumed >= least, "{report:#}");
        assert!(least > 0 || resumed == 0, "{report:#}");
        assert!(report["cpu_ms_per_operation"].is_number(), "{report:#}");
    }
    let mut wire = server.plain(Protocol::Http1).await;
    let left = wire.get("/api/v1/configmaps").await.json();
    assert_eq!(left["items"], json!([]));
    server.stop().await;
}

/// The server creates a config map in every namespace and recreates it. The run counted these events as those of no
/// worker, so it failed on every server with the default controllers.
#[tokio::test]
async fn objects_of_the_server_itself_are_not_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let args = [
        "--storage=memory",
        "--secure-port=0",
        "--insecure-port=auto",
    ];
    let server = Server::start_exactly(directory.path(), &args).await;
    let run = ["churn", "--operations=300", "--watchers=3", "--objects=20"];
    for _ in 0..2 {
        let report = succeed(bench(&server.kubeconfig(), &run)).await;
        check_churn(&report, 300, 3);
    }
    let mut wire = server.plain(Protocol::Http1).await;
    let left = wire
        .get("/api/v1/namespaces/bench-churn/configmaps")
        .await
        .json();
    let left = left["items"].as_array().expect("items");
    let names: Vec<_> = left.iter().map(|map| &map["metadata"]["name"]).collect();
    assert_eq!(names, ["kube-root-ca.crt"]);
    server.stop().await;
}

#[tokio::test]
async fn seconds_end_a_run_and_a_seed_repeats_it() {
    let server = Server::start(&["--storage=memory"]).await;
    let timed = ["churn", "--seconds=0.5", "--watchers=2", "--rate=400"];
    let report = succeed(bench(&server.kubeconfig(), &timed)).await;
    let operations = number(&report, "operations");
    assert!((1..=201).contains(&operations), "{report:#}");

    // With one worker the sequence of operations is deterministic.
    let seeded = [
        "churn",
        "--workers=1",
        "--operations=300",
        "--objects=9",
        "--seed=5",
    ];
    let counts = async || {
        let report = succeed(bench(&server.kubeconfig(), &seeded)).await;
        let verbs = ["create", "update", "patch", "delete", "get", "list"];
        verbs.map(|verb| number(&report[format!("latency_us_{verb}")], "count"))
    };
    let (one, other) = (counts().await, counts().await);
    assert_eq!(one, other);
    server.stop().await;
}

/// The proxy turns one change for one watcher into a bookmark.
#[tokio::test]
async fn a_lost_event_fails_the_run() {
    let server = Server::start(&["--storage=memory"]).await;
    let replacement = Replacement {
        from: r#""type":"MODIFIED""#,
        to: r#""type":"BOOKMARK""#,
        after: 50,
    };
    for load in [
        &["churn", "--operations=600", "--objects=30"][..],
        &["watch", "--events=40", "--rate=0"],
    ] {
        let url = tampering_proxy::start(server.insecure(), replacement);
        let mut running = command();
        running.arg("bench").args(load).args(["--server", &url]);
        running.args(["--json", "--http=1.1", "--watchers=4", "--timeout=5"]);
        let (report, stderr) = failed(super::spawn(running)).await;
        check(
            &report,
            &[
                ("events_lost", json!(1)),
                ("events_duplicate", json!(0)),
                ("events_out_of_order", json!(0)),
                ("events_foreign", json!(0)),
            ],
        );
        assert!(stderr.contains("1 events were lost"), "{stderr}");
    }
    server.stop().await;
}

/// Waits for the first object of a run and returns it.
async fn there(wire: &mut Wire) -> Value {
    let there = async {
        loop {
            let list = wire.get(MAPS).await.json();
            match list["items"].get(0) {
                Some(object) => return object.clone(),
                None => sleep(std::time::Duration::from_millis(2)).await,
            }
        }
    };
    timeout(PATIENCE, there).await.expect("it writes")
}

/// Another client changes an object so that its event equals a known one, and then deletes the object, which its worker
/// and its watchers report.
#[tokio::test]
async fn concurrent_writes_fail_the_run() {
    let server = Server::start(&["--storage=memory"]).await;
    let churn = [
        "churn",
        "--seconds=3",
        "--rate=100",
        "--mix=update=1",
        "--workers=1",
        "--objects=1",
        "--watchers=3",
    ];
    let running = bench(&server.kubeconfig(), &churn)
        .spawn()
        .expect("it starts");
    let mut wire = server.plain(Protocol::Http1).await;
    let object = there(&mut wire).await;
    let path = format!("{MAPS}/{}", object["metadata"]["name"].as_str().unwrap());
    let headers = [("content-type", "application/merge-patch+json")];
    let label = json!({"metadata": {"labels": {"meddled": "true"}}}).to_string();
    let answer = wire.send(Method::PATCH, &path, &headers, &label).await;
    assert!(answer.status.is_success());
    let answer = wire.send(Method::DELETE, &path, &[], "").await;
    assert!(answer.status.is_success());
    let (report, stderr) = failed(running).await;
    check(
        &report,
        &[
            ("events_lost", json!(0)),
            ("events_duplicate", json!(3)),
            ("events_foreign", json!(3)),
            ("operations_failed", json!(1)),
        ],
    );
    for fault in [
        "3 events were received twice",
        "3 events do not match any write of a worker",
        "1 requests failed, the first: PUT",
    ] {
        assert!(stderr.contains(fault), "{fault}: {stderr}");
    }
    server.stop().await;
}

/// Another client creates an object that no worker has created; the run fails.
#[tokio::test]
async fn unexpected_object_fails_the_run() {
    let server = Server::start(&["--storage=memory"]).await;
    let churn = [
        "churn",
        "--seconds=2",
        "--rate=100",
        "--mix=get=1",
        "--workers=1",
        "--objects=1",
        "--watchers=2",
    ];
    let running = bench(&server.kubeconfig(), &churn)
        .spawn()
        .expect("it starts");
    let mut wire = server.plain(Protocol::Http1).await;
    let object = json!({"metadata": {"name": "bench-churn-0"}}).to_string();
    let headers = [("content-type", "application/json")];
    // Repeatedly, because the run deletes existing objects when it begins.
    let make = async {
        loop {
            wire.send(Method::POST, MAPS, &headers, &object).await;
            sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let (report, stderr) = tokio::select! {
        run = failed(running) => run,
        () = make => unreachable!("it goes on"),
    };
    assert!(number(&report, "reads_stale") > 0, "{report:#}");
    check(&report, &[("operations_failed", json!(0))]);
    assert!(
        stderr.contains("reads did not return the client's last write"),
        "{stderr}"
    );
    server.stop().await;
}

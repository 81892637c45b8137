//! Tests of `watchet bench` with the real program and a real server: its reports are consistent, and it fails if the
//! server dies or an event is duplicated. Except for `memory`, they do not measure performance.

mod churn;
mod compare;
mod formats;
mod generator;
mod memory;
mod storm;
mod sweep;
mod tampering_proxy;
mod write;

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::harness::{PATIENCE, Protocol, Server, Wire, command};

/// An address where no server listens.
const SERVER: &str = "--server=http://127.0.0.1:1";

/// The object that a run with one writer changes.
const CHANGED: &str = "/api/v1/namespaces/bench/configmaps/bench-watch-0";

/// Returns the command of a load. On the machine of the tests the generator may be the bottleneck.
fn bench(kubeconfig: &Path, args: &[&str]) -> Command {
    let mut command = command();
    let (load, rest) = args.split_first().expect("a load");
    command.args(["bench", load, "--json", "--saturate", "--kubeconfig"]);
    command.arg(kubeconfig).args(rest);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        panic!("{error}: {stderr}")
    })
}

/// Runs a command that must succeed and returns its report.
async fn succeed(mut command: Command) -> Value {
    let output = timeout(PATIENCE, command.output()).await;
    let output = output.expect("in time").expect("it runs");
    let report = report(&output);
    assert!(output.status.success(), "{report:#}");
    assert_eq!(report["faults"], json!([]), "{report:#}");
    report
}

/// Asserts values of a report by key.
fn check(report: &Value, expected: &[(&str, Value)]) {
    for (key, value) in expected {
        assert_eq!(&report[*key], value, "{key} of {report:#}");
    }
}

#[tokio::test]
async fn reports_add_up() {
    let server = Server::start(&["--storage=memory"]).await;
    let kubeconfig = server.kubeconfig();
    let pid = server.pid().to_string();
    let run = |args: &str| {
        let args = format!("{args} --pid {pid}");
        succeed(bench(&kubeconfig, &args.split(' ').collect::<Vec<_>>()))
    };

    let fill = "fill pods --count 60 --size 900 --namespaces 3 --nodes 20 --label tier=x";
    let filled = run(fill).await;
    check(
        &filled,
        &[
            ("requests_answered", json!(60)),
            ("bytes", json!(60 * 900)),
            ("objects_existed", json!(0)),
        ],
    );
    assert_eq!(filled["latency_us"]["count"], 60);
    assert!(filled["rss_bytes_after"].as_u64() > Some(0), "{filled:#}");
    let again = run(fill).await;
    check(
        &again,
        &[("bytes", json!(0)), ("objects_existed", json!(60))],
    );

    let get = "get pods --count 60 --namespaces 3 --requests 200 --http 1.1";
    let got = run(get).await;
    check(&got, &[("requests_answered", json!(200))]);
    assert!(got["bytes"].as_u64() > Some(200 * 900), "{got:#}");

    let protobuf = "get pods --count 60 --namespaces 3 --requests 200 --accept protobuf";
    let smaller = run(protobuf).await;
    check(&smaller, &[("requests_answered", json!(200))]);
    let bytes = |report: &Value| report["bytes"].as_u64().expect("a number");
    assert!(bytes(&smaller) > 200 * 700, "{smaller:#}");
    assert!(bytes(&smaller) < bytes(&got), "{smaller:#}");

    for (flags, items) in [
        ("--accept protobuf", 60),
        ("--accept protobuf --limit 7", 7),
        ("--resource-version 0", 60),
        ("--namespace bench-1", 20),
        ("--limit 7 --http 1.1", 7),
        ("--label-selector tier=x", 60),
        ("--label-selector tier=y", 0),
        ("--field-selector spec.nodeName=node-19", 3),
    ] {
        let listed = run(&format!("list pods --requests 5 --connections 2 {flags}")).await;
        check(
            &listed,
            &[("items", json!(items)), ("requests_answered", json!(5))],
        );
        let bytes = listed["bytes"].as_u64().expect("a number");
        assert!(bytes >= 5 * items * 700, "{listed:#}");
    }

    for flags in [
        "--watchers 10",
        "--watchers 10 --connections 3 --writers 4",
        "--watchers 10 --http 1.1",
        "--watchers 10 --connections 3 --writers 4 --accept protobuf",
        "--watchers 10 --http 1.1 --accept protobuf",
    ] {
        let watched = run(&format!("watch --events 40 --rate 0 {flags}")).await;
        check_watch(&watched, 40, 10);
    }
    let selective = "watch --events 40 --rate 400 --watchers 8 --mode selective";
    check_watch(&run(selective).await, 40, 1);
    let idle = run("watch --events 0 --watchers 5 --hold 0.3").await;
    check_watch(&idle, 0, 5);
    assert!(idle["rss_kib_per_watcher"].is_number(), "{idle:#}");

    let clear = "clear pods --count 70 --namespaces 3";
    let cleared = run(clear).await;
    check(
        &cleared,
        &[
            ("requests_answered", json!(70)),
            ("objects_missing", json!(10)),
        ],
    );
    let listed = run("list pods --requests 1").await;
    check(&listed, &[("items", json!(0))]);

    let directory = tempfile::tempdir().expect("a temporary directory");
    let page = directory.path().join("page.html");
    let plotted = format!(
        "watch --events 100 --rate 200 --watchers 3 --html {}",
        page.display()
    );
    check_watch(&run(&plotted).await, 100, 3);
    let page = std::fs::read_to_string(page).expect("it is written");
    assert!(page.contains("<h1>Passed</h1>"), "{page}");
    assert!(page.contains("0 of 300 events lost"), "{page}");
    // Each plot is drawn twice: four latencies, and the latency and the throughput over time.
    assert_eq!(page.matches("<polyline").count(), 2 * (4 + 3 + 1), "{page}");

    // The run has deleted its objects.
    let mut wire = server.plain(Protocol::Http1).await;
    let left = wire.get("/api/v1/configmaps").await.json();
    assert_eq!(left["items"], json!([]));
    server.stop().await;
}

fn check_watch(report: &Value, events: u64, receivers: u64) {
    check(
        report,
        &[
            ("events_sent", json!(events)),
            ("events_delivered", json!(events * receivers)),
            ("events_lost", json!(0)),
            ("events_duplicate", json!(0)),
            ("events_out_of_order", json!(0)),
            ("events_foreign", json!(0)),
            ("watches_ended", json!(0)),
        ],
    );
    assert_eq!(report["latency_us_last"]["count"], events, "{report:#}");
    assert_eq!(
        report["latency_us_each"]["count"],
        events * receivers,
        "{report:#}"
    );
}

/// Waits until event number `least` of a run, or a later one, has changed the object; returns the object.
async fn changed(wire: &mut Wire, least: u32) -> Value {
    let change = async {
        loop {
            let object = wire.get(CHANGED).await.json();
            let mark = object["metadata"]["annotations"]["watchet-bench-event"].as_str();
            // The mark of a new object has no event number.
            let event = mark
                .and_then(|mark| mark.split_once('-'))
                .map(|mark| mark.1);
            let event = event.map(|event| event.parse::<u32>().expect("a number"));
            if event.is_some_and(|event| (least..u32::MAX).contains(&event)) {
                return object;
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, change).await.expect("it writes")
}

/// Starts a command whose output the test reads.
fn spawn(mut command: Command) -> tokio::process::Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

async fn failed(running: tokio::process::Child) -> (Value, String) {
    let output = timeout(PATIENCE, running.wait_with_output()).await;
    let output = output.expect("in time").expect("its output");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr}\n{report:#}");
    (report, stderr)
}

#[tokio::test]
async fn run_fails_if_the_server_dies() {
    let server = Server::start(&["--storage=memory"]).await;
    let pid = server.pid().to_string();
    let watch = [
        "watch",
        "--watchers=6",
        "--events=100000",
        "--rate=200",
        "--pid",
        &pid,
    ];
    let running = bench(&server.kubeconfig(), &watch)
        .spawn()
        .expect("it starts");
    // The first event may be visible before it is acknowledged; a later one is not sent before that.
    changed(&mut server.plain(Protocol::Http1).await, 5).await;
    server.kill().await;
    let (report, stderr) = failed(running).await;
    check(
        &report,
        &[
            ("watches_ended", json!(6)),
            ("writes_failed", json!(1)),
            ("events_duplicate", json!(0)),
            ("events_out_of_order", json!(0)),
        ],
    );
    let number = |key: &str| report[key].as_u64().expect("a number");
    let (sent, received) = (number("events_sent"), number("events_delivered"));
    assert!((1..100_000).contains(&sent), "{report:#}");
    // Watchers may have received a write that was not acknowledged.
    let accounted = received + number("events_lost");
    assert!(
        (sent * 6..=(sent + 1) * 6).contains(&accounted),
        "{report:#}"
    );
    for fault in [
        "6 watches ended early",
        "1 writes failed",
        "were not written",
    ] {
        assert!(stderr.contains(fault), "{fault}: {stderr}");
    }
}

/// Another writer changes the object so that its event has the sequence number of an earlier one: the watchers receive
/// the same event twice.
#[tokio::test]
async fn duplicate_event_fails_the_run() {
    let server = Server::start(&["--storage=memory"]).await;
    let watch = ["watch", "--watchers=5", "--events=40", "--rate=10"];
    let running = bench(&server.kubeconfig(), &watch)
        .spawn()
        .expect("it starts");
    let mut wire = server.plain(Protocol::Http1).await;
    changed(&mut wire, 0).await;
    let headers = [("content-type", "application/merge-patch+json")];
    let label = json!({"metadata": {"labels": {"meddled": "true"}}}).to_string();
    let answer = wire.send(Method::PATCH, CHANGED, &headers, &label);
    assert!(answer.await.status.is_success());
    let (report, stderr) = failed(running).await;
    check(
        &report,
        &[
            ("events_sent", json!(40)),
            ("events_delivered", json!(200)),
            ("events_lost", json!(0)),
            ("events_duplicate", json!(5)),
        ],
    );
    assert!(stderr.contains("5 events were received twice"), "{stderr}");
    server.stop().await;
}

#[tokio::test]
async fn failed_requests_are_reported() {
    let server = Server::start(&["--storage=memory"]).await;
    let get = ["get", "configmaps", "--count=3", "--requests=7"];
    let running = bench(&server.kubeconfig(), &get)
        .spawn()
        .expect("it starts");
    let (report, stderr) = failed(running).await;
    check(
        &report,
        &[
            ("requests_answered", json!(0)),
            ("requests_failed", json!(7)),
        ],
    );
    assert!(
        stderr.contains("7 requests failed, the first: GET"),
        "{stderr}"
    );
    assert!(stderr.contains("404 Not Found"), "{stderr}");
    server.stop().await;
}

/// The floor responds in JSON only. The generator reports the wrong encoding instead of measuring it.
#[tokio::test]
async fn a_response_in_another_encoding_is_an_error() {
    let mut serving = command();
    serving.args(["bench", "floor", "serve", "--count=3"]);
    serving.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut floor = serving.spawn().expect("it starts");
    let mut lines = BufReader::new(floor.stdout.take().expect("a pipe")).lines();
    let url = timeout(PATIENCE, lines.next_line()).await;
    let url = url.expect("in time").expect("text").expect("a line");
    let list = ["list", "configmaps", "--http=1.1", "--accept=protobuf"];
    let mut asking = command();
    asking.arg("bench").args(list).args(["--server", &url]);
    let output = asking.output().await.expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let message =
        r#"its type is "application/json" instead of application/vnd.kubernetes.protobuf"#;
    assert!(stderr.contains(message), "{stderr}");
}

async fn floor(args: &[&str]) -> Value {
    let mut command = command();
    command.args(["bench", "floor"]).args(args);
    command.args(["--json", "--saturate"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    succeed(command).await
}

#[tokio::test]
async fn the_floor_does_the_same_work() {
    let watched = floor(&[
        "watch",
        "--watchers=10",
        "--events=40",
        "--rate=0",
        "--writers=3",
    ]);
    let watched = watched.await;
    check_watch(&watched, 40, 10);
    assert!(watched["rss_bytes_after"].as_u64() > Some(0), "{watched:#}");
    let selective = floor(&["watch", "--watchers=8", "--events=40", "--mode=selective"]).await;
    check_watch(&selective, 40, 1);
    let listed = floor(&["list", "--count=50", "--size=800", "--requests=4"]).await;
    check(
        &listed,
        &[("items", json!(50)), ("requests_answered", json!(4))],
    );
    assert!(listed["bytes"].as_u64() > Some(4 * 50 * 800), "{listed:#}");
}

#[tokio::test]
async fn invalid_arguments_print_one_line_and_exit_2() {
    for (args, message) in [
        (
            &[
                "watch",
                "--server=http://127.0.0.1:1",
                "--http=1.1",
                "--connections=2",
            ][..],
            "HTTP/1.1 carries one watch each",
        ),
        (
            &["list", "pods", "--kubeconfig=/no/such/file"],
            "/no/such/file",
        ),
        (
            &["list", "pods", "--server=ftp://a"],
            "must start with https://",
        ),
        (
            &["list", "pods", "--accept=xml"],
            "is not one of json, protobuf",
        ),
        (&["storm", "pods", "--clients=0"], "--clients"),
        (
            &["churn", "--workers=3", "--objects=2", SERVER],
            "--objects: must be at least the number of workers",
        ),
        (&["churn", "--mix=create=1"], "must be VERB=WEIGHT"),
        (&["churn", "--seconds=1", "--operations=9"], "--operations"),
        (&["churn", "--rate=-1", SERVER], "--rate: must be a number"),
        (&["churn", "--timeout=-1", SERVER], "--timeout: "),
        (&["storm", "pods", "--timeout=x", SERVER], "--timeout"),
        (
            &["fill", "secrets"],
            "is not one of configmaps, pods, widgets, gadgets",
        ),
        (
            &["get", "widgets", "--accept=protobuf", SERVER],
            "--accept protobuf: servers do not encode custom resources such as widgets",
        ),
        (
            &["list", "pods", "--all-pages", SERVER],
            "--all-pages: also give the size of a page with --limit",
        ),
        (&["write", "pods", "--verb=replace"], "\"replace\""),
        (&["write", "pods"], "--verb"),
        (
            &["write", "gadgets", "--verb=strategic-patch", SERVER],
            "--verb strategic-patch: servers do not support it for custom resources such as gadgets",
        ),
        (
            &["write", "pods", "--verb=delete", "--accept=table", SERVER],
            "--accept table: the response to --verb delete is a Status",
        ),
        (
            &["watch", "--mode=selective", "--resource=configmaps", SERVER],
            "--resource configmaps: they have no node",
        ),
        (
            &["sweep", "--pid=1", "--verb=read", SERVER],
            "--verb read: must be one of get, list-rv0,",
        ),
        (
            &["sweep", "--pid=1", "--verb=apply", "--accept=table", SERVER],
            "no row has this combination",
        ),
        (
            &["sweep", "--pid=1", "--goal=-1", SERVER],
            "--goal -1: must be a ratio",
        ),
        (
            &["sweep", "--pid=1", "--against=/k", SERVER],
            "--against-pid <PID>",
        ),
        (&["watch", "--token=t"], "--server <URL> is missing"),
    ] {
        let output = command().arg("bench").args(args).output().await;
        let output = output.expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(message), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    }
    // The URL is valid, but no server listens there.
    let list = ["bench", "list", "pods", "--server=http://127.0.0.1:1"];
    let output = command().args(list).output().await.expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot connect to 127.0.0.1:1"), "{stderr}");
}

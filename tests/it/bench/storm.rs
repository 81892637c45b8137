//! Tests of `bench storm`: every client receives the complete state, as a list and as a streaming list, in both
//! encodings and versions of HTTP. A client that does not makes the run fail.

use serde_json::json;

use super::tampering_proxy::{self, Replacement};
use super::{bench, check, failed, succeed};
use crate::harness::{Protocol, Server, command};

const VERSION: &str = r#""resourceVersion":""#;

async fn filled() -> Server {
    let server = Server::start(&["--storage=memory"]).await;
    let fill = ["fill", "pods", "--count=60", "--size=900", "--nodes=20"];
    succeed(bench(&server.kubeconfig(), &fill)).await;
    server
}

#[tokio::test]
async fn every_client_receives_every_object() {
    let server = filled().await;
    let pid = server.pid().to_string();
    for (flags, items) in [
        ("--by=watch-list", 60),
        ("--by=list", 60),
        ("--by=watch-list --accept=protobuf", 60),
        ("--by=list --accept=protobuf", 60),
        ("--by=watch-list --http=1.1 --resource-version=0", 60),
        ("--by=list --http=1.1 --namespace=none", 0),
        ("--field-selector=spec.nodeName=node-19", 3),
        ("--accept=protobuf --label-selector=tier=none", 0),
    ] {
        let line = format!("storm pods --clients 7 --pid {pid} {flags}");
        let args: Vec<&str> = line.split(' ').collect();
        let report = succeed(bench(&server.kubeconfig(), &args)).await;
        check(
            &report,
            &[
                ("items", json!(items)),
                ("answers_complete", json!(7)),
                ("answers_wrong", json!(0)),
                ("answers_failed", json!(0)),
            ],
        );
        assert_eq!(report["latency_us_complete"]["count"], 7, "{report:#}");
        let bytes = report["bytes"].as_u64().expect("a number");
        assert!(bytes >= 7 * items * 700, "{flags}: {report:#}");
        assert!(report["cpu_ms_per_client"].is_number(), "{report:#}");
    }
    server.stop().await;
}

/// The proxy changes the version of one object, or the name of the member that has it.
#[tokio::test]
async fn one_client_with_a_different_state_fails_the_run() {
    let server = filled().await;
    let list = server
        .plain(Protocol::Http1)
        .await
        .get("/api/v1/pods")
        .await;
    let text = String::from_utf8(list.body.to_vec()).expect("JSON");
    let count = |of: &str| text.matches(of).count();
    let otherwise = Replacement {
        from: r#""resourceVersion":"1"#,
        to: r#""resourceVersion":"7"#,
        after: count(r#""resourceVersion":"1"#) + 3,
    };
    let unnamed = Replacement {
        from: VERSION,
        to: r#""resourceNothing":""#,
        after: count(VERSION) + 70,
    };
    for (replacement, by) in [(otherwise, "watch-list"), (unnamed, "list")] {
        let url = tampering_proxy::start(server.insecure(), replacement);
        let mut running = command();
        running.args(["bench", "storm", "pods", "--json", "--http=1.1"]);
        running.args(["--clients=4", "--by", by, "--server", &url]);
        let (report, stderr) = failed(super::spawn(running)).await;
        check(
            &report,
            &[("answers_complete", json!(4)), ("answers_wrong", json!(1))],
        );
        assert!(stderr.contains("1 clients received"), "{stderr}");
    }
    server.stop().await;
}

/// The proxy changes the type of one frame to an unknown one, or to ERROR.
#[tokio::test]
async fn a_client_without_a_state_fails_the_run() {
    let server = filled().await;
    for (to, words) in [
        (r#""type":"OTHER""#, "not a frame of a watch"),
        (r#""type":"ERROR""#, "unexpected event"),
    ] {
        let replacement = Replacement {
            from: r#""type":"ADDED""#,
            to,
            after: 100,
        };
        let url = tampering_proxy::start(server.insecure(), replacement);
        let mut running = command();
        running.args(["bench", "storm", "pods", "--json", "--http=1.1"]);
        running.args(["--clients=4", "--server", &url]);
        let (report, stderr) = failed(super::spawn(running)).await;
        check(
            &report,
            &[("answers_complete", json!(3)), ("answers_failed", json!(1))],
        );
        assert!(stderr.contains(words), "{stderr}");
    }
    server.stop().await;
}

/// One client never receives the bookmark that ends the initial events.
#[tokio::test]
async fn storm_without_an_end_fails_the_run() {
    let server = filled().await;
    let replacement = Replacement {
        from: "k8s.io/initial-events-end",
        to: "k8s.io/initial-events-and",
        after: 1,
    };
    let url = tampering_proxy::start(server.insecure(), replacement);
    let mut running = command();
    running.args(["bench", "storm", "pods", "--json", "--http=1.1"]);
    running.args(["--clients=3", "--timeout=5", "--server", &url]);
    let (report, stderr) = failed(super::spawn(running)).await;
    check(
        &report,
        &[("answers_complete", json!(2)), ("answers_failed", json!(1))],
    );
    assert!(stderr.contains("no response within 5s"), "{stderr}");
    server.stop().await;
}

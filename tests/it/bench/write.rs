//! Tests of `bench write`: every verb on every kind of resource, and results that are not those of the request.

use serde_json::json;

use super::tampering_proxy::{self, Replacement};
use super::{bench, check, failed, succeed};
use crate::harness::{Server, command};

#[tokio::test]
async fn each_verb_writes_each_resource() {
    let server = Server::start(&["--storage=memory"]).await;
    let (kubeconfig, pid) = (server.kubeconfig(), server.pid().to_string());
    for resource in ["configmaps", "pods", "widgets", "gadgets"] {
        for verb in [
            "create",
            "update",
            "json-patch",
            "merge-patch",
            "strategic-patch",
            "apply",
            "delete",
            "deletecollection",
        ] {
            let is_custom = matches!(resource, "widgets" | "gadgets");
            if is_custom && verb == "strategic-patch" {
                continue;
            }
            let accept = if is_custom { "json" } else { "protobuf" };
            let line = format!(
                "write {resource} --verb {verb} --requests 12 --objects 5 --connections 3 --pid {pid} --accept {accept}"
            );
            let args: Vec<&str> = line.split(' ').collect();
            let report = succeed(bench(&kubeconfig, &args)).await;
            check(
                &report,
                &[
                    ("verb", json!(verb)),
                    ("requests_answered", json!(12)),
                    ("requests_failed", json!(0)),
                    ("objects_deviating", json!(0)),
                ],
            );
            assert!(report["cpu_ms_per_request"].is_number(), "{report:#}");
            assert_eq!(report["latency_us"]["count"], 12, "{report:#}");
            let converted = report["webhook_converted"].as_u64();
            assert_eq!(
                converted.is_some_and(|count| count >= 12),
                resource == "gadgets",
                "{report:#}"
            );
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn responses_to_writes_have_the_requested_form() {
    let server = Server::start(&["--storage=memory"]).await;
    for accept in ["json", "table", "metadata", "metadata-protobuf"] {
        for resource in ["configmaps", "widgets"] {
            let line = format!(
                "write {resource} --verb merge-patch --requests 9 --objects 2 --accept {accept}"
            );
            let args: Vec<&str> = line.split(' ').collect();
            let report = succeed(bench(&server.kubeconfig(), &args)).await;
            check(
                &report,
                &[
                    ("requests_answered", json!(9)),
                    ("objects_deviating", json!(0)),
                ],
            );
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_rate_sets_the_times_of_requests() {
    let server = Server::start(&["--storage=memory"]).await;
    for load in [
        "fill configmaps --count 21 --connections 1 --rate 200",
        "write configmaps --verb update --requests 21 --connections 2 --rate 200",
    ] {
        let args: Vec<&str> = load.split(' ').collect();
        let report = succeed(bench(&server.kubeconfig(), &args)).await;
        check(&report, &[("requests_answered", json!(21))]);
        // The first request is immediate, and each other 5 ms after the one before.
        assert!(report["elapsed_ms"].as_f64() >= Some(100.0), "{report:#}");
    }
    server.stop().await;
}

/// The proxy renames the annotation that has the number of the write: in a response, or in the final list.
#[tokio::test]
async fn another_result_than_the_written_one_fails_the_run() {
    let server = Server::start(&["--storage=memory"]).await;
    for (after, deviating, failed_requests, words) in [
        (7, 1, 0, "1 objects are not as they were written last"),
        (2, 1, 1, "it does not have the content that was written"),
    ] {
        let replacement = Replacement {
            from: "watchet-bench-event\":\"",
            to: "watchet-bench-evens\":\"",
            after,
        };
        let url = tampering_proxy::start(server.insecure(), replacement);
        let mut running = command();
        running.args([
            "bench",
            "write",
            "configmaps",
            "--json",
            "--http=1.1",
            "--saturate",
        ]);
        running.args([
            "--verb=create",
            "--requests=5",
            "--connections=1",
            "--server",
            &url,
        ]);
        let (report, stderr) = failed(super::spawn(running)).await;
        check(
            &report,
            &[
                ("objects_deviating", json!(deviating)),
                ("requests_failed", json!(failed_requests)),
            ],
        );
        assert!(stderr.contains(words), "{stderr}");
    }
    server.stop().await;
}

//! Tests of reads and watches of `bench` in all encodings and of all kinds of resources, and of lists in pages.

use serde_json::json;

use super::tampering_proxy::{self, Replacement};
use super::{bench, check, check_watch, failed, succeed};
use crate::harness::{Server, command};

const RESOURCES: [&str; 4] = ["configmaps", "pods", "widgets", "gadgets"];
const ENCODINGS: [&str; 5] = ["json", "protobuf", "table", "metadata", "metadata-protobuf"];

/// Returns the pairs that servers support.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = RESOURCES
        .into_iter()
        .flat_map(|resource| ENCODINGS.map(|accept| (resource, accept)));
    all.filter(|(resource, accept)| {
        *accept != "protobuf" || matches!(*resource, "configmaps" | "pods")
    })
}

#[tokio::test]
async fn reads_are_checked_in_each_encoding() {
    let server = Server::start(&["--storage=memory"]).await;
    let run = |line: String| {
        let args: Vec<&str> = line.split(' ').collect();
        succeed(bench(&server.kubeconfig(), &args))
    };
    for resource in RESOURCES {
        let fill = format!("fill {resource} --count 25 --size 700 --nodes 5 --label tier=x");
        check(&run(fill).await, &[("requests_answered", json!(25))]);
    }
    for (resource, accept) in pairs() {
        let got = run(format!(
            "get {resource} --count 25 --requests 20 --accept {accept}"
        ))
        .await;
        check(&got, &[("requests_answered", json!(20))]);
        for (flags, items, pages) in [
            ("", 25, 3),
            (" --resource-version 0", 25, 3),
            (" --limit 7", 7, 3),
            (" --limit 7 --all-pages", 25, 12),
            (" --label-selector tier=y", 0, 3),
            (" --label-selector tier=x --limit 12 --all-pages", 25, 9),
        ] {
            let line =
                format!("list {resource} --namespace bench --requests 3 --accept {accept}{flags}");
            check(
                &run(line).await,
                &[
                    ("items", json!(items)),
                    ("requests_answered", json!(3)),
                    ("pages", json!(pages)),
                ],
            );
        }
        if resource != "configmaps" {
            let selected = " --field-selector spec.nodeName=node-2";
            let line = format!("list {resource} --requests 3 --accept {accept}{selected}");
            check(&run(line).await, &[("items", json!(5))]);
        }
        for by in ["list", "watch-list"] {
            let storm = format!(
                "storm {resource} --clients 3 --by {by} --accept {accept} --namespace bench"
            );
            let stormed = run(storm).await;
            check(
                &stormed,
                &[("items", json!(25)), ("answers_complete", json!(3))],
            );
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn each_encoding_of_each_resource_is_watched() {
    let server = Server::start(&["--storage=memory"]).await;
    for (resource, accept) in pairs() {
        let line = format!(
            "watch --resource {resource} --accept {accept} --events 20 --rate 0 --watchers 4 --writers 2"
        );
        let args: Vec<&str> = line.split(' ').collect();
        check_watch(&succeed(bench(&server.kubeconfig(), &args)).await, 20, 4);
    }
    let selective = [
        "watch",
        "--resource=widgets",
        "--mode=selective",
        "--events=20",
        "--rate=0",
        "--watchers=4",
    ];
    check_watch(
        &succeed(bench(&server.kubeconfig(), &selective)).await,
        20,
        1,
    );
    server.stop().await;
}

/// The proxy renames a member that each object has once, so that a response seems to have an object less.
#[tokio::test]
async fn a_list_with_another_number_of_objects_fails_the_run() {
    let server = Server::start(&["--storage=memory"]).await;
    let fill = ["fill", "configmaps", "--count=9"];
    succeed(bench(&server.kubeconfig(), &fill)).await;
    for flags in [&[][..], &["--limit=4", "--all-pages"]] {
        let replacement = Replacement {
            from: r#""resourceVersion":""#,
            to: r#""resourceNothing":""#,
            // The first list has one of its own and those of 9 objects.
            after: 15,
        };
        let url = tampering_proxy::start(server.insecure(), replacement);
        let mut running = command();
        running.args([
            "bench",
            "list",
            "configmaps",
            "--json",
            "--http=1.1",
            "--saturate",
        ]);
        running.args(["--namespace=bench", "--requests=3", "--server", &url]);
        running.args(flags);
        let (report, stderr) = failed(super::spawn(running)).await;
        check(
            &report,
            &[
                ("requests_answered", json!(2)),
                ("requests_failed", json!(1)),
            ],
        );
        assert!(stderr.contains("it has 8 objects instead of 9"), "{stderr}");
    }
    server.stop().await;
}

/// The proxy changes the name of an object.
#[tokio::test]
async fn another_object_than_the_requested_one_fails_the_run() {
    let server = Server::start(&["--storage=memory"]).await;
    let fill = ["fill", "configmaps", "--count=3"];
    succeed(bench(&server.kubeconfig(), &fill)).await;
    let replacement = Replacement {
        from: r#""name":"bench-"#,
        to: r#""name":"other-"#,
        after: 4,
    };
    let url = tampering_proxy::start(server.insecure(), replacement);
    let mut running = command();
    running.args([
        "bench",
        "get",
        "configmaps",
        "--json",
        "--http=1.1",
        "--saturate",
    ]);
    running.args(["--count=3", "--requests=9", "--server", &url]);
    let (report, stderr) = failed(super::spawn(running)).await;
    check(
        &report,
        &[
            ("requests_answered", json!(8)),
            ("requests_failed", json!(1)),
        ],
    );
    assert!(stderr.contains("it is not bench-"), "{stderr}");
    server.stop().await;
}

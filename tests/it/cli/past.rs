//! `watchet at`, `diff` and `history`.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::sleep;

use super::watchet;
use crate::harness::{Kubectl, PATIENCE, Server};
use crate::storage::etcd::EtcdProcess;

/// More than the precision of times.
const PAUSE: Duration = Duration::from_millis(2100);

/// The cache has at least 100 events whatever its window is: more changes remove the others from it.
const CHANGES: usize = 120;

/// The times and versions of the states that [`change`] makes.
struct Made {
    /// A time at which `a` had the value 1 and `b` did not exist.
    first: String,
    /// The version of `a` at that time.
    first_version: String,
    /// A time after the change of `a`, before its deletion.
    second: String,
}

/// Creates the config map `a`, changes it, creates `b`, and replaces `a`.
async fn change(kubectl: &Kubectl) -> Made {
    kubectl
        .run(&["create", "cm", "a", "--from-literal=k=1"])
        .await;
    sleep(PAUSE).await;
    let first = Timestamp::now().to_string();
    let version = [
        "get",
        "cm",
        "a",
        "-o",
        "jsonpath={.metadata.resourceVersion}",
    ];
    let first_version = kubectl.run(&version).await;
    sleep(PAUSE).await;
    let patch = r#"{"data":{"k":"2"}}"#;
    kubectl
        .run(&[
            "patch",
            "cm",
            "a",
            "--field-manager=editor",
            "--type=merge",
            "-p",
            patch,
        ])
        .await;
    kubectl.run(&["create", "cm", "b"]).await;
    sleep(PAUSE).await;
    let second = Timestamp::now().to_string();
    sleep(PAUSE).await;
    kubectl.run(&["delete", "cm", "a"]).await;
    kubectl
        .run(&["create", "cm", "a", "--from-literal=k=3"])
        .await;
    Made {
        first,
        first_version,
        second,
    }
}

/// Checks what the commands print about the states that [`change`] has made. `flag` is that of the server for how long it
/// retains them.
async fn check(server: &Server, made: &Made, flag: &str) {
    let kubeconfig = server.kubeconfig();
    let run = |args: Vec<&'static str>| async {
        let args: Vec<&str> = args
            .into_iter()
            .map(|arg| match arg {
                "FIRST" => made.first.as_str(),
                "FIRST-VERSION" => made.first_version.as_str(),
                "SECOND" => made.second.as_str(),
                arg => arg,
            })
            .collect();
        watchet(Some(&kubeconfig), &args).await
    };
    for moment in ["FIRST", "FIRST-VERSION"] {
        let ran = run(vec!["at", moment, "get", "cm", "a", "-o", "json"]).await;
        assert!(ran.err.contains("the state at resourceVersion "), "{ran:?}");
        let object: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
        assert_eq!(
            (&object["kind"], &object["data"]["k"]),
            (&json!("ConfigMap"), &json!("1"))
        );
        let table = run(vec!["at", moment, "get", "configmaps"]).await.text();
        let lines: Vec<&str> = table.lines().collect();
        assert!(
            lines[0].starts_with("NAME") && lines[0].ends_with("AGE"),
            "{table}"
        );
        assert!(lines[1].starts_with("a ") && lines.len() == 2, "{table}");
        // The age is that of then.
        assert!(
            lines[1].ends_with(['0', '1', '2', '3', '4', 's']),
            "{table}"
        );
    }
    let yaml = run(vec!["at", "SECOND", "get", "cm/a", "-o", "yaml"])
        .await
        .text();
    assert!(
        yaml.contains("\"2\"") && yaml.contains("kind: ConfigMap"),
        "{yaml}"
    );
    let names = run(vec!["at", "SECOND", "get", "cm", "-A", "-o", "name"])
        .await
        .text();
    assert!(names.contains("configmaps/b\n"), "{names}");
    let missing = run(vec!["at", "FIRST", "get", "cm", "b"]).await;
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(
        missing
            .err
            .contains(r#"configmaps "b" does not exist at resourceVersion "#),
        "{missing:?}"
    );

    let history = run(vec!["history", "cm/a", "-o", "json", "--no-events"]).await;
    let versions = history.lines();
    let types: Vec<&str> = versions.iter().filter_map(|v| v["type"].as_str()).collect();
    assert_eq!(
        types,
        ["ADDED", "MODIFIED", "DELETED", "ADDED"],
        "{history:?}"
    );
    let managers: Vec<_> = versions.iter().map(|v| v["manager"].as_str()).collect();
    let create = Some("kubectl-create (Update)");
    assert_eq!(managers, [create, Some("editor (Update)"), None, create]);
    assert_eq!(
        versions[1]["changes"],
        json!([{"path": "data.k", "old": "1", "new": "2"}])
    );
    assert_eq!(versions[0]["resourceVersion"], json!(made.first_version));
    let times: Vec<Timestamp> = versions
        .iter()
        .map(|version| version["time"].as_str().unwrap().parse().unwrap())
        .collect();
    let between: [Timestamp; 2] = [made.first.parse().unwrap(), made.second.parse().unwrap()];
    assert!(times[0] < between[0] && between[0] < times[1], "{times:?}");
    assert!(times[1] < between[1] && between[1] < times[2], "{times:?}");
    let text = run(vec!["history", "cm", "a", "--no-events"]).await.text();
    assert!(
        text.contains("~ by editor (Update)\n    data.k: 1 -> 2\n"),
        "{text}"
    );
    assert!(text.contains("- deleted by unknown\n"), "{text}");

    let diff = run(vec!["diff", "FIRST", "SECOND", "cm", "-o", "json"]).await;
    assert_eq!(diff.code, 1, "{diff:?}");
    let lines = diff.lines();
    assert_eq!(lines.len(), 2, "{diff:?}");
    assert_eq!(
        (&lines[0]["key"], &lines[0]["type"]),
        (&json!("default/a"), &json!("changed"))
    );
    assert_eq!(
        lines[0]["changes"],
        json!([{"path": "data.k", "old": "1", "new": "2"}])
    );
    assert_eq!(
        (&lines[1]["key"], &lines[1]["type"]),
        (&json!("default/b"), &json!("added"))
    );
    let all = run(vec!["diff", "FIRST", "SECOND"]).await;
    assert_eq!(all.code, 1, "{all:?}");
    assert!(all.out.contains("+ configmaps default/b\n"), "{all:?}");
    let same = run(vec!["diff", "now", "now", "cm"]).await;
    assert_eq!((same.code, same.out.as_str()), (0, ""), "{same:?}");
    let wrong = run(vec!["diff", "soon", "now"]).await;
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(
        wrong
            .err
            .starts_with(r#"watchet diff: <A>: "soon" is not a moment"#),
        "{wrong:?}"
    );
    let old = run(vec!["at", "1000h", "get", "cm"]).await;
    assert_eq!(old.code, 1, "{old:?}");
    assert!(
        old.err
            .contains("the oldest available state is resourceVersion ")
            && old.err.contains(flag),
        "{old:?}"
    );
    let unknown = run(vec!["history", "cm/none"]).await;
    assert!(
        unknown
            .err
            .contains("did not exist in the retained history"),
        "{unknown:?}"
    );
}

/// The states are older than the history in memory, and from before a restart.
#[tokio::test]
async fn past_states_are_read_from_the_embedded_store_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["--history-retention=1h", "--watch-history-window=200ms"];
    let server = Server::start_in(directory.path(), &args).await;
    let kubectl = Kubectl::newest(&server.kubeconfig());
    let made = change(&kubectl).await;
    let names: Vec<String> = (0..CHANGES)
        .map(|number| format!("more-{number}"))
        .collect();
    let create = json!({"apiVersion": "v1", "kind": "List", "items": names.iter().map(|name| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    }).collect::<Vec<_>>()});
    kubectl
        .run_with(&["create", "-f", "-"], &create.to_string())
        .await;
    check(&server, &made, "--history-retention").await;
    server.stop().await;
    let server = Server::start_in(directory.path(), &args).await;
    check(&server, &made, "--history-retention").await;
    server.stop().await;
}

#[tokio::test]
async fn past_states_are_read_from_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers]).await;
    let made = change(&Kubectl::newest(&server.kubeconfig())).await;
    check(&server, &made, "--etcd-compaction-interval").await;
    server.stop().await;
}

/// History that is older than retained is removed, and the error says how old it may be.
#[tokio::test]
async fn older_history_is_removed() {
    let server = Server::start(&["--history-retention=10s"]).await;
    let kubeconfig = server.kubeconfig();
    let kubectl = Kubectl::newest(&kubeconfig);
    kubectl.run(&["create", "cm", "a"]).await;
    let version = [
        "get",
        "cm",
        "a",
        "-o",
        "jsonpath={.metadata.resourceVersion}",
    ];
    let version = kubectl.run(&version).await;
    let args = ["at", &version, "get", "cm", "a"];
    let created = tokio::time::Instant::now();
    loop {
        kubectl
            .run(&[
                "label",
                "cm",
                "a",
                "--overwrite",
                &format!("t=t{}", created.elapsed().as_secs()),
            ])
            .await;
        let ran = watchet(Some(&kubeconfig), &args).await;
        if ran.code == 1 {
            assert!(created.elapsed() >= Duration::from_secs(9), "{ran:?}");
            assert!(
                ran.err
                    .contains("is not available: the oldest available state is resourceVersion "),
                "{ran:?}"
            );
            assert!(ran.err.contains("--history-retention"), "{ran:?}");
            break;
        }
        assert!(created.elapsed() < PATIENCE, "{ran:?}");
        sleep(Duration::from_secs(1)).await;
    }
    // What is younger is still there.
    let recent = watchet(Some(&kubeconfig), &["at", "3s", "get", "cm", "a"]).await;
    assert_eq!(recent.code, 0, "{recent:?}");
    server.stop().await;
}

#[tokio::test]
async fn values_of_secrets_are_hidden() {
    let server = Server::start(&[]).await;
    let kubeconfig = server.kubeconfig();
    let kubectl = Kubectl::newest(&kubeconfig);
    kubectl
        .run(&[
            "create",
            "secret",
            "generic",
            "s",
            "--from-literal=k=topsecret",
        ])
        .await;
    let version = [
        "get",
        "secret",
        "s",
        "-o",
        "jsonpath={.metadata.resourceVersion}",
    ];
    let version = kubectl.run(&version).await;
    let patch = r#"{"stringData":{"k":"other"}}"#;
    kubectl
        .run(&["patch", "secret", "s", "--type=merge", "-p", patch])
        .await;
    let diff = watchet(Some(&kubeconfig), &["diff", &version, "now", "secrets/s"]).await;
    assert_eq!(
        diff.out, "~ secrets default/s\n    data.k: \"*** (before)\" -> \"*** (after)\"\n",
        "{diff:?}"
    );
    let history = watchet(Some(&kubeconfig), &["history", "secrets/s"])
        .await
        .text();
    assert!(history.contains("data.k: \"*** (before)\""), "{history}");
    server.stop().await;
}

//! Tests of `watchet tail` with the real program and a real server: the lines of changes in all formats, also across a
//! crash of the server. The client library makes the changes.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::time::timeout;
use watchet::client::{ApiResource, DynamicObject, Kubeconfig, Patch};
use watchet::client::{ResourceClient, RestClient, RestConfig};

use crate::harness::{Kubectl, PATIENCE, Server, command, free_port, signal};

/// A running `watchet tail`.
pub(crate) struct Tail {
    child: Child,
    /// The lines of changes.
    out: Lines<BufReader<ChildStdout>>,
    /// The messages about the connection.
    err: Lines<BufReader<ChildStderr>>,
}

impl Tail {
    fn start(kubeconfig: &Path, args: &[&str]) -> Self {
        let mut command = command();
        command
            .arg("tail")
            .args(args)
            .arg("--kubeconfig")
            .arg(kubeconfig);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let out = child.stdout.take().expect("stdout is a pipe");
        let err = child.stderr.take().expect("stderr is a pipe");
        Self {
            child,
            out: BufReader::new(out).lines(),
            err: BufReader::new(err).lines(),
        }
    }

    /// Starts a tail and waits until it has received the first list.
    pub(crate) async fn synced(kubeconfig: &Path, args: &[&str]) -> Self {
        let mut tail = Self::start(kubeconfig, args);
        tail.until_line("synced, ").await;
        tail
    }

    /// Returns the next line of a change, without its time.
    async fn line(&mut self) -> String {
        let line = timeout(PATIENCE, self.out.next_line()).await;
        let line = line.expect("a line in time").expect("it can be read");
        let line = line.expect("it goes on");
        let (time, rest) = line.split_once(' ').expect("a time comes first");
        let digits = time.split(':').map(|part| part.parse::<u8>().is_ok());
        assert_eq!(digits.filter(|digits| *digits).count(), 3, "{line}");
        rest.to_owned()
    }

    pub(crate) async fn json(&mut self) -> Value {
        let line = timeout(PATIENCE, self.out.next_line()).await;
        let line = line.expect("a line in time").expect("it can be read");
        serde_json::from_str(&line.expect("it goes on")).expect("a line is JSON")
    }

    /// Waits for a message that contains `text`, and returns it.
    async fn until_line(&mut self, text: &str) -> String {
        let mut lines = Vec::new();
        let heard = timeout(PATIENCE, async {
            while let Some(line) = self.err.next_line().await.expect("it can be read") {
                lines.push(line);
                if lines.last().is_some_and(|line| line.contains(text)) {
                    return true;
                }
            }
            false
        });
        assert_eq!(heard.await, Ok(true), "{text:?} is not said: {lines:?}");
        lines.pop().expect("it was said")
    }

    /// Sends SIGINT and waits for a successful end.
    pub(crate) async fn interrupt(mut self) {
        signal(self.child.id().expect("it runs"), "INT");
        assert!(self.ended().await.success());
    }

    /// Returns its peak memory in bytes.
    pub(crate) fn memory_peak(&self) -> usize {
        let pid = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
        kib.expect("a peak").parse::<usize>().unwrap() << 10
    }

    async fn ended(&mut self) -> ExitStatus {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        ended.expect("it ends").expect("its own child")
    }
}

fn client(server: &Server) -> RestClient {
    let kubeconfig = Kubeconfig::load(&[server.kubeconfig()]).unwrap();
    RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None).unwrap()).unwrap()
}

fn maps(server: &Server) -> ResourceClient<ConfigMap> {
    let maps = client(server).resource(ApiResource::of::<ConfigMap>());
    maps.namespace("default")
}

fn map(name: &str, labels: &[(&str, &str)]) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    map.metadata.labels = Some(labels.collect()).filter(|all: &Labels| !all.is_empty());
    map
}

type Labels = std::collections::BTreeMap<String, String>;

async fn set(maps: &ResourceClient<ConfigMap>, name: &str, patch: Value) {
    maps.patch(name, &Patch::Merge(patch)).await.unwrap();
}

/// Starts a server on a port that a later server can use.
async fn start(directory: &Path, port: u16) -> Server {
    let port = format!("--secure-port={port}");
    let args = [
        port.as_str(),
        "--controllers=-root-ca-cert-publisher,-legacy-token-tracking,*",
    ];
    Server::start_exactly(directory, &args).await
}

#[tokio::test]
async fn changes_are_printed_across_a_crash_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = start(directory.path(), port).await;
    let objects = maps(&server);
    objects.create(&map("before", &[])).await.unwrap();
    let mut tail = Tail::start(&server.kubeconfig(), &["cm"]);
    let line = tail.until_line("following").await;
    assert!(
        line.contains("following configmaps in namespace default of https://"),
        "{line}"
    );
    assert!(
        tail.until_line("synced")
            .await
            .ends_with("synced, 1 object")
    );
    objects.create(&map("a", &[])).await.unwrap();
    assert_eq!(
        tail.line().await,
        "+ default/a",
        "objects that exist already are not printed"
    );
    set(&objects, "a", json!({"data": {"k": "v"}})).await;
    assert_eq!(
        tail.line().await,
        r#"~ default/a  data: (none) -> {"k":"v"}"#
    );
    set(
        &objects,
        "a",
        json!({"data": {"k": "w"}, "metadata": {"labels": {"x.io/y": "z"}}}),
    )
    .await;
    assert_eq!(
        tail.line().await,
        r#"~ default/a  data.k: v -> w, metadata.labels: (none) -> {"x.io/y":"z"}"#
    );

    server.kill().await;
    tail.until_line("disconnected: ").await;
    let server = start(directory.path(), port).await;
    let objects = maps(&server);
    // The tail may still be disconnected; it prints the changes after it has connected.
    objects.delete("before", &Default::default()).await.unwrap();
    objects.create(&map("b", &[])).await.unwrap();
    tail.until_line("connected again").await;
    let mut received = [tail.line().await, tail.line().await];
    received.sort();
    assert_eq!(received[0], "+ default/b");
    assert!(received[1].starts_with("- default/before"), "{received:?}");
    set(&objects, "a", json!({"data": {"k": "x"}})).await;
    assert_eq!(tail.line().await, "~ default/a  data.k: w -> x");
    tail.interrupt().await;
    server.stop().await;
}

#[tokio::test]
async fn objects_that_enter_or_leave_the_selector_are_printed() {
    let server = Server::start(&[]).await;
    let objects = maps(&server);
    let args = [
        "configmaps",
        "-A",
        "-o",
        "json",
        "-l",
        "app=web,tier notin (db)",
    ];
    let fields = ["--field-selector", "metadata.name!=hidden"];
    let mut tail = Tail::synced(&server.kubeconfig(), &[&args[..], &fields].concat()).await;
    for (name, tier) in [("hidden", "a"), ("database", "db"), ("shown", "a")] {
        objects
            .create(&map(name, &[("app", "web"), ("tier", tier)]))
            .await
            .unwrap();
    }
    let line = tail.json().await;
    assert_eq!(
        (&line["type"], &line["key"]),
        (&json!("ADDED"), &json!("default/shown"))
    );
    assert_eq!(line["object"]["kind"], "ConfigMap");
    assert_eq!(
        line["object"]["metadata"]["resourceVersion"],
        line["resourceVersion"]
    );
    set(&objects, "shown", json!({"data": {"k": "v"}})).await;
    let line = tail.json().await;
    let expected = json!([{"path": "data", "new": {"k": "v"}}]);
    assert_eq!(
        (&line["type"], &line["changes"]),
        (&json!("MODIFIED"), &expected)
    );
    set(
        &objects,
        "shown",
        json!({"metadata": {"labels": {"app": "db"}}}),
    )
    .await;
    let line = tail.json().await;
    assert_eq!(
        (&line["type"], &line["key"]),
        (&json!("DELETED"), &json!("default/shown"))
    );
    tail.interrupt().await;
    server.stop().await;
}

#[tokio::test]
async fn one_object_can_be_followed_by_name() {
    let server = Server::start(&[]).await;
    let objects = maps(&server);
    let mut tail = Tail::synced(&server.kubeconfig(), &["cm/b"]).await;
    for name in ["a", "b", "bb"] {
        objects.create(&map(name, &[])).await.unwrap();
    }
    set(&objects, "b", json!({"data": {"k": "v"}})).await;
    assert_eq!(tail.line().await, "+ default/b");
    assert_eq!(
        tail.line().await,
        r#"~ default/b  data: (none) -> {"k":"v"}"#
    );
    tail.interrupt().await;
    server.stop().await;
}

#[tokio::test]
async fn wide_line_has_the_field_manager_and_the_version() {
    let server = Server::start(&[]).await;
    let objects = maps(&server);
    let mut tail = Tail::synced(&server.kubeconfig(), &["configmaps", "-o", "wide"]).await;
    // A manager that sets no field has no entry.
    let made = objects.create(&map("a", &[("app", "web")])).await.unwrap();
    let version = made.metadata.resource_version.unwrap();
    assert_eq!(
        tail.line().await,
        format!("+ default/a @{version} by watchet (Update)")
    );
    let long = "x".repeat(200);
    let apply = Patch::Apply {
        object: json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": long}}),
        manager: "tests".into(),
        force: false,
    };
    objects.patch("a", &apply).await.unwrap();
    let line = tail.line().await;
    assert!(
        line.contains(" by tests (Apply)  data: (none) -> "),
        "{line}"
    );
    assert!(line.contains(&long), "{line}");
    tail.interrupt().await;
    server.stop().await;
}

#[tokio::test]
async fn custom_and_cluster_wide_resources_are_followed_by_any_of_their_names() {
    let server = Server::start(&[]).await;
    let client = client(&server);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.tail.example"},
        "spec": {
            "group": "tail.example", "scope": "Cluster",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "shortNames": ["fo"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let definitions = client.resource::<DynamicObject>(ApiResource::cluster(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
    ));
    definitions
        .create(&serde_json::from_value(definition).unwrap())
        .await
        .unwrap();
    let foos = ApiResource::cluster("tail.example", "v1", "foos", "Foo");
    let served = async {
        while client.discover().await.unwrap().resolve("fo") != Ok(foos.clone()) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, served).await.expect("it is served");
    let foos = client.resource::<DynamicObject>(foos);
    let mut tails = Vec::new();
    for name in ["fo", "Foo", "foos.v1.tail.example"] {
        tails.push(Tail::synced(&server.kubeconfig(), &[name, "-n", "ignored"]).await);
    }
    let foo = json!({"metadata": {"name": "a"}, "spec": {"list": [{"name": "x", "n": 1}]}});
    foos.create(&serde_json::from_value(foo).unwrap())
        .await
        .unwrap();
    let status = |ready| json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
    foos.patch_status("a", &Patch::Merge(status("False")))
        .await
        .unwrap();
    foos.patch_status("a", &Patch::Merge(status("True")))
        .await
        .unwrap();
    for tail in &mut tails {
        assert_eq!(tail.line().await, "+ a");
        let expected =
            r#"~ a  status: (none) -> {"conditions":[{"status":"False","type":"Ready"}]}"#;
        assert_eq!(tail.line().await, expected);
        assert_eq!(
            tail.line().await,
            "~ a  status.conditions[Ready].status: False -> True"
        );
    }
    for tail in tails {
        tail.interrupt().await;
    }
    server.stop().await;
}

/// The tail of a definition that was deleted printed the same line at each attempt.
#[tokio::test]
async fn a_deleted_definition_is_reported_once_until_it_returns() {
    let server = Server::start(&[]).await;
    let kubectl = Kubectl::newest(&server.kubeconfig());
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.tail.example"},
        "spec": {
            "group": "tail.example", "scope": "Cluster",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    let define = async || {
        let definition = definition.to_string();
        kubectl.run_with(&["create", "-f", "-"], &definition).await;
        let established = "--for=condition=Established";
        kubectl
            .run(&["wait", established, "crd/foos.tail.example"])
            .await;
    };
    define().await;
    let mut tail = Tail::synced(&server.kubeconfig(), &["foos.tail.example"]).await;
    kubectl.run(&["delete", "crd", "foos.tail.example"]).await;
    let mut lines = vec![tail.until_line("listing again").await];
    // Several attempts, because the first pauses are short.
    let attempts = async {
        while let Some(line) = tail.err.next_line().await.expect("it can be read") {
            lines.push(line);
        }
    };
    let ended = timeout(std::time::Duration::from_secs(8), attempts).await;
    assert!(ended.is_err(), "it goes on: {lines:?}");
    lines.sort_unstable();
    let before = lines.clone();
    lines.dedup();
    assert_eq!(lines, before, "said twice");
    define().await;
    tail.until_line("listed again").await;
    tail.interrupt().await;
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_resource_is_an_error_immediately() {
    let server = Server::start(&[]).await;
    let nowhere = tempfile::tempdir().unwrap();
    let unreachable = nowhere.path().join("kubeconfig");
    let kubeconfig = "{current-context: c, contexts: [{name: c, context: {cluster: c}}],
        clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}";
    std::fs::write(&unreachable, kubeconfig).unwrap();
    let ours = server.kubeconfig();
    for (kubeconfig, args, code, message) in [
        (
            &ours,
            &["deploment"][..],
            1,
            r#"the server doesn't have a resource type "deploment": did you mean deployments.apps"#,
        ),
        (
            &ours,
            &["xyzzy"],
            1,
            r#"the server doesn't have a resource type "xyzzy""#,
        ),
        (
            &ours,
            &["subjectaccessreviews"],
            1,
            "the server does not support watches of it",
        ),
        (&ours, &["pods", "-l", "a=b=c"], 1, "a=b=c"),
        (&ours, &["pods/a", "-A"], 1, "by name across all namespaces"),
        (
            &ours,
            &["pods", "--field-selector", "spec.nope=1"],
            1,
            "spec.nope",
        ),
        (
            &ours,
            &["pods", "--context", "nope"],
            2,
            r#"has no context "nope": it has watchet"#,
        ),
        (
            &unreachable,
            &["pods"],
            1,
            "cannot connect to http://127.0.0.1:1: ",
        ),
        (
            &nowhere.path().join("none"),
            &["pods"],
            2,
            "none\": No such file or directory (os error 2); name the kubeconfig of the server",
        ),
    ] {
        let mut tail = Tail::start(kubeconfig, args);
        let line = tail.until_line(message).await;
        assert!(line.starts_with("watchet tail: "), "{line}");
        assert_eq!(tail.ended().await.code(), Some(code), "{args:?}");
    }
    server.stop().await;
}

/// As with `watchet tail pods | head -1`.
#[tokio::test]
async fn a_closed_pipe_ends_the_process() {
    let server = Server::start(&[]).await;
    let objects = maps(&server);
    let mut tail = Tail::synced(&server.kubeconfig(), &["configmaps"]).await;
    objects.create(&map("a", &[])).await.unwrap();
    assert_eq!(tail.line().await, "+ default/a");
    let Tail {
        mut child,
        out,
        err,
    } = tail;
    drop(out);
    // The first write after the pipe is closed fails.
    objects.create(&map("b", &[])).await.unwrap();
    let ended = timeout(PATIENCE, child.wait()).await;
    assert!(ended.expect("it ends").expect("its own child").success());
    drop(err);
    server.stop().await;
}

//! Tests of the most frequent commands of kubectl with the real program, on the embedded store and on etcd.

use serde_json::{Value, json};

use crate::harness::{Kubectl, on_both};

on_both!(|server| (&Kubectl::new(&server.kubeconfig())) => [
    namespaces,
    config_maps,
    pods,
    deployments,
    generated_objects,
    errors_are_printed,
    everything_in_a_namespace,
]);

async fn create(kubectl: &Kubectl, object: &Value) {
    let output = kubectl
        .run_with(&["create", "-f", "-"], &object.to_string())
        .await;
    assert!(output.ends_with(" created\n"), "{output}");
}

async fn get(kubectl: &Kubectl, args: &[&str]) -> Value {
    let output = kubectl.run(&[&["get", "-o", "json"], args].concat()).await;
    serde_json::from_str(&output).expect("JSON")
}

/// Returns the cells of a table without its header.
async fn cells(kubectl: &Kubectl, args: &[&str]) -> Vec<Vec<String>> {
    let output = kubectl
        .run(&[&["get", "--no-headers"], args].concat())
        .await;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    output.lines().map(words).collect()
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    })
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
            },
        },
    })
}

async fn namespaces(kubectl: &Kubectl) {
    let mut watch = kubectl.start(&["get", "namespaces", "-w"]);
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let line = watch.line_with(name).await;
        assert!(line.contains("Active"), "{line}");
    }
    create(
        kubectl,
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
    )
    .await;
    assert!(watch.line_with("team").await.contains("Active"));
    assert_eq!(
        cells(kubectl, &["ns", "team"]).await[0][..2],
        ["team", "Active"]
    );

    kubectl.run(&["label", "ns", "team", "tier=1"]).await;
    assert_eq!(cells(kubectl, &["ns", "-l", "tier=1"]).await.len(), 1);
    kubectl
        .editing("tier:", "rank:")
        .run(&["edit", "ns", "team"])
        .await;
    let labels = &get(kubectl, &["ns", "team"]).await["metadata"]["labels"];
    assert!(labels["tier"].is_null(), "{labels}");
    assert!(labels["rank"].is_string(), "{labels}");

    let output = kubectl.run(&["delete", "ns", "team"]).await;
    assert!(output.contains("namespace \"team\" deleted"), "{output}");
    assert!(
        kubectl
            .run_failing(&["get", "ns", "team"])
            .await
            .contains("not found")
    );
    watch.kill().await;
}

async fn config_maps(kubectl: &Kubectl) {
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"colour": "blue", "size": "9"},
    });
    create(kubectl, &object).await;
    assert_eq!(cells(kubectl, &["cm"]).await[0][..2], ["settings", "2"]);
    let mut watch = kubectl.start(&["get", "cm", "settings", "-w", "--output-watch-events"]);
    watch.line_with("ADDED").await;

    kubectl.run(&["label", "cm", "settings", "a=b"]).await;
    watch.line_with("MODIFIED").await;
    kubectl
        .editing("blue", "green")
        .run(&["edit", "cm", "settings"])
        .await;
    watch.line_with("MODIFIED").await;
    let now = get(kubectl, &["cm", "settings"]).await;
    assert_eq!(now["data"], json!({"colour": "green", "size": "9"}));
    assert_eq!(now["metadata"]["labels"], json!({"a": "b"}));

    let patch = r#"{"data":{"size":null}}"#;
    kubectl
        .run(&["patch", "cm", "settings", "--type=merge", "-p", patch])
        .await;
    assert_eq!(
        get(kubectl, &["cm", "settings"]).await["data"],
        json!({"colour": "green"})
    );
    kubectl.run(&["delete", "cm", "settings"]).await;
    assert!(watch.line_with("DELETED").await.contains("settings"));
    assert!(cells(kubectl, &["cm"]).await.is_empty());
    watch.kill().await;
}

async fn pods(kubectl: &Kubectl) {
    create(kubectl, &pod("a")).await;
    let mut watch = kubectl.start(&["get", "pods", "-w", "--output-watch-events"]);
    watch.line_with("ADDED").await;
    create(kubectl, &pod("b")).await;
    assert!(watch.line_with("ADDED").await.contains(" b "));
    assert_eq!(
        cells(kubectl, &["pods"]).await[0][..3],
        ["a", "0/1", "Pending"]
    );
    let header = kubectl.run(&["get", "pods", "-o", "wide"]).await;
    let header: Vec<&str> = header
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(header[..5], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);

    kubectl
        .run(&["label", "pod", "a", "app=db", "--overwrite"])
        .await;
    assert!(watch.line_with("MODIFIED").await.contains(" a "));
    assert_eq!(cells(kubectl, &["po", "-l", "app=db"]).await[0][0], "a");
    kubectl
        .editing("image: nginx", "image: httpd")
        .run(&["edit", "pod", "a"])
        .await;
    let edited = get(kubectl, &["pod", "a"]).await;
    assert_eq!(edited["spec"]["containers"][0]["image"], "httpd");

    kubectl.run(&["delete", "pod", "a", "b"]).await;
    watch.line_with("DELETED").await;
    watch.line_with("DELETED").await;
    assert!(cells(kubectl, &["pods", "-A"]).await.is_empty());
    watch.kill().await;
}

async fn deployments(kubectl: &Kubectl) {
    let mut watch = kubectl.start(&["get", "deploy", "-w", "--output-watch-events"]);
    create(kubectl, &deployment("web")).await;
    assert!(watch.line_with("ADDED").await.contains("web"));
    assert_eq!(
        cells(kubectl, &["deployments"]).await[0][..2],
        ["web", "0/3"]
    );
    kubectl.run(&["label", "deployment", "web", "tier=1"]).await;
    watch.line_with("MODIFIED").await;
    kubectl
        .editing("replicas: 3", "replicas: 5")
        .run(&["edit", "deploy", "web"])
        .await;
    watch.line_with("0/5").await;
    let now = get(kubectl, &["deploy.apps", "web"]).await;
    assert_eq!(now["spec"]["replicas"], 5);
    assert_eq!(now["metadata"]["labels"]["tier"], "1");
    kubectl.run(&["delete", "deployment", "web"]).await;
    watch.line_with("DELETED").await;
    assert!(cells(kubectl, &["deploy"]).await.is_empty());
    watch.kill().await;
}

/// Objects that kubectl generates from its arguments. Unlike objects from files, recent versions of kubectl send them
/// in protobuf.
async fn generated_objects(kubectl: &Kubectl) {
    for (args, expected) in [
        (
            &["create", "namespace", "team"][..],
            "namespace/team created\n",
        ),
        (
            &["create", "configmap", "settings", "--from-literal=k=v"],
            "configmap/settings created\n",
        ),
        (
            &["create", "deployment", "web", "--image=nginx"],
            "deployment.apps/web created\n",
        ),
        (&["run", "one", "--image=nginx"], "pod/one created\n"),
    ] {
        assert_eq!(kubectl.run(args).await, expected);
    }
    assert_eq!(
        get(kubectl, &["cm", "settings"]).await["data"],
        json!({"k": "v"})
    );
    let web = get(kubectl, &["deploy", "web"]).await;
    assert_eq!(
        web["spec"]["template"]["spec"]["containers"][0]["image"],
        "nginx"
    );
}

async fn errors_are_printed(kubectl: &Kubectl) {
    create(kubectl, &pod("a")).await;
    let again = kubectl
        .run_failing_with(&["create", "-f", "-"], &pod("a").to_string())
        .await;
    assert!(again.contains(r#"pods "a" already exists"#), "{again}");
    let absent = kubectl.run_failing(&["get", "pod", "missing"]).await;
    assert!(absent.contains(r#"pods "missing" not found"#), "{absent}");
    let unknown = kubectl.run_failing(&["get", "unicorns"]).await;
    assert!(
        unknown.contains(r#"doesn't have a resource type "unicorns""#),
        "{unknown}"
    );
    let nowhere = ["create", "-n", "nowhere", "-f", "-"];
    let nowhere = kubectl
        .run_failing_with(&nowhere, &pod("b").to_string())
        .await;
    assert!(
        nowhere.contains(r#"namespaces "nowhere" not found"#),
        "{nowhere}"
    );
}

async fn everything_in_a_namespace(kubectl: &Kubectl) {
    create(
        kubectl,
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
    )
    .await;
    for object in [pod("p"), deployment("d")] {
        let args = ["create", "-n", "team", "-f", "-"];
        kubectl.run_with(&args, &object.to_string()).await;
    }
    let all = kubectl
        .run(&["get", "all", "-n", "team", "-o", "name"])
        .await;
    assert_eq!(all, "pod/p\ndeployment.apps/d\n");
    kubectl.run(&["delete", "namespace", "team"]).await;
    assert!(cells(kubectl, &["pods", "-A"]).await.is_empty());
    assert!(cells(kubectl, &["deployments", "-A"]).await.is_empty());
}

//! Tests of the controllers with the real program, kubectl and kube-rs, on both back ends: cascading deletes,
//! namespaces in deletion, and two servers on one etcd.

mod races;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams, PropagationPolicy};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::races::{
    assert_no_errors, clients_that_finalize_a_namespace_concurrently_meet_no_conflict,
    orphans_of_a_new_kind_are_not_deleted,
};
use crate::harness::{Kubectl, PATIENCE, Server, on_both};
use crate::storage::etcd::EtcdProcess;

on_both!(|server| (server, &Kubectl::new(&server.kubeconfig())) => [
    deployments_are_deleted_in_cascades,
    a_terminating_namespace_reports_remaining_content,
    owners_and_dependents_of_a_client_in_rust,
    jobs_are_deleted_with_orphan_policy_by_default,
    each_namespace_gets_its_default_objects,
    custom_resources_own_and_are_owned,
    orphans_of_a_new_kind_are_not_deleted,
    volume_claims_in_use_are_protected,
    clients_that_finalize_a_namespace_concurrently_meet_no_conflict,
]);

async fn create(kubectl: &Kubectl, object: &Value) -> Value {
    let args = ["create", "-o", "json", "-f", "-"];
    let created = kubectl.run_with(&args, &object.to_string()).await;
    serde_json::from_str(&created).expect("JSON")
}

fn template(name: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

fn owned_by(owner: &Value) -> Value {
    json!([{
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    }])
}

/// Creates a deployment with a replica set and two pods, as its controllers do.
async fn workload(kubectl: &Kubectl, name: &str) {
    let spec = json!({
        "replicas": 2,
        "selector": {"matchLabels": {"app": name}},
        "template": template(name),
    });
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
    let deployment = create(kubectl, &deployment).await;
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": spec, "metadata": {
        "name": format!("{name}-1"), "labels": {"app": name}, "ownerReferences": owned_by(&deployment),
    }});
    let set = create(kubectl, &set).await;
    for pod in ["a", "b"] {
        let mut body = template(name);
        body["apiVersion"] = json!("v1");
        body["kind"] = json!("Pod");
        body["metadata"]["name"] = json!(format!("{name}-1-{pod}"));
        body["metadata"]["ownerReferences"] = owned_by(&set);
        create(kubectl, &body).await;
    }
}

/// Returns the existing objects of a workload: `deployment.apps/x …`
async fn left(kubectl: &Kubectl, name: &str) -> Vec<String> {
    let label = format!("app={name}");
    let args = ["get", "deploy,rs,po", "-o", "name", "-l", &label];
    let names = kubectl.run(&args).await;
    names.lines().map(str::to_owned).collect()
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < PATIENCE, "in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn deployments_are_deleted_in_cascades(_: &Server, kubectl: &Kubectl) {
    for name in ["bg", "fg", "orphan"] {
        workload(kubectl, name).await;
        assert_eq!(left(kubectl, name).await.len(), 4);
    }
    kubectl
        .run(&["delete", "deployment", "bg", "--cascade=background"])
        .await;
    until("the background", async || {
        left(kubectl, "bg").await.is_empty()
    })
    .await;

    // kubectl waits for the deployment, and the deployment for the objects that it owns.
    kubectl
        .run(&["delete", "deployment", "fg", "--cascade=foreground"])
        .await;
    assert_eq!(left(kubectl, "fg").await, [""; 0]);

    kubectl
        .run(&["delete", "deployment", "orphan", "--cascade=orphan"])
        .await;
    let expected = [
        "replicaset.apps/orphan-1",
        "pod/orphan-1-a",
        "pod/orphan-1-b",
    ];
    assert_eq!(left(kubectl, "orphan").await, expected);
    let set = kubectl.run(&["get", "rs", "orphan-1", "-o", "json"]).await;
    let set: Value = serde_json::from_str(&set).expect("JSON");
    let owners = &set["metadata"]["ownerReferences"];
    assert!(owners.as_array().is_none_or(Vec::is_empty), "{owners}");
    // A later cascade has ended, so the orphans would have been deleted by now.
    workload(kubectl, "later").await;
    kubectl.run(&["delete", "deployment", "later"]).await;
    until("the later cascade", async || {
        left(kubectl, "later").await.is_empty()
    })
    .await;
    assert_eq!(left(kubectl, "orphan").await, expected);
    kubectl.run(&["delete", "rs", "orphan-1"]).await;
    until("the orphans", async || {
        left(kubectl, "orphan").await.is_empty()
    })
    .await;
}

async fn a_terminating_namespace_reports_remaining_content(_: &Server, kubectl: &Kubectl) {
    kubectl.run(&["create", "namespace", "slow"]).await;
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": "slow", "finalizers": ["example.com/hold"]}});
    create(kubectl, &held).await;
    kubectl.run(&["delete", "ns", "slow", "--wait=false"]).await;
    let condition =
        "jsonpath={.status.conditions[?(@.type=='NamespaceFinalizersRemaining')].message}";
    let args = ["get", "ns", "slow", "-o", condition];
    let expected = "Some content in the namespace has finalizers remaining: example.com/hold in 1 \
                    resource instances";
    until("the condition", async || {
        kubectl.run(&args).await == expected
    })
    .await;
    let refused = kubectl
        .run_failing(&["create", "cm", "x", "-n", "slow"])
        .await;
    assert!(
        refused.contains("because it is being terminated"),
        "{refused}"
    );
    let release = r#"{"metadata":{"finalizers":null}}"#;
    kubectl
        .run(&[
            "patch",
            "cm",
            "held",
            "-n",
            "slow",
            "--type=merge",
            "-p",
            release,
        ])
        .await;
    let gone = ["wait", "--for=delete", "ns/slow", "--timeout=30s"];
    kubectl.run(&gone).await;
}

async fn client(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

fn map(name: &str, owners: &[&ConfigMap]) -> ConfigMap {
    let owners = owners.iter().map(|owner| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(),
            "blockOwnerDeletion": true})
    });
    let owners: Vec<Value> = owners.collect();
    serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owners}}))
        .expect("a config map")
}

async fn owners_and_dependents_of_a_client_in_rust(server: &Server, _: &Kubectl) {
    let maps: Api<ConfigMap> = Api::namespaced(client(server).await, "default");
    let make = async |name: &str, owners: &[&ConfigMap]| {
        let (map, options) = (map(name, owners), PostParams::default());
        maps.create(&options, &map).await.expect("it is made")
    };
    let (a, b) = (make("a", &[]).await, make("b", &[]).await);
    let both = make("of-both", &[&a, &b]).await;
    let one = make("of-one", &[&a]).await;
    let foreground = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    let deleted = maps.delete("a", &foreground).await.expect("it is marked");
    assert!(deleted.is_left(), "it goes on: {deleted:?}");
    for gone in [&a, &one] {
        let uid = gone.uid().expect("a uid");
        let name = gone.name_any();
        let gone = await_condition(maps.clone(), &name, conditions::is_deleted(&uid));
        let waited = tokio::time::timeout(PATIENCE, gone).await;
        waited.expect("in time").expect("it is watched");
    }
    let left = maps.get("of-both").await.expect("it has another owner");
    assert_eq!(left.uid(), both.uid());
    let owners: Vec<_> = left.owner_references().iter().map(|o| &o.name).collect();
    assert_eq!(owners, ["b"]);
}

/// Each server's controllers process the deletions of the other server. They do the same work without conflicts.
#[tokio::test]
async fn two_servers_on_one_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let one = Server::start(&["--storage=etcd", &servers]).await;
    let idle = ["--storage=etcd", &servers, "--controllers=-namespace"];
    let (two, idle) = (
        Server::start(&["--storage=etcd", &servers]).await,
        Server::start(&idle).await,
    );
    let [first, second, third] = [&one, &two, &idle].map(|s| Kubectl::new(&s.kubeconfig()));
    for (at, name) in [(&first, "x"), (&second, "y"), (&third, "z")] {
        workload(at, name).await;
    }
    for (at, name) in [(&second, "x"), (&third, "y"), (&first, "z")] {
        at.run(&["delete", "deployment", name, "--cascade=foreground"])
            .await;
        assert_eq!(left(at, name).await, [""; 0]);
    }
    third.run(&["create", "namespace", "team"]).await;
    third.run(&["create", "configmap", "m", "-n", "team"]).await;
    third.run(&["delete", "namespace", "team"]).await;
    for server in [one, two, idle] {
        assert_no_errors(&server);
        server.stop().await;
    }
}

/// As with an API server without a controller manager.
#[tokio::test]
async fn without_controllers_no_deletion_completes() {
    let alone = [
        "--controllers=-namespace",
        "--disable-admission-plugins=ServiceAccount",
    ];
    let server = Server::start(&alone).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    workload(&kubectl, "x").await;
    kubectl.run(&["delete", "deployment", "x"]).await;
    kubectl.run(&["create", "namespace", "left"]).await;
    kubectl.run(&["delete", "ns", "left", "--wait=false"]).await;
    // Each controller has a work queue with metrics; here there are none.
    let usual = Server::start(&[]).await;
    let queues = async |server: &Server| {
        let kubectl = Kubectl::new(&server.kubeconfig());
        let metrics = kubectl.run(&["get", "--raw", "/metrics"]).await;
        metrics.matches("\nworkqueue_depth{").count()
    };
    assert!(queues(&usual).await > 0);
    usual.stop().await;
    assert_eq!(queues(&server).await, 0);
    assert_eq!(left(&kubectl, "x").await.len(), 3);
    let phase = ["get", "ns", "left", "-o", "jsonpath={.status.phase}"];
    assert_eq!(kubectl.run(&phase).await, "Terminating");
    server.stop().await;
}

async fn job(kubectl: &Kubectl, name: &str) {
    let mut template = template(name);
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": template}});
    let job = create(kubectl, &job).await;
    let mut pod = template.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["ownerReferences"] = owned_by(&job);
    create(kubectl, &pod).await;
}

async fn jobs_are_deleted_with_orphan_policy_by_default(server: &Server, kubectl: &Kubectl) {
    for name in ["silent", "background"] {
        job(kubectl, name).await;
    }
    let mut wire = server.plain(crate::harness::Protocol::Http1).await;
    let path = "/apis/batch/v1/namespaces/default/jobs/silent";
    let answer = wire.send(http::Method::DELETE, path, &[], "").await;
    assert_eq!(answer.status, 200);
    let warning = answer.headers["warning"].to_str().expect("text");
    let expected = "child pods are preserved by default when jobs are deleted";
    assert!(warning.contains(expected), "{warning}");
    kubectl.run(&["delete", "job", "background"]).await;
    until("the pod of the other job", async || {
        left(kubectl, "background").await.is_empty()
    })
    .await;
    until("the end of the first job", async || {
        let args = ["get", "job", "-o", "name"];
        kubectl.run(&args).await.is_empty()
    })
    .await;
    let pod = kubectl.run(&["get", "pod", "silent", "-o", "json"]).await;
    let pod: Value = serde_json::from_str(&pod).expect("JSON");
    let owners = &pod["metadata"]["ownerReferences"];
    assert!(owners.as_array().is_none_or(Vec::is_empty), "{owners}");
}

async fn each_namespace_gets_its_default_objects(_: &Server, kubectl: &Kubectl) {
    kubectl.run(&["create", "namespace", "team"]).await;
    until("the service account", async || {
        let args = ["get", "sa", "-n", "team", "-o", "name"];
        kubectl.run(&args).await == "serviceaccount/default\n"
    })
    .await;
}

/// Pods verify the server with it.
#[tokio::test]
async fn the_root_certificate_is_published() {
    let server = Server::start(&["--controllers=*"]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let certificate = [
        "get",
        "cm",
        "kube-root-ca.crt",
        "-o",
        "jsonpath={.data.ca\\.crt}",
        "--ignore-not-found",
    ];
    until("the certificate", async || {
        let published = kubectl.run(&certificate).await;
        published.starts_with("-----BEGIN CERTIFICATE-----")
    })
    .await;
    let published = kubectl.run(&certificate).await;
    let ca = std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).expect("the CA");
    assert_eq!(published.trim(), ca.trim());
    server.stop().await;
}

/// As with an operator: its resource owns other objects and objects of its own kind.
async fn custom_resources_own_and_are_owned(_: &Server, kubectl: &Kubectl) {
    let schema = json!({"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    create(kubectl, &definition).await;
    let wait = [
        "wait",
        "--for=condition=Established",
        "crd/widgets.example.com",
    ];
    kubectl.run(&wait).await;
    let widget = |name: &str, owners: Value| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": name, "ownerReferences": owners}})
    };
    let map = |name: &str, owners: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": owners}})
    };
    let root = create(kubectl, &widget("root", json!([]))).await;
    let child = create(kubectl, &widget("child", owned_by(&root))).await;
    create(kubectl, &map("of-child", owned_by(&child))).await;
    let args = ["get", "widgets,configmaps", "-o", "name"];
    assert_eq!(kubectl.run(&args).await.lines().count(), 3);
    kubectl
        .run(&["delete", "widget", "root", "--cascade=foreground"])
        .await;
    assert_eq!(kubectl.run(&args).await, "");

    let other = create(kubectl, &widget("other", json!([]))).await;
    create(kubectl, &map("of-other", owned_by(&other))).await;
    kubectl.run(&["delete", "crd", "widgets.example.com"]).await;
    until("what an object of a gone kind owned", async || {
        kubectl
            .run(&["get", "configmaps", "-o", "name"])
            .await
            .is_empty()
    })
    .await;
}

/// A claim remains while a pod uses it, and a volume while its claim exists.
async fn volume_claims_in_use_are_protected(_: &Server, kubectl: &Kubectl) {
    let finalizers = async |what: &str| {
        let args = ["get", what, "-o", "jsonpath={.metadata.finalizers}"];
        kubectl.run(&args).await
    };
    let claim = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user"}});
    pod["spec"] = template("user")["spec"].clone();
    pod["spec"]["nodeName"] = json!("somewhere");
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]);
    for name in ["used", "unused"] {
        create(kubectl, &claim(name)).await;
        let received = finalizers(&format!("pvc/{name}")).await;
        assert_eq!(received, r#"["kubernetes.io/pvc-protection"]"#);
    }
    create(kubectl, &pod).await;
    kubectl
        .run(&["delete", "pvc", "used", "--wait=false"])
        .await;
    // The controller is running: it deletes the unused claim immediately.
    kubectl.run(&["delete", "pvc", "unused"]).await;
    let claims = ["get", "pvc", "-o", "name"];
    assert_eq!(kubectl.run(&claims).await, "persistentvolumeclaim/used\n");
    kubectl.run(&["delete", "pod", "user", "--force"]).await;
    kubectl
        .run(&["wait", "--for=delete", "pvc/used", "--timeout=30s"])
        .await;

    let volume = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/tmp/pv"}}})
    };
    create(kubectl, &volume("pv")).await;
    create(kubectl, &volume("unused")).await;
    assert_eq!(
        finalizers("pv/pv").await,
        r#"["kubernetes.io/pv-protection"]"#
    );
    let phase = async |phase: &str| {
        let patch = json!({"status": {"phase": phase}}).to_string();
        let args = [
            "patch",
            "pv",
            "pv",
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        kubectl.run(&args).await
    };
    phase("Bound").await;
    kubectl.run(&["delete", "pv", "pv", "--wait=false"]).await;
    // After this deletion the controller has examined the first volume too.
    kubectl.run(&["delete", "pv", "unused"]).await;
    assert_eq!(
        finalizers("pv/pv").await,
        r#"["kubernetes.io/pv-protection"]"#
    );
    phase("Released").await;
    kubectl
        .run(&["wait", "--for=delete", "pv/pv", "--timeout=30s"])
        .await;
    // The controller restores the finalizer if a client removes it from a claim that is not being deleted.
    create(kubectl, &claim("bare")).await;
    let bare = r#"{"metadata":{"finalizers":null}}"#;
    kubectl
        .run(&["patch", "pvc", "bare", "--type=merge", "-p", bare])
        .await;
    until("the finalizer", async || {
        finalizers("pvc/bare").await == r#"["kubernetes.io/pvc-protection"]"#
    })
    .await;
}

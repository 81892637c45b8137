//! Tests of the subresources of pods: bindings, evictions, ephemeral containers, and the resize of running containers.

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, EvictParams};
use serde_json::{Value, json};

use super::{Cluster, pod};
use crate::harness::Protocol;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn binding(pod: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod, "annotations": {"by": "me"}, "labels": {"zone": "a"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    })
}

fn eviction(pod: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}})
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

pub(super) async fn bindings_assign_pods_to_nodes(cluster: &Cluster) {
    cluster.create(&pod("p")).await;
    let path = format!("{PODS}/p/binding");
    let response = cluster.post(&path, &binding("p", "n1")).await;
    assert_eq!(
        (&response["kind"], &response["status"]),
        (&json!("Status"), &json!("Success"))
    );
    let now = cluster.get(&["pod", "p"]).await;
    assert_eq!(now["spec"]["nodeName"], "n1");
    assert_eq!(now["metadata"]["annotations"]["by"], "me");
    assert_eq!(
        now["metadata"]["labels"],
        json!({"app": "web", "zone": "a"})
    );
    let conditions = now["status"]["conditions"].as_array().expect("conditions");
    let scheduled = conditions.iter().find(|c| c["type"] == "PodScheduled");
    assert_eq!(scheduled.expect("it is scheduled")["status"], "True");
    let selected = cluster
        .get(&["pods", "--field-selector=spec.nodeName=n1"])
        .await;
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(1));

    let message = cluster.refused(&path, &binding("p", "n2")).await;
    let expect = "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to \
                  node \"n1\"";
    assert!(message.contains(expect), "{message}");
    let message = cluster.refused(&path, &binding("q", "n2")).await;
    assert!(
        message.contains("name in URL does not match name in Binding object"),
        "{message}"
    );
    let message = cluster
        .refused(&format!("{PODS}/q/binding"), &binding("q", "n1"))
        .await;
    assert!(message.contains("pods \"q\" not found"), "{message}");

    cluster.create(&pod("q")).await;
    let bindings = "/api/v1/namespaces/default/bindings";
    let dry = format!("{bindings}?dryRun=All");
    cluster.post(&dry, &binding("q", "n1")).await;
    assert!(cluster.get(&["pod", "q"]).await["spec"]["nodeName"].is_null());
    cluster.post(bindings, &binding("q", "n1")).await;
    assert_eq!(cluster.get(&["pod", "q"]).await["spec"]["nodeName"], "n1");
    let mut gone = binding("q", "n1");
    gone["metadata"]["uid"] = "another".into();
    let message = cluster.refused(bindings, &gone).await;
    assert!(
        message.contains("UID in precondition: another"),
        "{message}"
    );
}

/// Creates a pod that is ready on a node.
async fn running(cluster: &Cluster, name: &str) {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = "n".into();
    pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
    cluster.create(&pod).await;
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let status = json!({"phase": "Running", "conditions": ready});
    cluster.report("pod", name, &status).await;
}

async fn budget(cluster: &Cluster, name: &str, allowed: i64) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    cluster.create(&budget).await;
    let status = json!({
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2,
    });
    cluster.report("pdb", name, &status).await;
}

pub(super) async fn evictions_respect_disruption_budgets(cluster: &Cluster) {
    for name in ["a", "b", "c"] {
        running(cluster, name).await;
    }
    budget(cluster, "web", 1).await;
    let path = |pod: &str| format!("{PODS}/{pod}/eviction");
    let dry = format!("{}?dryRun=All", path("a"));
    cluster.post(&dry, &eviction("a")).await;
    assert_eq!(
        cluster.get(&["pdb", "web"]).await["status"]["disruptionsAllowed"],
        1
    );
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await);
    let evicted = pods.evict("a", &EvictParams::default()).await;
    assert!(evicted.is_ok_and(|status| status.is_success()));
    let output = cluster.kubectl.run_failing(&["get", "pod", "a"]).await;
    assert!(output.contains("not found"), "{output}");
    let status = &cluster.get(&["pdb", "web"]).await["status"];
    assert_eq!(status["disruptionsAllowed"], 0);
    assert!(status["disruptedPods"]["a"].is_string(), "{status}");
    assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");

    let mut wire = cluster.server.admin(Protocol::Http2).await;
    let json = [("content-type", "application/json")];
    let body = eviction("b").to_string();
    let answer = wire.send(Method::POST, &path("b"), &json, &body).await;
    assert_eq!(answer.status, 429, "{:?}", answer.body);
    let status = answer.json();
    assert_eq!(status["reason"], "TooManyRequests");
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["reason"], "DisruptionBudget");
    let why = "The disruption budget web needs 1 healthy pods and has 2 currently";
    assert_eq!(cause["message"], why);

    let two = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "two"},
        "spec": {"minAvailable": 1, "selector": {}},
    });
    cluster.create(&two).await;
    let answer = wire.send(Method::POST, &path("b"), &json, &body).await;
    assert_eq!(answer.status, 500);
    let message = answer.json()["message"].clone();
    assert!(
        message
            .as_str()
            .is_some_and(|message| message.contains("more than one PodDisruptionBudget"))
    );
    cluster.kubectl.run(&["delete", "pdb", "two"]).await;

    // A finished or pending pod is not counted by a budget.
    cluster
        .report("pod", "b", &json!({"phase": "Failed"}))
        .await;
    cluster.post(&path("b"), &eviction("b")).await;
    cluster
        .report("pod", "c", &json!({"phase": "Pending"}))
        .await;
    cluster.post(&path("c"), &eviction("c")).await;
    let message = cluster.refused(&path("d"), &eviction("d")).await;
    assert!(message.contains("pods \"d\" not found"), "{message}");
}

pub(super) async fn kubectl_drains(cluster: &Cluster) {
    for name in ["n", "m"] {
        cluster.create(&node(name)).await;
    }
    for name in ["a", "b"] {
        running(cluster, name).await;
    }
    budget(cluster, "web", 2).await;
    let args = ["drain", "n", "--dry-run=none", "--force", "--timeout=20s"];
    let output = cluster.kubectl.run(&args).await;
    assert!(output.contains("node/n drained"), "{output}");
    let pods = cluster.get(&["pods"]).await;
    assert_eq!(pods["items"], json!([]));
    let now = cluster.get(&["node", "n"]).await;
    assert_eq!(now["spec"]["unschedulable"], true);
    assert_eq!(
        cluster.get(&["pdb", "web"]).await["status"]["disruptionsAllowed"],
        0
    );

    running(cluster, "c").await;
    let args = ["drain", "n", "--force", "--timeout=1s"];
    let output = cluster.kubectl.run_failing(&args).await;
    assert!(
        output.contains("it would violate the pod's disruption budget"),
        "{output}"
    );
}

pub(super) async fn containers_are_added_and_resized(cluster: &Cluster) {
    let kubectl = &cluster.kubectl;
    let mut first = pod("p");
    first["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    cluster.create(&first).await;
    kubectl
        .run(&[
            "debug",
            "p",
            "--image=busybox",
            "--container=look",
            "--attach=false",
        ])
        .await;
    let now = cluster.get(&["pod", "p"]).await;
    let added = &now["spec"]["ephemeralContainers"];
    assert_eq!(added.as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&added[0]["name"], &added[0]["image"]),
        (&json!("look"), &json!("busybox"))
    );
    let remove = r#"[{"op":"remove","path":"/spec/ephemeralContainers/0"}]"#;
    let args = [
        "patch",
        "pod",
        "p",
        "--subresource=ephemeralcontainers",
        "--type=json",
        "-p",
        remove,
    ];
    let output = kubectl.run_failing(&args).await;
    assert!(
        output.contains("existing ephemeral containers \"look\" may not be removed"),
        "{output}"
    );

    let resources = |requests: Value| {
        let container = json!({"name": "c", "resources": {"requests": requests}});
        json!({"spec": {"containers": [container]}}).to_string()
    };
    let patch = resources(json!({"cpu": "250m"}));
    kubectl
        .run(&["patch", "pod", "p", "--subresource=resize", "-p", &patch])
        .await;
    let now = cluster.get(&["pod", "p"]).await;
    assert_eq!(
        now["spec"]["containers"][0]["resources"]["requests"]["cpu"],
        "250m"
    );
    assert_eq!(now["metadata"]["generation"], 3);
    let patch = resources(json!({"nvidia.com/gpu": "1"}));
    let output = kubectl
        .run_failing(&["patch", "pod", "p", "--subresource=resize", "-p", &patch])
        .await;
    assert!(
        output.contains("only cpu and memory resources are mutable"),
        "{output}"
    );
    let patch = resources(json!({"cpu": "-1"}));
    let output = kubectl
        .run_failing(&["patch", "pod", "p", "--subresource=resize", "-p", &patch])
        .await;
    assert!(
        output.contains("must be greater than or equal to 0"),
        "{output}"
    );
    let probed = json!({"name": "A B", "image": "i", "livenessProbe": {"exec": {}}});
    let patch = json!({"spec": {"ephemeralContainers": [probed]}}).to_string();
    let part = "--subresource=ephemeralcontainers";
    let output = kubectl
        .run_failing(&["patch", "pod", "p", part, "-p", &patch])
        .await;
    assert!(output.contains("a lowercase RFC 1123 label"), "{output}");
    assert!(
        output.contains("livenessProbe: Forbidden: cannot be set for an Ephemeral Container"),
        "{output}"
    );
}

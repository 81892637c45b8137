//! Tests of ResourceQuota, LimitRanger and PodSecurity with kubectl and the real program on both back ends.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Kubectl, PATIENCE, Server, on_both};

on_both!(|server| (server, &Kubectl::new(&server.kubeconfig())) => [
    quotas_are_charged_and_released,
    concurrent_creates_never_exceed_a_quota,
    limit_ranges_set_defaults_and_bounds,
    namespaces_enforce_a_level_of_pod_security,
]);

async fn create(kubectl: &Kubectl, object: &Value) {
    kubectl
        .run_with(&["create", "-f", "-"], &object.to_string())
        .await;
}

async fn refused(kubectl: &Kubectl, object: &Value) -> String {
    let args = ["create", "-f", "-"];
    kubectl.run_failing_with(&args, &object.to_string()).await
}

fn quota(name: &str, hard: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name},
        "spec": {"hard": hard}})
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}},
    ]}})
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

async fn used(kubectl: &Kubectl, name: &str) -> Value {
    let args = ["get", "quota", name, "-o", "jsonpath={.status.used}"];
    let used = kubectl.run(&args).await;
    serde_json::from_str(&used).unwrap_or_default()
}

/// Waits until the usage of a quota is `expected`.
async fn until_used(kubectl: &Kubectl, name: &str, expected: Value) {
    let started = Instant::now();
    loop {
        let found = used(kubectl, name).await;
        if found == expected {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{found}, not {expected}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn quotas_are_charged_and_released(_: &Server, kubectl: &Kubectl) {
    create(kubectl, &pod("before", "250m")).await;
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    create(kubectl, &crd).await;
    kubectl
        .run(&[
            "wait",
            "--for=condition=Established",
            "crd/widgets.example.com",
        ])
        .await;
    let hard = json!({"pods": "2", "requests.cpu": "1", "count/widgets.example.com": "1"});
    create(kubectl, &quota("q", &hard)).await;
    let begun = json!({"pods": "1", "requests.cpu": "250m", "count/widgets.example.com": "0"});
    until_used(kubectl, "q", begun).await;

    let error = refused(kubectl, &pod("large", "800m")).await;
    let expected = "pods \"large\" is forbidden: exceeded quota: q, requested: requests.cpu=800m, used: \
                    requests.cpu=250m, limited: requests.cpu=1";
    assert!(error.contains(expected), "{error}");
    let bare = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let error = refused(kubectl, &bare).await;
    assert!(
        error.contains("failed quota: q: must specify requests.cpu for: c"),
        "{error}"
    );
    let dry_run = ["create", "--dry-run=server", "-f", "-"];
    kubectl
        .run_with(&dry_run, &pod("dry", "500m").to_string())
        .await;
    create(kubectl, &pod("second", "750m")).await;
    let widget = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    create(kubectl, &widget("one")).await;
    let full = json!({"pods": "2", "requests.cpu": "1", "count/widgets.example.com": "1"});
    assert_eq!(used(kubectl, "q").await, full);
    let error = refused(kubectl, &widget("two")).await;
    assert!(
        error.contains("exceeded quota: q, requested: count/widgets.example.com=1"),
        "{error}"
    );

    kubectl.run(&["delete", "pod", "second", "--force"]).await;
    kubectl.run(&["delete", "widget", "one"]).await;
    let freed = json!({"pods": "1", "requests.cpu": "250m", "count/widgets.example.com": "0"});
    until_used(kubectl, "q", freed).await;
    let ended = json!({"status": {"phase": "Succeeded"}}).to_string();
    let args = [
        "patch",
        "pod",
        "before",
        "--subresource=status",
        "--type=merge",
        "-p",
        &ended,
    ];
    kubectl.run(&args).await;
    let ended = json!({"pods": "0", "requests.cpu": "0", "count/widgets.example.com": "0"});
    until_used(kubectl, "q", ended).await;
}

async fn concurrent_creates_never_exceed_a_quota(server: &Server, kubectl: &Kubectl) {
    create(kubectl, &quota("q", &json!({"count/configmaps": "5"}))).await;
    until_used(kubectl, "q", json!({"count/configmaps": "0"})).await;
    let config = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let creates = (0..40).map(|n| {
        let maps = maps.clone();
        async move {
            let map: ConfigMap = serde_json::from_value(config_map(&format!("m{n}"))).unwrap();
            maps.create(&PostParams::default(), &map).await.is_ok()
        }
    });
    let created = futures_util::future::join_all(creates).await;
    assert_eq!(
        created.iter().filter(|created| **created).count(),
        5,
        "{created:?}"
    );
    assert_eq!(used(kubectl, "q").await, json!({"count/configmaps": "5"}));
}

async fn limit_ranges_set_defaults_and_bounds(_: &Server, kubectl: &Kubectl) {
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"},
        "spec": {"limits": [
            {"type": "Container", "default": {"cpu": "500m"}, "max": {"cpu": "1"}},
            {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
        ]},
    });
    create(kubectl, &range).await;
    let bare = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(kubectl, &bare).await;
    let path = "jsonpath={.spec.containers[0].resources}{.metadata.annotations}";
    let shown = kubectl.run(&["get", "pod", "bare", "-o", path]).await;
    assert_eq!(
        shown,
        concat!(
            r#"{"limits":{"cpu":"500m"},"requests":{"cpu":"500m"}}"#,
            r#"{"kubernetes.io/limit-ranger":"LimitRanger plugin set: cpu request for container c; "#,
            r#"cpu limit for container c"}"#
        )
    );
    let error = refused(kubectl, &pod("large", "2")).await;
    let expected =
        "pods \"large\" is forbidden: maximum cpu usage per Container is 1, but limit is 2";
    assert!(error.contains(expected), "{error}");
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
    let error = refused(kubectl, &claim).await;
    let expected = "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi";
    assert!(error.contains(expected), "{error}");
}

async fn namespaces_enforce_a_level_of_pod_security(_: &Server, kubectl: &Kubectl) {
    let mut host = pod("host", "1");
    host["spec"]["hostNetwork"] = json!(true);
    create(kubectl, &host).await;
    // kubectl reports the warning as an error, after the write.
    let strict = "pod-security.kubernetes.io/enforce=baseline";
    let label = ["label", "--warnings-as-errors", "ns", "default", strict];
    let error = kubectl.run_failing(&label).await;
    let expected = "existing pods in namespace \"default\" violate the new PodSecurity enforce level \
                    \"baseline:latest\"";
    assert!(error.contains(expected), "{error}");
    assert!(error.contains("host: host namespaces"), "{error}");
    let mut second = host.clone();
    second["metadata"]["name"] = json!("second");
    // PodSecurity reads the namespace from the watch cache, which may not have the label yet.
    let dry_run = ["create", "--dry-run=server", "-f", "-"];
    let started = Instant::now();
    while kubectl
        .try_with(&dry_run, &second.to_string())
        .await
        .is_ok()
    {
        assert!(started.elapsed() < PATIENCE, "the level is not enforced");
    }
    let error = refused(kubectl, &second).await;
    let expected = "pods \"second\" is forbidden: violates PodSecurity \"baseline:latest\": host \
                    namespaces (hostNetwork=true)";
    assert!(error.contains(expected), "{error}");
    let wrong = [
        "label",
        "ns",
        "default",
        "pod-security.kubernetes.io/warn=most",
    ];
    let error = kubectl.run_failing(&wrong).await;
    assert!(
        error.contains("must be one of privileged, baseline, restricted"),
        "{error}"
    );
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": host["spec"]}}});
    let args = ["create", "--warnings-as-errors", "-f", "-"];
    let error = kubectl
        .run_failing_with(&args, &deployment.to_string())
        .await;
    let expected =
        "would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    assert!(error.contains(expected), "{error}");
    kubectl.run(&["get", "deployment", "d"]).await;
}

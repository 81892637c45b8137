//! Tests of mutating webhooks: their patches, their order, reinvocation, and invalid patches.

use kube::api::PostParams;
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::cluster::{Cluster, MAPS, allow, change, hook, map, pod, requests, rule};
use crate::harness::{Webhook, WebhookRequest, on_both};

on_both!(|server| (&Cluster(server)) => [
    patches_are_applied_in_order_and_defaulted,
    a_webhook_is_reinvoked_after_changes_of_later_webhooks,
    updates_and_subresources_are_mutated,
    a_scale_changed_by_a_webhook_has_its_field_manager,
    create_in_a_missing_namespace_calls_no_webhook,
    a_patch_that_breaks_the_object_is_an_error,
    invalid_managed_fields_of_a_webhook_are_dropped,
    a_dry_run_returns_the_object_without_storing_it,
    webhook_can_set_the_name,
    kube_rs_receives_the_mutated_object,
]);

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Appends the last segment of its path to the label `seen`.
fn label(call: &WebhookRequest) -> Value {
    let path = call.path.split('?').next().unwrap_or_default();
    let metadata = &call.body["request"]["object"]["metadata"];
    let seen = metadata["labels"]["seen"].as_str().unwrap_or_default();
    let seen = format!("{seen}{}", path.trim_start_matches('/'));
    match metadata["labels"].is_object() {
        true => json!([{"op": "add", "path": "/metadata/labels/seen", "value": seen}]),
        false => json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": seen}}]),
    }
}

fn labelling(call: &WebhookRequest) -> crate::harness::Reply {
    change(call, &label(call))
}

async fn patches_are_applied_in_order_and_defaulted(cluster: &Cluster<'_>) {
    let sidecar = |call: &WebhookRequest| {
        let container = json!({"name": "side", "image": "side:1"});
        json!([
            {"op": "add", "path": "/spec/containers/-", "value": container},
            {"op": "test", "path": "/kind", "value": "Pod"},
        ])
        .as_array()
        .filter(|_| call.body["request"]["kind"]["kind"] == "Pod")
        .map_or(json!([]), |ops| json!(ops))
    };
    let webhook = Webhook::answering(move |call| match &*call.path {
        path if path.starts_with("/sidecar") => change(call, &sidecar(call)),
        _ => labelling(call),
    })
    .await;
    let rules = json!({"rules": [rule(&["CREATE"], "", "pods")]});
    let hooks = ["/sidecar", "/b"].map(|path| hook(&webhook, path, rules.clone()));
    cluster.configure("Mutating", "second", &hooks).await;
    let hooks = [hook(&webhook, "/a", rules.clone())];
    cluster.configure("Mutating", "first", &hooks).await;
    let made = cluster.post(PODS, &pod("one")).await.ok(201);
    assert_eq!(
        made["metadata"]["labels"]["seen"], "ab",
        "by the configurations' names"
    );
    let side = &made["spec"]["containers"][1];
    assert_eq!(side["name"], "side");
    assert_eq!(side["imagePullPolicy"], "IfNotPresent", "defaulted: {side}");
    let seen = &requests(&webhook, "/b")[0]["object"]["spec"]["containers"][1];
    assert_eq!(
        seen["imagePullPolicy"], "IfNotPresent",
        "the next one sees the defaults: {seen}"
    );
    let stored = cluster.get(&format!("{PODS}/one")).await.ok(200);
    assert_eq!(stored, made);
}

async fn a_webhook_is_reinvoked_after_changes_of_later_webhooks(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(labelling).await;
    let hooks = [
        hook(&webhook, "/a", json!({"reinvocationPolicy": "IfNeeded"})),
        hook(&webhook, "/b", json!({"reinvocationPolicy": "Never"})),
        hook(&webhook, "/c", json!({"reinvocationPolicy": "IfNeeded"})),
    ];
    cluster.configure("Mutating", "m", &hooks).await;
    let made = cluster.make("one").await.ok(201);
    assert_eq!(
        made["metadata"]["labels"]["seen"], "abcac",
        "the second round: a for the changes of b and c, then c for that of a"
    );
}

async fn updates_and_subresources_are_mutated(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(labelling).await;
    let rules = json!({"rules": [rule(&["UPDATE"], "", "pods")]});
    let of_status = json!({"rules": [rule(&["UPDATE"], "", "pods/status")]});
    let hooks = [
        hook(&webhook, "/whole", rules),
        hook(&webhook, "/status", of_status),
    ];
    cluster.configure("Mutating", "m", &hooks).await;
    cluster.post(PODS, &pod("one")).await.ok(201);
    let path = format!("{PODS}/one");
    let labels = json!({"metadata": {"labels": {"mine": "1"}}});
    let changed = cluster.patch(&path, &labels).await.ok(200);
    assert_eq!(
        changed["metadata"]["labels"],
        json!({"mine": "1", "seen": "whole"})
    );
    let status = json!({"status": {"phase": "Running"}});
    let changed = cluster
        .patch(&format!("{path}/status"), &status)
        .await
        .ok(200);
    assert_eq!(changed["status"]["phase"], "Running");
    let calls = requests(&webhook, "/status");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["subResource"], "status");
    assert_eq!(calls[0]["requestSubResource"], "status");
    assert_eq!(requests(&webhook, "/whole").len(), 1);
}

/// After a webhook changed the replicas in a scale, the field still belonged to its previous manager, which could
/// change it back without a conflict.
async fn a_scale_changed_by_a_webhook_has_its_field_manager(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| {
        change(
            call,
            &json!([{"op": "replace", "path": "/spec/replicas", "value": 7}]),
        )
    })
    .await;
    let rules = json!({"rules": [rule(&["UPDATE"], "apps", "deployments/scale")]});
    let hooks = [hook(&webhook, "/scale", rules)];
    cluster.configure("Mutating", "m", &hooks).await;
    let labels = json!({"app": "d"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let by_owner = format!("{deployments}?fieldManager=owner");
    cluster.post(&by_owner, &deployment).await.ok(201);
    let path = format!("{deployments}/d/scale?fieldManager=scaler");
    let scale = json!({"spec": {"replicas": 3}});
    let scaled = cluster.patch(&path, &scale).await.ok(200);
    assert_eq!(scaled["spec"]["replicas"], 7);
    let stored = cluster.get(&format!("{deployments}/d")).await.ok(200);
    assert_eq!(stored["spec"]["replicas"], 7);
    let entries = stored["metadata"]["managedFields"].as_array();
    let has = |entry: &&Value| entry["fieldsV1"]["f:spec"]["f:replicas"].is_object();
    let managers: Vec<&Value> = entries
        .expect("a list")
        .iter()
        .filter(has)
        .map(|entry| &entry["manager"])
        .collect();
    assert_eq!(managers, ["scaler"], "{stored}");
}

/// As upstream, the server checks the namespace before it calls webhooks.
async fn create_in_a_missing_namespace_calls_no_webhook(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(labelling).await;
    let rules = json!({"rules": [rule(&["CREATE"], "", "pods")]});
    let hooks = [hook(&webhook, "/pods", rules)];
    cluster.configure("Mutating", "m", &hooks).await;
    let mut unknown = pod("one");
    unknown["spec"]["priorityClassName"] = "unknown-class".into();
    let response = cluster
        .post("/api/v1/namespaces/nowhere/pods", &unknown)
        .await;
    response.refused(404, "NotFound", "namespaces \"nowhere\" not found");
    assert_eq!(requests(&webhook, "/pods").len(), 0);
    let response = cluster.post(PODS, &unknown).await;
    response.refused(403, "Forbidden", "unknown-class");
}

async fn a_patch_that_breaks_the_object_is_an_error(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| match &*call.path {
        path if path.starts_with("/type") => change(
            call,
            &json!([{"op": "replace", "path": "/spec/containers", "value": "none"}]),
        ),
        path if path.starts_with("/kind") => change(
            call,
            &json!([{"op": "replace", "path": "/kind", "value": "Node"}]),
        ),
        path if path.starts_with("/path") => {
            change(call, &json!([{"op": "remove", "path": "/spec/nothing"}]))
        }
        path if path.starts_with("/delete") => {
            change(call, &json!([{"op": "add", "path": "/a", "value": 1}]))
        }
        _ => allow(call),
    })
    .await;
    let of = |path: &str| {
        let name = path.trim_start_matches('/');
        let more = json!({
            "rules": [rule(&["CREATE"], "", "pods")],
            "failurePolicy": "Ignore",
            "matchConditions": [
                {"name": "n", "expression": format!("object.metadata.name == '{name}'")},
            ],
        });
        hook(&webhook, path, more)
    };
    let of_delete = json!({"rules": [rule(&["DELETE"], "", "pods")], "failurePolicy": "Ignore"});
    let hooks = [
        of("/type"),
        of("/kind"),
        of("/path"),
        hook(&webhook, "/delete", of_delete),
    ];
    cluster.configure("Mutating", "m", &hooks).await;
    for (name, words) in [
        (
            "type",
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers",
        ),
        ("kind", "Node"),
        ("path", "/spec/nothing"),
    ] {
        let response = cluster.post(PODS, &pod(name)).await;
        // An invalid response is an error even if the failure policy is Ignore.
        response.refused(500, "InternalError", words);
    }
    cluster.post(PODS, &pod("one")).await.ok(201);
    let response = cluster.delete(&format!("{PODS}/one")).await;
    let words = "admission webhook \"delete.example.com\" attempted to modify the object, which is \
                 not supported for this operation";
    response.refused(500, "InternalError", words);
}

async fn a_dry_run_returns_the_object_without_storing_it(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(labelling).await;
    cluster
        .configure("Mutating", "m", &[hook(&webhook, "/a", json!({}))])
        .await;
    let shown = cluster
        .post(&format!("{MAPS}?dryRun=All"), &map("one"))
        .await
        .ok(201);
    assert_eq!(shown["metadata"]["labels"]["seen"], "a");
    cluster.get(&format!("{MAPS}/one")).await.ok(404);
}

/// An object with only a generateName has no name in the AdmissionReview, and a webhook can set one.
async fn webhook_can_set_the_name(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| match call.path.starts_with("/name") {
        true if call.body["request"]["object"]["metadata"]["name"].is_null() => change(
            call,
            &json!([{"op": "add", "path": "/metadata/name", "value": "given"}]),
        ),
        _ => allow(call),
    })
    .await;
    cluster
        .configure("Mutating", "m", &[hook(&webhook, "/name", json!({}))])
        .await;
    let nameless = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"},
    });
    let made = cluster.post(MAPS, &nameless).await.ok(201);
    assert_eq!(made["metadata"]["name"], "given");
    cluster.get(&format!("{MAPS}/given")).await.ok(200);
}

async fn kube_rs_receives_the_mutated_object(cluster: &Cluster<'_>) {
    use k8s_openapi::api::core::v1::ConfigMap;
    let webhook = Webhook::answering(labelling).await;
    cluster
        .configure("Mutating", "m", &[hook(&webhook, "/a", json!({}))])
        .await;
    let kubeconfig = kube::config::Kubeconfig::read_from(cluster.0.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let one: ConfigMap = serde_json::from_value(map("one")).unwrap();
    let made = maps.create(&PostParams::default(), &one).await.unwrap();
    assert_eq!(made.metadata.labels.unwrap()["seen"], "a");
}

/// The server sets managedFields: if a webhook writes invalid ones, the client gets a warning and the webhook's other changes are applied.
async fn invalid_managed_fields_of_a_webhook_are_dropped(cluster: &Cluster<'_>) {
    let spoil = json!([
        {"op": "replace", "path": "/metadata/managedFields/0/operation", "value": "Guess"},
        {"op": "add", "path": "/data/added", "value": "yes"},
    ]);
    let webhook = Webhook::answering(move |call| change(call, &spoil)).await;
    let rules = json!({"rules": [rule(&["CREATE"], "", "configmaps")]});
    let hooks = [hook(&webhook, "/spoil", rules)];
    cluster.configure("Mutating", "spoils", &hooks).await;
    let response = cluster.make("m").await;
    let made = response.ok(201);
    assert_eq!(made["data"]["added"], "yes");
    assert_eq!(made["metadata"]["managedFields"][0]["operation"], "Update");
    let warnings = response.warnings();
    let about = |w: &&String| w.contains("managedFields was in an invalid state after admission");
    assert_eq!(warnings.iter().filter(about).count(), 1, "{warnings:?}");
}

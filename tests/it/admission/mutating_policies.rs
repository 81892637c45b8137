//! Tests of MutatingAdmissionPolicies and their bindings: the mutated objects.

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cluster::{
    Cluster, MAPS, REGISTRATION, Response, change, hook, map, pod, requests, rule,
};
use crate::harness::{Kubectl, PATIENCE, Webhook, on_both};

on_both!(|server| (&Cluster(server)) => [
    a_sidecar_is_injected_by_an_apply_configuration,
    a_label_is_added_by_a_json_patch,
    mutations_are_evaluated_in_order_with_params_and_variables,
    conditions_and_bindings_restrict_mutations,
    custom_resources_are_merged_by_their_schemas,
    policy_receives_the_version_that_it_matches,
    policies_and_webhooks_run_again_after_later_changes,
    plugins_run_again_after_a_policy,
    dry_runs_subresources_and_deletions,
    kubectl_applies_and_shows_policies,
]);

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Returns a policy for creates and updates of config maps with one mutation per item of `mutations`: a JSON patch if
/// the item is a list, else an apply configuration.
pub(super) fn policy(name: &str, mutations: &[&str], spec: Value) -> Value {
    let mutation = |text: &&str| match text.starts_with('[') {
        true => json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}}),
        false => json!({
            "patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text},
        }),
    };
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule(&["CREATE", "UPDATE"], "", "configmaps")]},
            "mutations": mutations.iter().map(mutation).collect::<Vec<_>>(),
            "reinvocationPolicy": "Never",
        },
    });
    for (key, value) in spec.as_object().expect("members") {
        policy["spec"][key] = value.clone();
    }
    policy
}

pub(super) fn about(rule: Value) -> Value {
    json!({"matchConstraints": {"resourceRules": [rule]}})
}

pub(super) fn binding(name: &str, policy: &str, spec: Value) -> Value {
    let mut binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": policy},
    });
    for (key, value) in spec.as_object().expect("members") {
        binding["spec"][key] = value.clone();
    }
    binding
}

pub(super) const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";

/// Stores a policy and its binding of the same name, which are in effect for the next write.
pub(super) async fn bind(cluster: &Cluster<'_>, policy: &Value) {
    let name = policy["metadata"]["name"].as_str().expect("a name");
    bind_with(cluster, policy, &[binding(name, name, json!({}))]).await;
}

async fn bind_with(cluster: &Cluster<'_>, policy: &Value, bindings: &[Value]) {
    cluster.post(POLICIES, policy).await.ok(201);
    for binding in bindings {
        let path = format!("{REGISTRATION}/mutatingadmissionpolicybindings");
        cluster.post(&path, binding).await.ok(201);
    }
}

pub(super) async fn make(cluster: &Cluster<'_>, name: &str, data: Value) -> Response {
    let mut map = map(name);
    map["data"] = data;
    cluster.post(MAPS, &map).await
}

async fn a_sidecar_is_injected_by_an_apply_configuration(cluster: &Cluster<'_>) {
    let inject = "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{\
                  name: 'mesh-proxy', image: 'mesh/proxy:v1', restartPolicy: 'Always'}]}}";
    let mut spec = about(rule(&["CREATE"], "", "pods"));
    spec["matchConditions"] = json!([{
        "name": "not-injected",
        "expression": "!object.spec.?initContainers.orValue([]).exists(c, c.name == 'mesh-proxy')",
    }]);
    spec["reinvocationPolicy"] = "IfNeeded".into();
    bind(cluster, &policy("sidecar", &[inject], spec)).await;
    let made = cluster.post(PODS, &pod("one")).await.ok(201);
    let sidecars = made["spec"]["initContainers"].as_array().expect("a list");
    assert_eq!(sidecars.len(), 1, "{made}");
    assert_eq!(sidecars[0]["image"], "mesh/proxy:v1");
    assert_eq!(
        sidecars[0]["imagePullPolicy"], "IfNotPresent",
        "it is defaulted"
    );
    assert_eq!(made["spec"]["containers"][0]["name"], "c");
    let stored = cluster.get(&format!("{PODS}/one")).await.ok(200);
    assert_eq!(stored, made);
    let owned = made["metadata"]["managedFields"].to_string();
    assert!(
        !owned.contains("mesh-proxy"),
        "a policy manages no field: {owned}"
    );
    let mut own = pod("own");
    own["spec"]["initContainers"] = json!([{"name": "mesh-proxy", "image": "mine"}]);
    let made = cluster.post(PODS, &own).await.ok(201);
    assert_eq!(made["spec"]["initContainers"][0]["image"], "mine");
}

async fn a_label_is_added_by_a_json_patch(cluster: &Cluster<'_>) {
    let label = "[JSONPatch{op: 'test', path: '/data/a', value: 'b'}, \
                 JSONPatch{op: 'add', path: '/metadata/labels', value: Object.metadata.labels{}}, \
                 JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/env'), \
                 value: namespaceObject.metadata.name}]";
    bind(cluster, &policy("label", &[label], json!({}))).await;
    let made = cluster.make("one").await.ok(201);
    assert_eq!(
        made["metadata"]["labels"],
        json!({"example.com/env": "default"})
    );
    let made = make(cluster, "two", json!({"a": "other"})).await.ok(201);
    assert_eq!(
        made["metadata"]["labels"],
        Value::Null,
        "the test fails: nothing is patched"
    );
    let path = format!("{POLICIES}/label");
    cluster.delete(&path).await.ok(200);
    let made = cluster.make("three").await.ok(201);
    assert_eq!(
        made["metadata"]["labels"],
        Value::Null,
        "the policy is gone"
    );
}

async fn mutations_are_evaluated_in_order_with_params_and_variables(cluster: &Cluster<'_>) {
    let mut params = map("params");
    params["metadata"]["labels"] = json!({"use": "params"});
    params["data"] = json!({"env": "test"});
    cluster.post(MAPS, &params).await.ok(201);
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "not-params", "expression": "object.metadata.name != 'params'"}],
        "variables": [
            {"name": "env", "expression": "params.data.env"},
            {"name": "keys", "expression": "string(object.data.size())"},
            {"name": "unused", "expression": "object.never.there"},
        ],
    });
    let mutations = [
        "Object{data: {'env': variables.env + '-' + variables.keys}}",
        "[JSONPatch{op: 'add', path: '/data/seen', value: object.data.env + '/' + variables.keys}]",
    ];
    let by_name = json!({"paramRef": {"name": "params", "parameterNotFoundAction": "Deny"}});
    bind_with(
        cluster,
        &policy("p", &mutations, spec),
        &[binding("b", "p", by_name)],
    )
    .await;
    let made = make(cluster, "one", json!({"a": "b"})).await.ok(201);
    assert_eq!(
        made["data"],
        json!({"a": "b", "env": "test-1", "seen": "test-1/2"}),
        "the second mutation sees the result of the first"
    );
    let change = json!({"data": {"c": "d"}});
    let changed = cluster.patch(&format!("{MAPS}/one"), &change).await.ok(200);
    assert_eq!(changed["data"]["seen"], "test-4/4");
    cluster.delete(&format!("{MAPS}/params")).await.ok(200);
    let absent = "policy 'p' with binding 'b' denied request: failed to configure binding: no params \
                  found for policy binding with `Deny` parameterNotFoundAction";
    let refused = cluster.make("two").await.refused(403, "Forbidden", absent);
    assert_eq!(refused["details"]["causes"][0]["message"], absent);
}

async fn conditions_and_bindings_restrict_mutations(cluster: &Cluster<'_>) {
    let spec = json!({"matchConditions": [
        {"name": "selected", "expression": "has(object.data.selected)"},
        {"name": "people", "expression": "!request.userInfo.username.startsWith('robot:')"},
    ]});
    let mark = "Object{data: {'mark': request.operation + '-' + request.name}}";
    let narrow = json!({"matchResources": {"objectSelector": {"matchLabels": {"mark": "yes"}}}});
    bind_with(
        cluster,
        &policy("p", &[mark], spec),
        &[binding("b", "p", narrow)],
    )
    .await;
    let marked = async |name: &str, label: &str, data: Value| {
        let mut map = map(name);
        map["metadata"]["labels"] = json!({"mark": label});
        map["data"] = data;
        cluster.post(MAPS, &map).await.ok(201)["data"]["mark"].clone()
    };
    assert_eq!(
        marked("one", "yes", json!({"selected": ""})).await,
        "CREATE-one"
    );
    assert_eq!(
        marked("two", "no", json!({"selected": ""})).await,
        Value::Null
    );
    assert_eq!(marked("three", "yes", json!({"a": ""})).await, Value::Null);
    let change = json!({"data": {"more": ""}});
    let changed = cluster.patch(&format!("{MAPS}/one"), &change).await.ok(200);
    assert_eq!(changed["data"]["mark"], "UPDATE-one");
}

async fn custom_resources_are_merged_by_their_schemas(cluster: &Cluster<'_>) {
    let part = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "size": {"type": "integer", "default": 7},
    }});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "crates.mutating.example.com"},
        "spec": {"group": "mutating.example.com", "scope": "Namespaced",
            "names": {"plural": "crates", "singular": "crate", "kind": "Crate"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                    "properties": {
                        "parts": {"type": "array", "items": part, "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["name"]},
                        "plain": {"type": "array", "items": {"type": "string"}},
                    }}}}}}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.post(definitions, &definition).await.ok(201);
    let crates = "/apis/mutating.example.com/v1/namespaces/default/crates";
    let begun = Instant::now();
    while cluster.get(crates).await.code != 200 {
        assert!(begun.elapsed() < PATIENCE, "the crates are never served");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let spec = about(rule(&["CREATE"], "mutating.example.com", "crates"));
    let mut atomic = spec.clone();
    atomic["matchConditions"] =
        json!([{"name": "n", "expression": "object.metadata.name == 'atomic'"}]);
    let add = "Object{spec: Object.spec{parts: [Object.spec.parts{name: 'lid'}, \
               Object.spec.parts{name: 'box', size: 2}]}}";
    let set = "Object{spec: Object.spec{plain: ['x']}}";
    bind(cluster, &policy("parts", &[add], spec)).await;
    bind(cluster, &policy("plain", &[set], atomic)).await;
    let crate_ = |name: &str| {
        json!({
            "apiVersion": "mutating.example.com/v1", "kind": "Crate", "metadata": {"name": name},
            "spec": {"parts": [{"name": "box", "size": 1}, {"name": "top", "size": 5}]},
        })
    };
    let made = cluster.post(crates, &crate_("one")).await.ok(201);
    let mut parts = made["spec"]["parts"].as_array().expect("a list").clone();
    parts.sort_by_key(|part| part["name"].to_string());
    assert_eq!(
        parts,
        [
            json!({"name": "box", "size": 2}),
            json!({"name": "lid", "size": 7}),
            json!({"name": "top", "size": 5}),
        ]
    );
    let words = "policy 'plain' with binding 'plain' denied request: error applying patch: invalid \
                 ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.plain";
    let refused = cluster.post(crates, &crate_("atomic")).await;
    refused.refused(403, "Invalid", words);
}

/// The client writes autoscaling/v1, and the policy matches v2.
async fn policy_receives_the_version_that_it_matches(cluster: &Cluster<'_>) {
    let grow = "Object{spec: Object.spec{maxReplicas: object.spec.metrics[0].resource.target\
                .averageUtilization + 1}}";
    let mut newer = rule(&["CREATE"], "autoscaling", "horizontalpodautoscalers");
    newer["apiVersions"] = json!(["v2"]);
    bind(cluster, &policy("grow", &[grow], about(newer))).await;
    let scaler = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "maxReplicas": 3, "targetCPUUtilizationPercentage": 70,
        },
    });
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let made = cluster.post(path, &scaler).await.ok(201);
    assert_eq!(made["apiVersion"], "autoscaling/v1");
    assert_eq!(made["spec"]["maxReplicas"], 71, "{made}");
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 70);
}

/// Each policy and webhook appends its name to `seen`.
async fn policies_and_webhooks_run_again_after_later_changes(cluster: &Cluster<'_>) {
    let append = |name: &str| {
        format!("Object{{data: {{'seen': object.data.?seen.orValue('') + '{name}'}}}}")
    };
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    bind(cluster, &policy("a", &[&append("a")], again.clone())).await;
    bind(cluster, &policy("b", &[&append("b")], json!({}))).await;
    let made = cluster.make("one").await.ok(201);
    assert_eq!(
        made["data"]["seen"], "aba",
        "b came after a, and asks for no second call"
    );
    let webhook = Webhook::answering(|call| {
        let seen = call.body["request"]["object"]["data"]["seen"].as_str();
        let path = call.path.split('?').next().unwrap_or_default();
        let seen = format!(
            "{}{}",
            seen.unwrap_or_default(),
            path.trim_start_matches('/')
        );
        change(
            call,
            &json!([{"op": "add", "path": "/data/seen", "value": seen}]),
        )
    })
    .await;
    let hooks = [
        hook(&webhook, "/w", again.clone()),
        hook(&webhook, "/x", json!({})),
    ];
    cluster.configure("Mutating", "m", &hooks).await;
    let made = cluster.make("two").await.ok(201);
    assert_eq!(
        made["data"]["seen"], "abwxaw",
        "the second round: a, then w"
    );
    assert_eq!(requests(&webhook, "/x").len(), 1);
    for name in ["a", "b"] {
        cluster.delete(&format!("{POLICIES}/{name}")).await.ok(200);
    }
    bind(cluster, &policy("c", &[&append("c")], again)).await;
    let made = cluster.make("three").await.ok(201);
    assert_eq!(made["data"]["seen"], "cwxcw");
}

/// A container that a policy added got no defaults of a LimitRange, and a priority class that a policy set got no
/// priority.
async fn plugins_run_again_after_a_policy(cluster: &Cluster<'_>) {
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]},
    });
    let ranges = "/api/v1/namespaces/default/limitranges";
    cluster.post(ranges, &range).await.ok(201);
    let side =
        "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'side', image: 's'}]}}";
    let spec = about(rule(&["CREATE"], "", "pods"));
    bind(cluster, &policy("side", &[side], spec)).await;
    let made = cluster.post(PODS, &pod("one")).await.ok(201);
    let containers = made["spec"]["containers"].as_array().expect("a list");
    assert_eq!(containers.len(), 2);
    for container in containers {
        assert_eq!(
            container["resources"]["requests"]["cpu"], "100m",
            "{container}"
        );
    }
}

async fn dry_runs_subresources_and_deletions(cluster: &Cluster<'_>) {
    let mark = "Object{metadata: Object.metadata{annotations: {'mark': request.operation + \
                request.?subResource.orValue('') + (request.dryRun ? 'true' : 'false')}}}";
    let everything = json!({"matchConstraints": {"resourceRules": [
        rule(&["*"], "", "configmaps"), rule(&["*"], "", "pods/status"),
    ]}});
    bind(cluster, &policy("mark", &[mark], everything)).await;
    let shown = cluster
        .post(&format!("{MAPS}?dryRun=All"), &map("dry"))
        .await;
    assert_eq!(
        shown.ok(201)["metadata"]["annotations"]["mark"],
        "CREATEtrue"
    );
    cluster.get(&format!("{MAPS}/dry")).await.ok(404);
    let made = cluster.post(PODS, &pod("one")).await.ok(201);
    assert_eq!(made["metadata"]["annotations"], Value::Null);
    let status = json!({"status": {"phase": "Running"}});
    let path = format!("{PODS}/one/status");
    let changed = cluster.patch(&path, &status).await.ok(200);
    assert_eq!(changed["status"]["phase"], "Running");
    assert_eq!(
        changed["metadata"]["annotations"]["mark"],
        "UPDATEstatusfalse"
    );
    cluster.make("one").await.ok(201);
    let deleted = cluster.delete(&format!("{MAPS}/one")).await.ok(200);
    assert_eq!(deleted["status"], "Success");

    let scale = "Object{spec: Object.spec{replicas: 4}}";
    let spec = about(rule(&["UPDATE"], "apps", "deployments/scale"));
    bind(cluster, &policy("scale", &[scale], spec)).await;
    let labels = json!({"app": "d"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    cluster.post(deployments, &deployment).await.ok(201);
    let path = format!("{deployments}/d/scale");
    let scaled = cluster
        .patch(&path, &json!({"spec": {"replicas": 2}}))
        .await;
    assert_eq!(scaled.ok(200)["spec"]["replicas"], 4);
}

async fn kubectl_applies_and_shows_policies(cluster: &Cluster<'_>) {
    let kubectl = Kubectl::new(&cluster.0.kubeconfig());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("policy.json");
    let stamp = "Object{metadata: Object.metadata{labels: {'stamped': 'yes'}}}";
    let policy = policy("stamp", &[stamp], json!({}));
    let bound = binding("stamp", "stamp", json!({}));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy, bound]});
    std::fs::write(&file, list.to_string()).expect("the file is written");
    let file = file.to_string_lossy();
    for options in [
        &["apply"][..],
        &["apply", "--server-side", "--force-conflicts"],
    ] {
        let args = [options, &["-f", &*file]].concat();
        kubectl.run(&args).await;
    }
    let args = ["create", "configmap", "one", "--from-literal=a=b"];
    kubectl.run(&args).await;
    let labels = kubectl
        .run(&[
            "get",
            "configmap",
            "one",
            "-o",
            "jsonpath={.metadata.labels.stamped}",
        ])
        .await;
    assert_eq!(labels.trim(), "yes");
    let shown = kubectl.run(&["get", "mutatingadmissionpolicies"]).await;
    let lines: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["NAME", "MUTATIONS", "PARAMKIND", "AGE"]);
    assert_eq!(lines[1][..3], ["stamp", "1", "<unset>"]);
    let response = cluster
        .send(Method::GET, &format!("{POLICIES}/stamp"), &Value::Null)
        .await;
    assert_eq!(response.ok(200)["metadata"]["generation"], 1);
    let explained = kubectl
        .run(&[
            "explain",
            "mutatingadmissionpolicies.spec.mutations.jsonPatch",
        ])
        .await;
    assert!(explained.contains("expression"), "{explained}");
}

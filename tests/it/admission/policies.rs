//! Tests of ValidatingAdmissionPolicies and their bindings: the writes that they reject.

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cluster::{Cluster, MAPS, REGISTRATION, Response, map, rule};
use crate::harness::{Kubectl, PATIENCE, on_both};

on_both!(|server| (&Cluster(server)) => [
    failed_validation_returns_its_message,
    warn_and_audit_do_not_reject,
    params_are_built_in_objects_or_custom_ones,
    variables_and_conditions_are_composed,
    errors_follow_the_failure_policy,
    bindings_restrict_policies,
    updates_and_deletions_are_validated,
    invalid_configurations_are_rejected_when_written,
    kubectl_shows_the_denial,
    expressions_are_type_checked,
]);

/// Returns a policy for creates and updates of config maps.
pub(super) fn policy(name: &str, spec: Value) -> Value {
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule(&["CREATE", "UPDATE"], "", "configmaps")]}},
    });
    for (key, value) in spec.as_object().expect("members") {
        policy["spec"][key] = value.clone();
    }
    policy
}

pub(super) fn binding(name: &str, policy: &str, spec: Value) -> Value {
    let mut binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": policy, "validationActions": ["Deny"]},
    });
    for (key, value) in spec.as_object().expect("members") {
        binding["spec"][key] = value.clone();
    }
    binding
}

/// Stores a policy and its bindings, which are in effect for the next write.
pub(super) async fn bind(cluster: &Cluster<'_>, policy: &Value, bindings: &[Value]) {
    let path = format!("{REGISTRATION}/validatingadmissionpolicies");
    cluster.post(&path, policy).await.ok(201);
    for binding in bindings {
        let path = format!("{REGISTRATION}/validatingadmissionpolicybindings");
        cluster.post(&path, binding).await.ok(201);
    }
}

async fn make(cluster: &Cluster<'_>, name: &str, data: Value) -> Response {
    let mut map = map(name);
    map["data"] = data;
    cluster.post(MAPS, &map).await
}

async fn failed_validation_returns_its_message(cluster: &Cluster<'_>) {
    let validations = json!({"validations": [
        {"expression": "object.data.a != 'plain'"},
        {"expression": "object.data.a != 'refused'", "message": "a must not be refused", "reason": "Forbidden"},
        {"expression": "object.data.a != 'made'", "message": "unused",
         "messageExpression": "'not ' + object.data.a + ' by ' + request.userInfo.username"},
        {"expression": "object.data.a != 'space' || namespaceObject.metadata.name != 'default'"},
    ]});
    bind(
        cluster,
        &policy("p", validations),
        &[binding("b", "p", json!({}))],
    )
    .await;
    make(cluster, "fine", json!({"a": "fine"})).await.ok(201);
    let by = "configmaps \"one\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    for (a, code, reason, words) in [
        (
            "plain",
            422,
            "Invalid",
            "failed expression: object.data.a != 'plain'",
        ),
        ("refused", 403, "Forbidden", "a must not be refused"),
        ("made", 422, "Invalid", "not made by system:unsecured"),
        (
            "space",
            422,
            "Invalid",
            "failed expression: object.data.a != 'space'",
        ),
    ] {
        let response = make(cluster, "one", json!({"a": a})).await;
        let status = response.refused(code, reason, &format!("{by}{words}"));
        assert_eq!(status["details"]["name"], "one");
        assert_eq!(status["details"]["kind"], "configmaps");
        let cause = status["details"]["causes"][0]["message"].as_str().unwrap();
        assert!(
            cause.starts_with("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ")
        );
    }
    cluster.get(&format!("{MAPS}/one")).await.ok(404);
}

async fn warn_and_audit_do_not_reject(cluster: &Cluster<'_>) {
    let validations = json!({
        "validations": [{"expression": "object.data.a != 'bad'", "message": "a is bad"}],
        "auditAnnotations": [{"key": "a", "valueExpression": "string(object.data.a)"}],
    });
    let warns = binding("b", "p", json!({"validationActions": ["Warn", "Audit"]}));
    bind(cluster, &policy("p", validations), &[warns]).await;
    let response = make(cluster, "one", json!({"a": "bad"})).await;
    response.ok(201);
    let expect =
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': a is bad\"";
    assert_eq!(response.warnings(), [expect]);
}

async fn params_are_built_in_objects_or_custom_ones(cluster: &Cluster<'_>) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "limits.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "limits", "singular": "limit", "kind": "Limit", "listKind": "LimitList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.post(definitions, &definition).await.ok(201);
    let limits = "/apis/example.com/v1/limits";
    let begun = Instant::now();
    while cluster.get(limits).await.code != 200 {
        assert!(
            begun.elapsed() < PATIENCE,
            "the custom resource is never served"
        );
    }
    let limit = |name: &str, max: u32| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Limit",
            "metadata": {"name": name, "labels": {"of": "maps"}}, "max": max,
        })
    };
    cluster.post(limits, &limit("small", 2)).await.ok(201);
    let spec = json!({
        "paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"},
        "validations": [{"expression": "object.data.size() <= params.max"}],
    });
    let by_name = json!({"paramRef": {"name": "small", "parameterNotFoundAction": "Deny"}});
    bind(
        cluster,
        &policy("custom", spec),
        &[binding("custom", "custom", by_name)],
    )
    .await;
    let fits = json!({"a": "1", "b": "2"});
    let large = json!({"a": "1", "b": "2", "c": "3"});
    make(cluster, "fits", fits.clone()).await.ok(201);
    make(cluster, "large", large.clone())
        .await
        .refused(422, "Invalid", "Policy 'custom'");
    cluster
        .send(
            Method::PATCH,
            &format!("{limits}/small"),
            &json!({"max": 3}),
        )
        .await
        .ok(200);
    make(cluster, "large", large).await.ok(201);
    cluster.delete(&format!("{limits}/small")).await.ok(200);
    let absent = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    make(cluster, "any", fits.clone())
        .await
        .refused(422, "Invalid", absent);
    let path = format!("{REGISTRATION}/validatingadmissionpolicies/custom");
    cluster.delete(&path).await.ok(200);

    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "others", "expression": "object.metadata.name.startsWith('x')"}],
        "validations": [{"expression": "object.data.a in params.data.allowed.split(',')"}],
    });
    let selected = json!({"paramRef": {
        "selector": {"matchLabels": {"allows": "yes"}}, "parameterNotFoundAction": "Allow",
    }});
    let policy = policy("built-in", spec);
    let mut allowed = map("allowed");
    allowed["metadata"]["labels"] = json!({"allows": "yes"});
    allowed["data"] = json!({"allowed": "a,b"});
    cluster.post(MAPS, &allowed).await.ok(201);
    bind(
        cluster,
        &policy,
        &[binding("built-in", "built-in", selected)],
    )
    .await;
    make(cluster, "x1", json!({"a": "b"})).await.ok(201);
    make(cluster, "x2", json!({"a": "c"}))
        .await
        .refused(422, "Invalid", "'built-in'");
    cluster.delete(&format!("{MAPS}/allowed")).await.ok(200);
    make(cluster, "x2", json!({"a": "c"})).await.ok(201);
}

async fn variables_and_conditions_are_composed(cluster: &Cluster<'_>) {
    let spec = json!({
        "matchConditions": [
            {"name": "not-system", "expression": "!request.userInfo.username.startsWith('kube-')"},
            {"name": "named", "expression": "object.metadata.name in ['ok', 'bad', 'broken']"},
        ],
        "variables": [
            {"name": "sizes", "expression": "object.data.map(k, object.data[k].size())"},
            {"name": "largest", "expression": "variables.sizes.max()"},
            {"name": "broken", "expression": "object.data.missing"},
            {"name": "unused", "expression": "object.never.there"},
        ],
        "validations": [
            {"expression": "variables.largest < 5",
             "messageExpression": "'largest is ' + string(variables.largest)"},
            {"expression": "object.metadata.name != 'broken' || variables.broken == ''"},
        ],
    });
    bind(cluster, &policy("p", spec), &[binding("b", "p", json!({}))]).await;
    make(cluster, "ok", json!({"a": "1234"})).await.ok(201);
    make(cluster, "bad", json!({"a": "1", "b": "12345"}))
        .await
        .refused(422, "Invalid", "denied request: largest is 5");
    make(cluster, "elsewhere", json!({"a": "12345"}))
        .await
        .ok(201);
    let words =
        "resulted in error: composited variable \"broken\" fails to evaluate: no such key: missing";
    make(cluster, "broken", json!({"a": "1"}))
        .await
        .refused(422, "Invalid", words);
}

async fn errors_follow_the_failure_policy(cluster: &Cluster<'_>) {
    let fails = json!({"validations": [{"expression": "object.data.missing == 'x'"}]});
    let narrowed = |name: &str| {
        json!({"matchConditions": [{"name": "n", "expression": format!(
            "object.metadata.name == '{name}'"
        )}]})
    };
    for (name, failure) in [("fail", "Fail"), ("ignore", "Ignore")] {
        let mut policy = policy(name, fails.clone());
        policy["spec"]["failurePolicy"] = failure.into();
        policy["spec"]["matchConditions"] = narrowed(name)["matchConditions"].clone();
        bind(cluster, &policy, &[binding(name, name, json!({}))]).await;
    }
    let words = "expression 'object.data.missing == 'x'' resulted in error: no such key: missing";
    make(cluster, "fail", json!({"present": "x"}))
        .await
        .refused(422, "Invalid", words);
    make(cluster, "ignore", json!({"present": "x"}))
        .await
        .ok(201);
    // An expression that does not terminate within its limits is an error like any other.
    let endless = json!({
        "matchConditions": narrowed("endless")["matchConditions"],
        "variables": [{"name": "many", "expression": "object.data.a.split('')"}],
        "validations": [{"expression": "variables.many.all(a, variables.many.all(b, variables.many.all(c, a.size() + b.size() + c.size() >= 0)))"}],
    });
    bind(
        cluster,
        &policy("endless", endless),
        &[binding("endless", "endless", json!({}))],
    )
    .await;
    let response = make(cluster, "endless", json!({"a": "x".repeat(1000)})).await;
    response.refused(422, "Invalid", "cost");
}

async fn bindings_restrict_policies(cluster: &Cluster<'_>) {
    let spec = json!({"validations": [{"expression": "object.data.a == 'b'"}]});
    for (name, team) in [("in", "a"), ("out", "b")] {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"team": team}},
        });
        cluster.post("/api/v1/namespaces", &namespace).await.ok(201);
    }
    let narrow = json!({"matchResources": {"namespaceSelector": {"matchExpressions": [
        {"key": "team", "operator": "NotIn", "values": ["b"]},
    ]}}});
    bind(cluster, &policy("p", spec), &[binding("b", "p", narrow)]).await;
    let create = async |namespace: &str| {
        let mut map = map("one");
        map["data"] = json!({"a": "c"});
        cluster
            .post(&format!("/api/v1/namespaces/{namespace}/configmaps"), &map)
            .await
    };
    create("in")
        .await
        .refused(422, "Invalid", "with binding 'b'");
    create("out").await.ok(201);
    let excluded = json!({"spec": {"matchConstraints": {"excludeResourceRules": [
        rule(&["*"], "", "configmaps"),
    ]}}});
    let path = format!("{REGISTRATION}/validatingadmissionpolicies/p");
    cluster.patch(&path, &excluded).await.ok(200);
    let begun = Instant::now();
    while create("in").await.code != 201 {
        assert!(begun.elapsed() < PATIENCE, "the exclusion never counts");
    }
}

async fn updates_and_deletions_are_validated(cluster: &Cluster<'_>) {
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule(&["*"], "", "configmaps")]},
        "validations": [
            {"expression": "request.operation != 'UPDATE' || object.data.a == oldObject.data.a",
             "message": "a is immutable"},
            {"expression": "request.operation != 'DELETE' || !has(oldObject.data.keep)",
             "message": "it is kept"},
        ],
    });
    make(cluster, "one", json!({"a": "1", "keep": "yes"}))
        .await
        .ok(201);
    bind(cluster, &policy("p", spec), &[binding("b", "p", json!({}))]).await;
    let path = format!("{MAPS}/one");
    let response = cluster.patch(&path, &json!({"data": {"a": "2"}})).await;
    response.refused(422, "Invalid", "a is immutable");
    cluster
        .patch(&path, &json!({"data": {"b": "2"}}))
        .await
        .ok(200);
    cluster
        .delete(&path)
        .await
        .refused(422, "Invalid", "it is kept");
    cluster
        .patch(&path, &json!({"data": {"keep": null}}))
        .await
        .ok(200);
    cluster.delete(&path).await.ok(200);
}

async fn invalid_configurations_are_rejected_when_written(cluster: &Cluster<'_>) {
    let path = format!("{REGISTRATION}/validatingadmissionpolicies");
    let broken = policy(
        "p",
        json!({"validations": [{"expression": "object.data."}]}),
    );
    let words = "spec.validations[0].expression: Invalid value: \"object.data.\": compilation failed: ERROR: <input>:1:";
    cluster
        .post(&path, &broken)
        .await
        .refused(422, "Invalid", words);
    let unknown = policy(
        "p",
        json!({"validations": [{"expression": "objct.data == 1"}]}),
    );
    cluster
        .post(&path, &unknown)
        .await
        .refused(422, "Invalid", "undeclared reference to 'objct'");
    let path = format!("{REGISTRATION}/validatingwebhookconfigurations");
    let hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [{"name": "short", "clientConfig": {"url": "http://a/"}, "sideEffects": "Unknown",
                      "admissionReviewVersions": ["v1"]}],
    });
    let status = cluster
        .post(&path, &hooks)
        .await
        .refused(422, "Invalid", "webhooks[0].name");
    let causes = status["details"]["causes"].as_array().unwrap();
    let fields: Vec<_> = causes
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "webhooks[0].name",
            "webhooks[0].sideEffects",
            "webhooks[0].clientConfig.url"
        ]
    );
}

async fn kubectl_shows_the_denial(cluster: &Cluster<'_>) {
    let spec =
        json!({"validations": [{"expression": "!has(object.data.bad)", "message": "no bad data"}]});
    bind(cluster, &policy("p", spec), &[binding("b", "p", json!({}))]).await;
    let kubectl = Kubectl::new(&cluster.0.kubeconfig());
    let args = ["create", "configmap", "one", "--from-literal=bad=1"];
    let error = kubectl.run_failing(&args).await;
    assert!(
        error
            .contains("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no bad data"),
        "{error}"
    );
    kubectl
        .run(&["create", "configmap", "one", "--from-literal=good=1"])
        .await;
    let shown = kubectl
        .run(&["get", "validatingadmissionpolicies", "p", "-o", "name"])
        .await;
    assert_eq!(
        shown.trim(),
        "validatingadmissionpolicy.admissionregistration.k8s.io/p"
    );
}

/// Fields that the types do not have cause warnings in the status; the policy is enforced nevertheless.
async fn expressions_are_type_checked(cluster: &Cluster<'_>) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "knobs.types.example.com"},
        "spec": {"group": "types.example.com", "scope": "Namespaced",
            "names": {"plural": "knobs", "singular": "knob", "kind": "Knob"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                    "properties": {"size": {"type": "integer"}}}}}}}]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.post(path, &definition).await.ok(201);
    let begun = Instant::now();
    while cluster.get("/apis/types.example.com/v1/knobs").await.code != 200 {
        assert!(begun.elapsed() < PATIENCE, "the knobs are never served");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let spec = json!({
        "matchConstraints": {"resourceRules": [
            rule(&["CREATE"], "", "configmaps"),
            rule(&["CREATE"], "types.example.com", "knobs"),
        ]},
        "validations": [
            {"expression": "object.metadata.name != ''"},
            {"expression": "object.spec.size > 1", "messageExpression": "string(object.metadata.nam)"},
        ],
    });
    let policies = format!("{REGISTRATION}/validatingadmissionpolicies");
    let made = cluster.post(&policies, &policy("p", spec)).await.ok(201);
    assert_eq!(made["status"]["observedGeneration"], 1);
    let warnings = &made["status"]["typeChecking"]["expressionWarnings"];
    let type_checking = |index: usize| {
        let one = &warnings[index];
        let text = |member: &str| one[member].as_str().unwrap_or_default().to_owned();
        (text("fieldRef"), text("warning"))
    };
    // A config map has no spec, and the spec of a knob has only a size.
    assert_eq!(
        type_checking(0),
        (
            "spec.validations[1].expression".to_owned(),
            "/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'spec'\n | object.spec.size > 1\n \
             | ......^"
                .to_owned()
        )
    );
    let (field, both) = type_checking(1);
    assert_eq!(field, "spec.validations[1].messageExpression");
    for kind in ["/v1, Kind=ConfigMap: ", "types.example.com/v1, Kind=Knob: "] {
        assert!(both.contains(kind), "{both}");
    }
    let corrected =
        json!({"spec": {"validations": [{"expression": "object.metadata.name != ''"}]}});
    let path = format!("{policies}/p");
    let corrected = cluster.patch(&path, &corrected).await.ok(200);
    assert_eq!(
        corrected["status"],
        json!({"observedGeneration": 2, "typeChecking": {}})
    );
}

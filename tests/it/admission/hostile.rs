//! Small requests about admission and managed fields that ended the process, took all of its memory, or blocked a
//! thread for hours. Each gets a response, and the server stays available. Unit tests count the work.

use serde_json::{Value, json};

use super::cluster::{Cluster, MAPS, REGISTRATION, map};
use crate::harness::on_both;

on_both!(|server| (&Cluster(server)) => [costly_expressions_and_rules_are_bounded, thousands_of_managers_are_bounded]);

/// Each of these requests ended the process, took all of its memory, or blocked a thread for hours.
async fn costly_expressions_and_rules_are_bounded(cluster: &Cluster<'_>) {
    let policy = |expression: &str, rule: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "hostile"},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression}],
            },
        })
    };
    let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
        "resources": ["*"]});
    let policies = format!("{REGISTRATION}/validatingadmissionpolicies");
    let hooks = format!("{REGISTRATION}/validatingwebhookconfigurations");
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for text in [
        format!("\"1\"{}", "+1".repeat(8_000)),
        format!("object{}", ".a".repeat(8_000)),
        format!("object{}", ".a".repeat(1_900)),
        format!("1{}", " in x".repeat(3_000)),
        "#".repeat(16_384),
        "#".repeat(1_900),
    ] {
        let of_policy = policy(&text, rule.clone());
        let of_hook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "hostile"},
            "webhooks": [{
                "name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1/a"},
                "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "matchConditions": [{"name": "a", "expression": text}],
            }],
        });
        let of_definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": {"type": "object",
                        "x-kubernetes-validations": [{"rule": text}]},
                }}],
            },
        });
        for (path, body) in [
            (&*policies, of_policy),
            (&*hooks, of_hook),
            (definitions, of_definition),
        ] {
            let refusal = cluster.post(path, &body).await.ok(422);
            let message = refusal["message"].as_str().expect("a text");
            assert!(message.contains("compilation failed"), "{message:.200}");
            assert!(message.len() < 64 << 10, "{}", message.len());
        }
    }
    let invented = |prefix: &str| -> Vec<String> {
        let each = (0..10_000).map(|n| format!("{prefix}{n}"));
        each.collect()
    };
    let rule = json!({"operations": ["*"], "apiGroups": invented("g"),
        "apiVersions": invented("v"), "resources": invented("r")});
    let body = policy("true", rule);
    cluster.post(&policies, &body).await.ok(201);
}

/// Each managed fields entry was compared with all entries before it, and their fields were copied each time.
async fn thousands_of_managers_are_bounded(cluster: &Cluster<'_>) {
    let entry = |n: usize| {
        json!({
            "manager": format!("m{n}"), "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:x{n}"): {}}},
        })
    };
    let mut body = map("managed");
    body["metadata"]["managedFields"] = (0..15_000).map(entry).collect();
    let made = cluster.post(MAPS, &body).await.ok(201);
    let entries = made["metadata"]["managedFields"].as_array();
    let count = entries.map(Vec::len);
    assert_eq!(count, Some(10), "the oldest become one");
}

//! Tests of MutatingAdmissionPolicies that fail, are invalid, or cost too much.

use serde_json::{Value, json};

use super::cluster::{Cluster, REGISTRATION, rule};
use super::mutating_policies::{POLICIES, about, bind, binding, make, policy};
use crate::harness::on_both;

on_both!(|server| (&Cluster(server)) => [
    failures_follow_the_failure_policy,
    results_that_cannot_be_read_are_internal_errors,
    invalid_configurations_are_rejected_when_written,
    mutations_over_the_size_limit_are_rejected,
    policies_are_not_evaluated_for_policies,
]);

async fn failures_follow_the_failure_policy(cluster: &Cluster<'_>) {
    let only = |name: &str, failure: &str| {
        json!({
            "failurePolicy": failure,
            "matchConditions": [{"name": "n", "expression": format!("object.metadata.name == '{name}'")}],
        })
    };
    let missing = "Object{data: {'x': object.data.missing}}";
    let works = "Object{data: {'works': 'yes'}}";
    bind(cluster, &policy("fail", &[missing], only("fail", "Fail"))).await;
    let mutations = [works, missing, works];
    bind(
        cluster,
        &policy("ignore", &mutations, only("ignore", "Ignore")),
    )
    .await;
    let wrong = "Object{data: {'x': ''}, spec: Object.spec{}}";
    bind(cluster, &policy("wrong", &[wrong], only("wrong", "Fail"))).await;
    let remove = "[JSONPatch{op: 'remove', path: '/data/missing'}]";
    bind(
        cluster,
        &policy("remove", &[remove], only("remove", "Fail")),
    )
    .await;
    let mut broken = only("broken", "Fail");
    broken["matchConditions"][0]["expression"] = "object.data.missing == ''".into();
    let response = cluster.make("fail").await;
    let words = format!(
        "policy 'fail' with binding 'fail' denied request: expression '{missing}' resulted in error: no \
         such key: missing"
    );
    let status = response.refused(403, "Invalid", &words);
    assert_eq!(status["message"], words);
    assert_eq!(status["details"]["name"], "fail");
    assert_eq!(status["details"]["kind"], "configmaps");
    assert_eq!(status["details"]["causes"], json!([{"message": words}]));
    let made = cluster.make("ignore").await.ok(201);
    assert_eq!(made["data"], json!({"a": "b", "works": "yes"}));
    let words = "error applying patch: failed to convert patch object to typed object: .spec: field not \
                 declared in schema";
    cluster.make("wrong").await.refused(403, "Invalid", words);
    let response = cluster.make("remove").await;
    response.refused(403, "Invalid", "denied request: JSON Patch: ");
    bind(cluster, &policy("broken", &[works], broken)).await;
    let response = cluster.make("any").await;
    response.refused(403, "Invalid", "resulted in error: no such key: missing");
}

/// If the patched object has unknown members, the request fails whatever the failure policy is.
async fn results_that_cannot_be_read_are_internal_errors(cluster: &Cluster<'_>) {
    let add = "[JSONPatch{op: 'add', path: '/unknown', value: 1}]";
    let ignores = json!({"failurePolicy": "Ignore"});
    bind(cluster, &policy("unknown", &[add], ignores)).await;
    let words = "strict decoding error: unknown field \"unknown\"";
    cluster
        .make("one")
        .await
        .refused(500, "InternalError", words);
    let path = format!("{POLICIES}/unknown");
    cluster.delete(&path).await.ok(200);
    let kind = "[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]";
    bind(cluster, &policy("kind", &[kind], json!({}))).await;
    cluster
        .make("one")
        .await
        .refused(500, "InternalError", "Secret");
}

async fn invalid_configurations_are_rejected_when_written(cluster: &Cluster<'_>) {
    let wrong = policy("p", &["object"], json!({"reinvocationPolicy": "Always"}));
    let response = cluster.post(POLICIES, &wrong).await;
    let words = "spec.mutations[0].applyConfiguration.expression: Invalid value: \"object\": must \
                 evaluate to Object but got dyn";
    let status = response.refused(422, "Invalid", words);
    let causes = status["details"]["causes"].as_array().expect("causes");
    let fields: Vec<&Value> = causes.iter().map(|cause| &cause["field"]).collect();
    assert_eq!(
        fields,
        [
            "spec.mutations[0].applyConfiguration.expression",
            "spec.reinvocationPolicy",
        ]
    );
    let deletes = about(rule(&["DELETE"], "", "pods"));
    let response = cluster
        .post(POLICIES, &policy("p", &["Object{}"], deletes))
        .await;
    response.refused(422, "Invalid", "Unsupported value: \"DELETE\"");
    let path = format!("{REGISTRATION}/mutatingadmissionpolicybindings");
    let response = cluster.post(&path, &binding("b", "", json!({}))).await;
    response.refused(422, "Invalid", "spec.policyName: Required value");
}

/// Without a limit, an object that each mutation doubles would take all of the memory.
async fn mutations_over_the_size_limit_are_rejected(cluster: &Cluster<'_>) {
    let double = "Object{data: {'a': object.data.a + object.data.a}}";
    let mutations = vec![double; 30];
    bind(cluster, &policy("double", &mutations, json!({}))).await;
    let response = make(cluster, "one", json!({"a": "x".repeat(1 << 10)})).await;
    response.refused(
        403,
        "Invalid",
        "the mutated object is larger than 3145728 bytes",
    );
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let nested = ["a", "b", "c", "d", "e", "f", "g"]
        .iter()
        .fold("1".to_owned(), |inner, name| {
            format!("{ten}.map({name}, {inner})")
        });
    let steps = format!("[JSONPatch{{op: 'add', path: '/data/n', value: {nested}}}]");
    cluster.delete(&format!("{POLICIES}/double")).await.ok(200);
    bind(cluster, &policy("steps", &[&steps], json!({}))).await;
    let response = cluster.make("one").await;
    response.refused(403, "Invalid", "cost budget");
}

/// A policy that makes every object invalid can still be deleted, and does not affect reviews.
async fn policies_are_not_evaluated_for_policies(cluster: &Cluster<'_>) {
    let any = json!({
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
    });
    let breaks = "Object{metadata: Object.metadata{labels: {'broken': object.never.there}}}";
    bind(cluster, &policy("breaks", &[breaks], about(any))).await;
    cluster.make("one").await.refused(403, "Invalid", "never");
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
    });
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    cluster.post(path, &review).await.ok(201);
    let hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"}, "webhooks": [],
    });
    let path = format!("{REGISTRATION}/validatingwebhookconfigurations");
    let response = cluster.post(&path, &hooks).await;
    response.refused(403, "Invalid", "never");
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let path = format!("{POLICIES}/breaks");
    cluster.patch(&path, &labels).await.ok(200);
    cluster.delete(&path).await.ok(200);
    cluster.make("one").await.ok(201);
}

//! Tests of admission for subresources and reviews: webhooks and policies receive both, except that policies are not
//! called for reviews of access and authentication. Also tests the `authorizer` of expressions.

use serde_json::{Value, json};

use super::cluster::{Cluster, MAPS, allow, deny, hook, pod, requests, respond, rule};
use super::policies::{bind, binding, policy};
use crate::harness::{Webhook, on_both};

on_both!(|server| (&Cluster(server)) => [
    webhooks_validate_subresources,
    webhooks_mutate_subresources,
    dry_run_of_an_eviction_calls_the_webhook,
    eviction_does_not_call_webhooks_for_deletes,
    policies_apply_to_subresources_but_not_to_reviews,
    expressions_can_check_access,
]);

const POD: &str = "/api/v1/namespaces/default/pods";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts";

/// Returns the path of each subresource, its kind, and a body to post.
fn parts() -> Vec<(String, &'static str, Value)> {
    let named = json!({"name": "one"});
    let bound = json!({"apiVersion": "v1", "kind": "Binding", "metadata": named,
        "target": {"kind": "Node", "name": "n"}});
    let evicted = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {}});
    vec![
        (format!("{POD}/one/binding"), "Binding", bound.clone()),
        (
            "/api/v1/namespaces/default/bindings".to_owned(),
            "Binding",
            bound,
        ),
        (format!("{POD}/one/eviction"), "Eviction", evicted),
        (format!("{ACCOUNT}/robot/token"), "TokenRequest", token),
    ]
}

async fn populate(cluster: &Cluster<'_>) {
    cluster.post(POD, &pod("one")).await.ok(201);
    let account = json!({"metadata": {"name": "robot"}});
    cluster.post(ACCOUNT, &account).await.ok(201);
}

fn rules_of_parts() -> Value {
    let mut rule = rule(&["CREATE"], "", "pods/binding");
    rule["resources"] = json!([
        "pods/binding",
        "bindings",
        "pods/eviction",
        "serviceaccounts/token"
    ]);
    json!([rule])
}

fn review(kind: &str) -> Value {
    let about = json!({"resource": "pods", "verb": "get", "namespace": "default"});
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind,
        "spec": {"resourceAttributes": about}})
}

async fn webhooks_validate_subresources(cluster: &Cluster<'_>) {
    populate(cluster).await;
    let webhook = Webhook::answering(|call| match call.path.starts_with("/no") {
        true => deny(call, "not today"),
        false => allow(call),
    })
    .await;
    let review_rule = rule(
        &["CREATE"],
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
    );
    let hooks = [
        hook(&webhook, "/no", json!({"rules": rules_of_parts()})),
        hook(&webhook, "/seen", json!({"rules": [review_rule]})),
    ];
    cluster.configure("Validating", "w", &hooks).await;
    for (path, kind, body) in parts() {
        let response = cluster.post(&path, &body).await;
        response.refused(
            403,
            "Forbidden",
            "\"no.example.com\" denied the request: not today",
        );
        let call = requests(&webhook, "/no").pop().expect("it was asked");
        assert_eq!(call["kind"]["kind"], kind, "{call}");
        assert_eq!(call["operation"], "CREATE", "{call}");
        assert_eq!(call["object"]["kind"], kind, "{call}");
    }
    // The webhook receives the token request with its defaults.
    let call = requests(&webhook, "/no").pop().expect("it was asked");
    assert_eq!(call["object"]["spec"]["expirationSeconds"], 3600);
    assert!(call["object"]["spec"]["audiences"].is_array(), "{call}");
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let response = cluster
        .post(reviews, &review("SelfSubjectAccessReview"))
        .await;
    assert_eq!(response.ok(201)["status"]["allowed"], true);
    assert_eq!(requests(&webhook, "/seen").len(), 1);
}

async fn webhooks_mutate_subresources(cluster: &Cluster<'_>) {
    populate(cluster).await;
    let webhook = Webhook::answering(|call| match call.path.starts_with("/change") {
        true => {
            let patch = json!([{"op": "add", "path": "/spec/audiences", "value": ["theirs"]}]);
            super::cluster::change(call, &patch)
        }
        false => respond(call, json!({})),
    })
    .await;
    let rules = json!([rule(&["CREATE"], "", "serviceaccounts/token")]);
    let hooks = [hook(&webhook, "/change", json!({"rules": rules}))];
    cluster.configure("Mutating", "w", &hooks).await;
    let (path, _, body) = parts().pop().expect("tokens are the last");
    let made = cluster.post(&path, &body).await.ok(201);
    assert_eq!(made["spec"]["audiences"], json!(["theirs"]));
    assert!(made["status"]["token"].is_string(), "{made}");
}

async fn dry_run_of_an_eviction_calls_the_webhook(cluster: &Cluster<'_>) {
    populate(cluster).await;
    let webhook = Webhook::answering(allow).await;
    let rules = json!([rule(&["CREATE"], "", "pods/eviction")]);
    let hooks = [hook(
        &webhook,
        "/quiet",
        json!({"rules": rules, "sideEffects": "NoneOnDryRun"}),
    )];
    cluster.configure("Validating", "w", &hooks).await;
    let dry = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"},
        "deleteOptions": {"dryRun": ["All"]}});
    let path = format!("{POD}/one/eviction?dryRun=All");
    cluster.post(&path, &dry).await.ok(201);
    assert_eq!(requests(&webhook, "/quiet")[0]["dryRun"], true);
    cluster.get(&format!("{POD}/one")).await.ok(200);
}

/// The budget was decremented and the pod marked as disrupted before a webhook for deletes rejected the eviction.
async fn eviction_does_not_call_webhooks_for_deletes(cluster: &Cluster<'_>) {
    populate(cluster).await;
    cluster.post(POD, &pod("two")).await.ok(201);
    let webhook = Webhook::answering(|call| deny(call, "pods stay")).await;
    let rules = json!([rule(&["DELETE"], "", "pods")]);
    let hooks = [hook(&webhook, "/stay", json!({"rules": rules}))];
    cluster.configure("Validating", "w", &hooks).await;
    let response = cluster.delete(&format!("{POD}/two")).await;
    response.refused(403, "Forbidden", "pods stay");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "one"}});
    let path = format!("{POD}/one/eviction");
    cluster.post(&path, &eviction).await.ok(201);
    let response = cluster.get(&format!("{POD}/one")).await;
    response.refused(404, "NotFound", "not found");
    cluster.get(&format!("{POD}/two")).await.ok(200);
}

async fn policies_apply_to_subresources_but_not_to_reviews(cluster: &Cluster<'_>) {
    populate(cluster).await;
    let validations = json!({
        "matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"],
            "operations": ["CREATE"], "resources": ["*/*"]}]},
        "matchConditions": [{"name": "parts",
            "expression": "request.?subResource.orValue('') != '' || \
                request.kind.kind == 'Binding' || request.kind.kind.endsWith('Review') || \
                request.kind.kind == 'ConfigMap'"}],
        "validations": [
            {"expression": "request.kind.kind == 'ConfigMap'", "message": "no parts"},
        ],
    });
    bind(
        cluster,
        &policy("p", validations),
        &[binding("b", "p", json!({}))],
    )
    .await;
    for (path, _, body) in parts() {
        let response = cluster.post(&path, &body).await;
        response.refused(
            422,
            "Invalid",
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied",
        );
    }
    for (group, kind, body) in [
        (
            "authorization",
            "SelfSubjectAccessReview",
            review("SelfSubjectAccessReview"),
        ),
        ("authentication", "SelfSubjectReview", json!({})),
    ] {
        let plural = format!("{}s", kind.to_lowercase());
        let path = format!("/apis/{group}.k8s.io/v1/{plural}");
        cluster.post(&path, &body).await.ok(201);
    }
}

async fn expressions_can_check_access(cluster: &Cluster<'_>) {
    let asks = "authorizer.serviceAccount('default', 'robot').group('').resource('nodes')\
                .check('list').allowed() == (object.data.a == 'may')";
    let validations = json!({
        "matchConditions": [{"name": "allowed",
            "expression": "authorizer.requestResource.check('create').allowed()"}],
        "validations": [
            {"expression": asks, "message": "robots may list nodes"},
            {"expression": "!authorizer.path('/metrics').check('get').errored()"},
        ],
    });
    let robot = "system:serviceaccount:default:robot";
    cluster.0.allow_everything(robot).await;
    let bindings = [binding("b", "p", json!({}))];
    bind(cluster, &policy("p", validations), &bindings).await;
    let map = |name: &str, a: &str| json!({"metadata": {"name": name}, "data": {"a": a}});
    cluster.post(MAPS, &map("yes", "may")).await.ok(201);
    let response = cluster.post(MAPS, &map("no", "may not")).await;
    response.refused(422, "Invalid", "robots may list nodes");

    let webhook = Webhook::answering(|call| match call.path.starts_with("/asked") {
        true => deny(call, "asked"),
        false => allow(call),
    })
    .await;
    let condition = "authorizer.group('').resource('configmaps').namespace('default')\
                     .check('create').allowed() && object.metadata.name == 'strict'";
    let conditions = json!([{"name": "may", "expression": condition}]);
    let hooks = [hook(
        &webhook,
        "/asked",
        json!({"matchConditions": conditions}),
    )];
    cluster.configure("Validating", "w", &hooks).await;
    cluster.post(MAPS, &map("lax", "may")).await.ok(201);
    let response = cluster.post(MAPS, &map("strict", "may")).await;
    response.refused(403, "Forbidden", "denied the request: asked");
}

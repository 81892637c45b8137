//! Tests of resources that can be used only with a quota.

use super::*;

fn limited(resources: Value) -> ResourceQuota {
    let written = serde_json::from_value(json!({"limitedResources": resources})).unwrap();
    ResourceQuota::new(LimitedResources::check(written).unwrap())
}

fn of_class(class: &str) -> Value {
    pod(json!({"priorityClassName": class, "containers": [{"name": "c"}]}))
}

#[tokio::test]
async fn limited_resources_need_a_quota_that_covers_them() {
    let plugin = limited(json!([
        {"resource": "pods", "matchContains": ["count/", "cpu"]},
        {"resource": "deployments", "apiGroup": "apps", "matchContains": ["count/deployments.apps"]},
    ]));
    let pod = sized(json!({"cpu": "1"}), json!({}));
    let none = cluster(&[]);
    let refused = none
        .validate_create(&plugin, ("", "pods"), pod.clone())
        .await;
    assert_eq!(
        refusal(refused),
        "pods \"p\" is forbidden: insufficient quota to consume: count/pods,cpu,requests.cpu"
    );
    let deployment = json!({"metadata": {"name": "d", "namespace": "n"}});
    let refused = none.validate_create(&plugin, ("apps", "deployments"), deployment.clone());
    assert_eq!(
        refusal(refused.await),
        "deployments.apps \"d\" is forbidden: insufficient quota to consume: count/deployments.apps"
    );
    let other = none.validate_create(&plugin, ("batch", "deployments"), deployment);
    other.await.unwrap();
    let hard = json!({"hard": {"cpu": "2", "requests.cpu": "2"}});
    let half = cluster(&[quota("q", hard, json!({"cpu": "0", "requests.cpu": "0"}))]);
    let refused = half
        .validate_create(&plugin, ("", "pods"), pod.clone())
        .await;
    assert_eq!(
        refusal(refused),
        "pods \"p\" is forbidden: insufficient quota to consume: count/pods"
    );
    assert_eq!(used(&half, "q").await["cpu"], "0", "nothing is charged");
    let all = cluster(&[
        quota(
            "q",
            json!({"hard": {"cpu": "2", "requests.cpu": "2"}}),
            json!({"cpu": "0", "requests.cpu": "0"}),
        ),
        quota(
            "r",
            json!({"hard": {"count/pods": "9"}}),
            json!({"count/pods": "0"}),
        ),
    ]);
    all.validate_create(&plugin, ("", "pods"), pod)
        .await
        .unwrap();
    assert_eq!(used(&all, "r").await["count/pods"], "1");
}

#[tokio::test]
async fn limited_scopes_need_a_quota_with_the_same_scope() {
    let plugin = limited(json!([{"resource": "pods", "matchScopes": [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["high", "top"]},
    ]}]));
    let create = async |cluster: &FakeCluster, class: &str| {
        let created = cluster
            .validate_create(&plugin, ("", "pods"), of_class(class))
            .await;
        created.map_err(|error| error.status())
    };
    let none = cluster(&[]);
    create(&none, "low").await.unwrap();
    let refused = create(&none, "high").await.unwrap_err();
    // Upstream returns a plain error here, which becomes a 500 without a reason.
    assert_eq!((refused.code, &*refused.reason), (500, ""));
    assert_eq!(
        refused.message,
        "insufficient quota to match these scopes: [{PriorityClass In [high top]}]"
    );
    let of_scope = |values: Value| {
        let spec = json!({"hard": {"pods": "9"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": values},
        ]}});
        cluster(&[quota("q", spec, json!({"pods": "0"}))])
    };
    create(&of_scope(json!(["top"])), "high").await.unwrap_err();
    let covered = of_scope(json!(["high"]));
    create(&covered, "high").await.unwrap();
    assert_eq!(used(&covered, "q").await["pods"], "1");
}

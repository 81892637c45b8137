//! Tests of the status of quotas, as charged by admission and counted by the controller.

use super::*;

const QUOTA: &str = "/resourcequotas/default/q";

fn quota(hard: Value) -> Value {
    json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})
}

fn uses(expected: Value) -> impl Fn(&Value) -> bool {
    move |quota| quota["status"]["used"] == expected
}

#[tokio::test]
async fn a_quota_is_counted_at_creation_and_after_deletions() {
    let fixture = started().await;
    for name in ["a", "b"] {
        fixture.create("pods", pod(name)).await;
    }
    let mut balancer = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    balancer["spec"]["type"] = json!("LoadBalancer");
    fixture.create("services", balancer).await;
    let hard = json!({"pods": "3", "count/pods": "9", "services.nodeports": "5", "secrets": "0"});
    fixture.create("resourcequotas", quota(hard.clone())).await;
    let used = json!({"pods": "2", "count/pods": "2", "services.nodeports": "1", "secrets": "0"});
    let counted = fixture.wait_until(QUOTA, uses(used)).await;
    assert_eq!(counted["status"]["hard"], hard);

    fixture.create("pods", pod("c")).await;
    fixture.try_create("pods", pod("d")).await.unwrap_err();
    fixture.try_create("secrets", named("s")).await.unwrap_err();
    let ended = json!({"status": {"phase": "Failed"}});
    fixture.merge_patch("pods/a/status", ended).await;
    let used = json!({"pods": "2", "count/pods": "3", "services.nodeports": "1", "secrets": "0"});
    fixture.wait_until(QUOTA, uses(used)).await;
    fixture.delete("pods/b").await;
    let service = json!({"spec": {"type": "ClusterIP"}});
    fixture.merge_patch("services/s", service).await;
    let used = json!({"pods": "1", "count/pods": "2", "services.nodeports": "0", "secrets": "0"});
    fixture.wait_until(QUOTA, uses(used)).await;
    // A new limit is counted, and a removed one is dropped.
    let hard = json!({"spec": {"hard": {"secrets": null, "replicationcontrollers": "2"}}});
    fixture.merge_patch("resourcequotas/q", hard).await;
    let used = json!({
        "pods": "1", "count/pods": "2", "services.nodeports": "0", "replicationcontrollers": "0",
    });
    fixture.wait_until(QUOTA, uses(used)).await;
}

#[tokio::test]
async fn custom_resources_are_counted() {
    let fixture = started().await;
    fixture
        .create("customresourcedefinitions", definition("widgets", "Widget"))
        .await;
    let group = definition("widgets", "Widget")["spec"]["group"].clone();
    let limit = format!("count/widgets.{}", group.as_str().unwrap());
    let served = async || {
        let resources = fixture.registry.resources();
        resources
            .iter()
            .any(|resource| resource.plural == "widgets")
    };
    while !served().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fixture.create("widgets", named("a")).await;
    fixture
        .create("resourcequotas", quota(json!({&limit: "2"})))
        .await;
    fixture.wait_until(QUOTA, uses(json!({&limit: "1"}))).await;
    fixture.create("widgets", named("b")).await;
    fixture.try_create("widgets", named("c")).await.unwrap_err();
    fixture.delete("widgets/a").await;
    fixture.wait_until(QUOTA, uses(json!({&limit: "1"}))).await;
    fixture.create("widgets", named("c")).await;
}

/// The usage of deleted objects was subtracted only after a time without charges, so a workload that creates objects
/// all the time prevented the others of its namespace from creating any.
#[tokio::test]
async fn a_quota_that_is_charged_all_the_time_is_counted() {
    let fixture = started().await;
    let hard = json!({"count/configmaps": "100000", "count/secrets": "1"});
    fixture.create("resourcequotas", quota(hard)).await;
    let of_secrets = |expected: &'static str| {
        move |quota: &Value| quota["status"]["used"]["count/secrets"] == expected
    };
    fixture.wait_until(QUOTA, of_secrets("0")).await;
    let busy = async {
        for number in 0.. {
            let map = named(&format!("c{number}"));
            fixture.create("configmaps", map).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let freed = async {
        fixture.create("secrets", named("a")).await;
        fixture.try_create("secrets", named("b")).await.unwrap_err();
        fixture.delete("secrets/a").await;
        fixture.wait_until(QUOTA, of_secrets("0")).await;
        fixture.create("secrets", named("b")).await;
    };
    tokio::select! {
        () = busy => unreachable!("it goes on for ever"),
        () = freed => {}
    }
}

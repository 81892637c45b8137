//! Tests of which writes call a webhook: selectors, match conditions, equivalent resources.

use serde_json::{Value, json};

use super::cluster::{Cluster, allow, deny, hook, map, requests, rule};
use crate::harness::{Webhook, on_both};

on_both!(|server| (&Cluster(server)) => [
    namespaces_are_selected_by_their_labels,
    objects_are_selected_by_old_and_new_labels,
    match_conditions_and_their_errors,
    equivalent_resources_match,
    subresources_match_their_own_rules_only,
    custom_resources_are_sent_in_the_version_of_the_rule,
]);

async fn namespaces_are_selected_by_their_labels(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| match call.path.starts_with("/deny") {
        true => deny(call, "selected"),
        false => allow(call),
    })
    .await;
    let namespace = |name: &str, team: &str| {
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"team": team}},
        })
    };
    cluster
        .post("/api/v1/namespaces", &namespace("in", "a"))
        .await
        .ok(201);
    cluster
        .post("/api/v1/namespaces", &namespace("out", "b"))
        .await
        .ok(201);
    let selecting = json!({
        "rules": [rule(&["*"], "", "configmaps"), rule(&["CREATE"], "", "namespaces"),
                  rule(&["CREATE"], "", "persistentvolumes")],
        "namespaceSelector": {"matchLabels": {"team": "a"}},
    });
    let selecting = hook(&webhook, "/deny", selecting);
    cluster.configure("Validating", "w", &[selecting]).await;
    let create = async |namespace: &str| {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        cluster.post(&path, &map("one")).await
    };
    create("in").await.refused(403, "Forbidden", "selected");
    create("out").await.ok(201);
    create("default").await.ok(201);
    // The namespaceSelector compares a Namespace with its own labels, and matches every cluster-scoped object.
    let response = cluster
        .post("/api/v1/namespaces", &namespace("new", "a"))
        .await;
    response.refused(403, "Forbidden", "selected");
    cluster
        .post("/api/v1/namespaces", &namespace("new", "b"))
        .await
        .ok(201);
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                 "hostPath": {"path": "/v"}},
    });
    let response = cluster.post("/api/v1/persistentvolumes", &volume).await;
    response.refused(403, "Forbidden", "selected");
    // The new labels of the namespace apply once the namespace cache has received them. They do not change after that, so one
    // delete suffices.
    let label = json!({"metadata": {"labels": {"team": "a"}}});
    cluster
        .patch("/api/v1/namespaces/out", &label)
        .await
        .ok(200);
    let begun = tokio::time::Instant::now();
    let dry = "/api/v1/namespaces/out/configmaps?dryRun=All";
    while cluster.post(dry, &map("two")).await.code != 403 {
        assert!(begun.elapsed() < crate::harness::PATIENCE);
    }
    let one = "/api/v1/namespaces/out/configmaps/one";
    let response = cluster.delete(one).await;
    response.refused(403, "Forbidden", "selected");
}

async fn objects_are_selected_by_old_and_new_labels(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(allow).await;
    let selecting = json!({"objectSelector": {"matchExpressions": [
        {"key": "watch", "operator": "Exists"},
    ]}});
    let selecting = hook(&webhook, "/watch", selecting);
    cluster.configure("Validating", "w", &[selecting]).await;
    cluster.make("one").await.ok(201);
    let path = "/api/v1/namespaces/default/configmaps/one";
    let change = async |labels: Value| {
        cluster
            .patch(path, &json!({"metadata": {"labels": labels}}))
            .await
            .ok(200);
        requests(&webhook, "/watch").len()
    };
    assert_eq!(change(json!({"other": "1"})).await, 0);
    assert_eq!(change(json!({"watch": "1"})).await, 1, "it enters");
    assert_eq!(change(json!({"other": "2"})).await, 2, "it is there");
    assert_eq!(change(json!({"watch": null})).await, 3, "it leaves");
    assert_eq!(change(json!({"other": "3"})).await, 3, "it has left");
}

async fn match_conditions_and_their_errors(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| deny(call, "met")).await;
    let condition = |expression: &str| json!([{"name": "c", "expression": expression}]);
    let hooks = [
        hook(
            &webhook,
            "/user",
            json!({"matchConditions": condition(
                "request.userInfo.username == 'system:unsecured' && object.data.a == 'user'"
            )}),
        ),
        hook(
            &webhook,
            "/old",
            json!({"matchConditions": condition(
                "request.operation == 'UPDATE' && oldObject.data.a != object.data.a && object.data.a == 'old'"
            )}),
        ),
        hook(
            &webhook,
            "/error",
            json!({"matchConditions": [
                {"name": "first", "expression": "object.data.a == 'error'"},
                {"name": "second", "expression": "object.data.missing == 'x'"},
            ]}),
        ),
        hook(
            &webhook,
            "/ignored",
            json!({"failurePolicy": "Ignore", "matchConditions": [
                {"name": "first", "expression": "object.data.a == 'ignored'"},
                {"name": "second", "expression": "object.data.missing == 'x'"},
            ]}),
        ),
    ];
    cluster.configure("Validating", "w", &hooks).await;
    let make = async |name: &str| {
        let mut map = map(name);
        map["data"] = json!({"a": name});
        cluster
            .post("/api/v1/namespaces/default/configmaps", &map)
            .await
    };
    make("user").await.refused(403, "Forbidden", "met");
    make("old").await.ok(201);
    make("other").await.ok(201);
    let change = async |name: &str| {
        let path = format!("/api/v1/namespaces/default/configmaps/{name}");
        cluster
            .patch(
                &path,
                &json!({"data": {"a": "old"}, "metadata": {"labels": {"x": "y"}}}),
            )
            .await
    };
    change("old").await.ok(200);
    change("other").await.refused(403, "Forbidden", "met");
    let response = make("error").await;
    let status = response.refused(403, "Forbidden", "configmaps \"error\" is forbidden: ");
    assert!(
        status["message"].as_str().unwrap().contains(
            "expression 'object.data.missing == 'x'' resulted in error: no such key: missing"
        ),
        "{status}"
    );
    make("ignored").await.ok(201);
}

async fn equivalent_resources_match(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(allow).await;
    let of_new = |path: &str, policy: &str| {
        let rules = [rule(&["CREATE"], "events.k8s.io", "events")];
        hook(
            &webhook,
            path,
            json!({"rules": rules, "matchPolicy": policy}),
        )
    };
    let hooks = [
        of_new("/equivalent", "Equivalent"),
        of_new("/exact", "Exact"),
    ];
    cluster.configure("Validating", "w", &hooks).await;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "R", "message": "a note", "type": "Normal",
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "reportingComponent": "test", "source": {"component": "test"},
    });
    cluster
        .post("/api/v1/namespaces/default/events", &event)
        .await
        .ok(201);
    let calls = requests(&webhook, "/equivalent");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["resource"]["group"], "events.k8s.io");
    assert_eq!(calls[0]["requestResource"]["group"], "");
    assert_eq!(calls[0]["kind"]["group"], "events.k8s.io");
    assert_eq!(calls[0]["object"]["apiVersion"], "events.k8s.io/v1");
    assert_eq!(
        calls[0]["object"]["note"], "a note",
        "in the form that was asked for"
    );
    assert_eq!(requests(&webhook, "/exact").len(), 0);
}

async fn subresources_match_their_own_rules_only(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| {
        let request = &call.body["request"];
        match (request["subResource"].as_str(), request["name"].as_str()) {
            (Some("eviction"), Some("kept")) => deny(call, "it stays"),
            _ => allow(call),
        }
    })
    .await;
    let rules = json!({"rules": [
        rule(&["CREATE"], "", "pods/eviction"), rule(&["CREATE"], "", "pods/binding"),
        rule(&["UPDATE"], "apps", "deployments/scale"),
    ]});
    let parts = hook(&webhook, "/parts", rules);
    cluster.configure("Validating", "w", &[parts]).await;
    let pods = "/api/v1/namespaces/default/pods";
    cluster
        .post(pods, &super::cluster::pod("kept"))
        .await
        .ok(201);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "kept"},
        "target": {"kind": "Node", "name": "n"},
    });
    cluster
        .post(&format!("{pods}/kept/binding"), &binding)
        .await
        .ok(201);
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "kept"},
    });
    let response = cluster
        .post(&format!("{pods}/kept/eviction"), &eviction)
        .await;
    response.refused(403, "Forbidden", "it stays");
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
    let scale = json!({"spec": {"replicas": 3}});
    cluster
        .patch(&format!("{deployments}/d/scale"), &scale)
        .await
        .ok(200);
    let calls = requests(&webhook, "/parts");
    let kinds: Vec<_> = calls
        .iter()
        .map(|r| r["kind"]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["Binding", "Eviction", "Scale"]);
    assert_eq!(
        calls[1]["requestKind"],
        json!({"group": "policy", "version": "v1", "kind": "Eviction"})
    );
    assert_eq!(calls[1]["resource"]["resource"], "pods");
    assert_eq!(calls[2]["object"]["spec"]["replicas"], 3);
    assert_eq!(calls[2]["oldObject"]["spec"]["replicas"], 1);
}

async fn custom_resources_are_sent_in_the_version_of_the_rule(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| {
        let ours = call.path.starts_with("/old") && call.body["request"]["name"] == "bad";
        match ours {
            true => deny(call, "bad widget"),
            false => allow(call),
        }
    })
    .await;
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.post(definitions, &definition).await.ok(201);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let begun = tokio::time::Instant::now();
    while cluster.get(widgets).await.code != 200 {
        assert!(
            begun.elapsed() < crate::harness::PATIENCE,
            "widgets are never served"
        );
    }
    let mut old = rule(&["CREATE"], "example.com", "widgets");
    old["apiVersions"] = json!(["v1beta1"]);
    let exact = json!({"rules": [old.clone()], "matchPolicy": "Exact"});
    let hooks = [
        hook(&webhook, "/old", json!({"rules": [old]})),
        hook(&webhook, "/exact", exact),
    ];
    cluster.configure("Validating", "w", &hooks).await;
    let widget = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "size": 3});
    cluster.post(widgets, &widget("good")).await.ok(201);
    let response = cluster.post(widgets, &widget("bad")).await;
    response.refused(403, "Forbidden", "bad widget");
    let calls = requests(&webhook, "/old");
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0]["resource"]["version"], "v1beta1");
    assert_eq!(calls[0]["requestResource"]["version"], "v1");
    assert_eq!(calls[0]["object"]["apiVersion"], "example.com/v1beta1");
    assert_eq!(calls[0]["object"]["size"], 3);
    assert_eq!(requests(&webhook, "/exact").len(), 0);
}

//! Tests of discovery, the version, component statuses, and which responses can be Tables.

use http::Method;
use serde_json::{Value, json};

use super::Cluster;
use crate::harness::Protocol;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

pub(super) async fn component_statuses_can_be_read(cluster: &Cluster) {
    let output = cluster.kubectl.run(&["get", "cs", "etcd-0"]).await;
    let words: Vec<&str> = output.split_whitespace().collect();
    assert_eq!(
        words,
        [
            "NAME", "STATUS", "MESSAGE", "ERROR", "etcd-0", "Healthy", "ok"
        ]
    );
    let list = cluster.get(&["componentstatuses"]).await;
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|status| status["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["controller-manager", "scheduler", "etcd-0"]);

    let mut wire = cluster.server.plain(Protocol::Http1).await;
    let path = "/api/v1/componentstatuses";
    let response = wire.get(&format!("{path}/etcd-0")).await;
    assert_eq!(response.status, 200);
    assert_eq!(
        response.headers["warning"],
        "299 - \"v1 ComponentStatus is deprecated in v1.19+\""
    );
    let healthy = json!([{"type": "Healthy", "status": "True", "message": "ok"}]);
    assert_eq!(response.json()["conditions"], healthy);
    let list = wire.get(path).await.json();
    assert_eq!(list["metadata"], json!({}), "its version was 0");
    let none = wire.get(&format!("{path}/none")).await;
    assert_eq!(none.status, 404);
    assert_eq!(
        none.json()["message"],
        r#"componentstatus "none" not found"#
    );
    assert_eq!(wire.get(&format!("{path}?watch=true")).await.status, 405);
    for (method, path) in [
        (Method::POST, path.to_owned()),
        (Method::DELETE, path.to_owned()),
        (Method::PUT, format!("{path}/etcd-0")),
        (Method::PATCH, format!("{path}/etcd-0")),
        (Method::DELETE, format!("{path}/etcd-0")),
    ] {
        let response = wire.send(method.clone(), &path, &[], "{}").await;
        assert_eq!(response.status, 405, "{method} {path}");
    }
}

/// The members of discovery were in alphabetical order, and the version had no commit.
pub(super) async fn discovery_has_upstreams_order(cluster: &Cluster) {
    let output = cluster.kubectl.run(&["get", "--raw", "/api/v1"]).await;
    let start = concat!(
        r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"bindings","#,
        r#""singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]},"#,
        r#"{"name":"componentstatuses","singularName":"componentstatus","namespaced":false,"#,
        r#""kind":"ComponentStatus","verbs":["get","list"],"shortNames":["cs"]},"#,
    );
    assert!(output.starts_with(start), "{output:.400}");
    let output = cluster
        .kubectl
        .run(&["get", "--raw", "/openapi/v3/api/v1"])
        .await;
    assert!(
        output.starts_with(r#"{"openapi":"3.0.0","info":{"title":"#),
        "{output:.200}"
    );
    let version = cluster.kubectl.run(&["get", "--raw", "/version"]).await;
    let version: Value = serde_json::from_str(&version).expect("JSON");
    assert!(version["gitCommit"].is_string(), "{version}");
}

/// A review is not stored and has no Table: the server returned an invented one.
pub(super) async fn tables_of_reviews_are_not_acceptable(cluster: &Cluster) {
    let mut wire = cluster.server.plain(Protocol::Http1).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let body = json!({"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}});
    for (accept, status, kind) in [
        (TABLE.to_owned(), 406, "Status"),
        (
            format!("{TABLE},application/json"),
            201,
            "SelfSubjectAccessReview",
        ),
    ] {
        let headers = [("accept", &*accept), ("content-type", "application/json")];
        let response = wire
            .send(Method::POST, path, &headers, &body.to_string())
            .await;
        assert_eq!(response.status, status, "{accept}");
        assert_eq!(response.json()["kind"], kind, "{accept}");
    }
}

/// A pod that was sent to the namespaces was rejected without a reason.
pub(super) async fn objects_of_another_kind_are_rejected_with_a_reason(cluster: &Cluster) {
    let message = cluster
        .refused("/api/v1/namespaces", &super::pod("a"))
        .await;
    let expected = "Pod in version \"v1\" cannot be handled as a Namespace: converting (v1.Pod) to \
                    (core.Namespace): unknown conversion";
    assert!(message.contains(expected), "{message}");
}

//! Tests of authorization by roles with the real kubectl.

use std::path::Path;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;

use crate::harness::{Kubectl, Protocol, Server};

/// Repeats `kubectl auth can-i` until it prints `expected`, because a change takes effect shortly after its write.
/// Fails after 30 s.
async fn wait_until_can(kubectl: &Kubectl, arguments: &[&str], expected: bool) {
    let command: Vec<&str> = ["auth", "can-i"].iter().chain(arguments).copied().collect();
    let attempts = async {
        loop {
            // kubectl exits with 1 for "no".
            let answer = match expected {
                true => kubectl.try_run(&command).await.is_ok(),
                false => kubectl.try_run(&command).await.is_err(),
            };
            if answer {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(30), attempts).await;
    assert!(within.is_ok(), "kubectl {command:?} never says {expected}");
}

#[tokio::test]
async fn a_user_may_do_what_its_roles_allow() {
    let server = Server::start(&[]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    assert_eq!(
        kubectl
            .run_failing(&["--as=jane", "get", "pods"])
            .await
            .trim(),
        r#"Error from server (Forbidden): pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default""#
    );
    kubectl
        .run(&[
            "create",
            "role",
            "reader",
            "--verb=get,list,watch",
            "--resource=pods",
        ])
        .await;
    kubectl
        .run(&[
            "create",
            "rolebinding",
            "readers",
            "--role=reader",
            "--user=jane",
        ])
        .await;
    wait_until_can(&kubectl, &["--as=jane", "list", "pods"], true).await;
    kubectl.run(&["--as=jane", "get", "pods"]).await;
    let refused = kubectl
        .run_failing(&["--as=jane", "get", "pods", "-n", "kube-system"])
        .await;
    assert!(
        refused.contains(r#"in the namespace "kube-system""#),
        "{refused}"
    );
    let refused = kubectl
        .run_failing(&["--as=jane", "get", "configmaps"])
        .await;
    assert!(refused.contains("configmaps is forbidden"), "{refused}");
    let listed = kubectl.run(&["--as=jane", "auth", "can-i", "--list"]).await;
    assert!(
        listed.lines().any(|line| line
            .split_whitespace()
            .eq(["pods", "[]", "[]", "[get", "list", "watch]"])),
        "{listed}"
    );
    kubectl.run(&["delete", "rolebinding", "readers"]).await;
    wait_until_can(&kubectl, &["--as=jane", "list", "pods"], false).await;

    // The user of the written kubeconfig is in system:masters.
    kubectl.run(&["auth", "can-i", "*", "*"]).await;
    server.stop().await;
}

#[tokio::test]
async fn aggregated_roles_have_the_rules_of_others() {
    let server = Server::start(&[]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    kubectl
        .run(&[
            "create",
            "rolebinding",
            "v",
            "--clusterrole=view",
            "--user=viewer",
        ])
        .await;
    kubectl
        .run(&[
            "create",
            "rolebinding",
            "e",
            "--clusterrole=edit",
            "--user=editor",
        ])
        .await;
    kubectl
        .run(&[
            "create",
            "rolebinding",
            "a",
            "--clusterrole=admin",
            "--user=boss",
        ])
        .await;
    for (user, verb, resource, expected) in [
        ("viewer", "list", "deployments.apps", true),
        ("viewer", "get", "secrets", false),
        ("viewer", "create", "pods", false),
        ("editor", "create", "deployments.apps", true),
        (
            "editor",
            "create",
            "rolebindings.rbac.authorization.k8s.io",
            false,
        ),
        (
            "boss",
            "create",
            "rolebindings.rbac.authorization.k8s.io",
            true,
        ),
        ("boss", "update", "resourcequotas", false),
    ] {
        let user = format!("--as={user}");
        wait_until_can(&kubectl, &[&user, verb, resource], expected).await;
    }
    let role = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {
        "name": "secrets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}"#;
    kubectl.run_with(&["apply", "-f", "-"], role).await;
    wait_until_can(&kubectl, &["--as=viewer", "get", "secrets"], true).await;
    kubectl.run(&["delete", "clusterrole", "secrets"]).await;
    wait_until_can(&kubectl, &["--as=viewer", "get", "secrets"], false).await;
    server.stop().await;
}

#[tokio::test]
async fn a_user_cannot_grant_more_than_it_has() {
    let server = Server::start(&[]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    // A role that allows writing roles and bindings, and reading pods.
    let delegate = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "delegate"},
        "rules": [
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["get", "create", "update", "patch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}"#;
    kubectl.run_with(&["create", "-f", "-"], delegate).await;
    kubectl
        .run(&[
            "create",
            "clusterrolebinding",
            "d",
            "--clusterrole=delegate",
            "--user=jane",
        ])
        .await;
    wait_until_can(&kubectl, &["--as=jane", "create", "clusterroles"], true).await;
    wait_until_can(&kubectl, &["--as=jane", "escalate", "clusterroles"], false).await;

    kubectl
        .run(&[
            "--as=jane",
            "create",
            "role",
            "r",
            "--verb=get",
            "--resource=pods",
        ])
        .await;
    kubectl
        .run(&[
            "--as=jane",
            "create",
            "rolebinding",
            "r",
            "--role=r",
            "--user=joe",
        ])
        .await;
    let refused = kubectl
        .run_failing(&[
            "--as=jane",
            "create",
            "role",
            "s",
            "--verb=get,list",
            "--resource=secrets,pods",
        ])
        .await;
    assert_eq!(
        refused.trim(),
        "Error from server (Forbidden): roles.rbac.authorization.k8s.io \"s\" is forbidden: user \"jane\" \
         (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
    );
    let held = "is attempting to grant RBAC permissions not currently held";
    for (command, expected) in [
        (
            vec![
                "create",
                "clusterrolebinding",
                "x",
                "--clusterrole=cluster-admin",
                "--user=jane",
            ],
            held,
        ),
        (
            vec![
                "create",
                "rolebinding",
                "x",
                "--clusterrole=edit",
                "--user=jane",
            ],
            held,
        ),
        (
            vec![
                "create",
                "rolebinding",
                "x",
                "--clusterrole=none",
                "--user=jane",
            ],
            r#"clusterrole.rbac.authorization.k8s.io "none" not found"#,
        ),
        (
            vec![
                "patch",
                "role",
                "r",
                "--type=json",
                "-p",
                r#"[{"op": "add", "path": "/rules/0/verbs/-", "value": "delete"}]"#,
            ],
            held,
        ),
        (
            vec!["create", "clusterrole", "x", "--aggregation-rule=a=b"],
            "must have cluster-admin privileges to use an aggregationRule",
        ),
        (
            vec![
                "patch",
                "clusterrole",
                "delegate",
                "--type=json",
                "-p",
                r#"[{"op": "add", "path": "/rules/0/verbs/-", "value": "escalate"}]"#,
            ],
            held,
        ),
    ] {
        let command: Vec<&str> = std::iter::once("--as=jane").chain(command).collect();
        let refused = kubectl.run_failing(&command).await;
        assert!(refused.contains(expected), "{command:?}: {refused}");
    }
    // A label that would aggregate the rules of this role into another one.
    let role = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {
        "name": "x", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}"#;
    let refused = kubectl
        .run_failing_with(&["--as=jane", "create", "-f", "-"], role)
        .await;
    assert!(refused.contains(held), "{refused}");
    // The verb `bind` on a role allows binding that role.
    kubectl
        .run(&[
            "create",
            "clusterrole",
            "binder",
            "--verb=bind",
            "--resource=clusterroles",
            "--resource-name=edit",
        ])
        .await;
    kubectl
        .run(&[
            "create",
            "clusterrolebinding",
            "b",
            "--clusterrole=binder",
            "--user=jane",
        ])
        .await;
    wait_until_can(&kubectl, &["--as=jane", "bind", "clusterroles/edit"], true).await;
    kubectl
        .run(&[
            "--as=jane",
            "create",
            "rolebinding",
            "x",
            "--clusterrole=edit",
            "--user=joe",
        ])
        .await;
    server.stop().await;
}

#[tokio::test]
async fn a_fresh_service_account_gets_discovery_only() {
    let server = Server::start(&[]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    kubectl.run(&["create", "serviceaccount", "robot"]).await;
    let token = kubectl.run(&["create", "token", "robot"]).await;
    let bearer = format!("Bearer {}", token.trim());
    let mut wire = server.stranger(Protocol::Http2).await;
    for (path, expected) in [
        ("/api", StatusCode::OK),
        ("/apis/apps/v1", StatusCode::OK),
        ("/openapi/v3", StatusCode::OK),
        ("/version", StatusCode::OK),
        ("/readyz", StatusCode::OK),
        ("/metrics", StatusCode::FORBIDDEN),
        ("/api/v1/pods", StatusCode::FORBIDDEN),
        ("/api/v1/namespaces/default/secrets", StatusCode::FORBIDDEN),
        (
            "/api/v1/namespaces/default/serviceaccounts/robot",
            StatusCode::FORBIDDEN,
        ),
        ("/api/v1/namespaces/none/pods/none", StatusCode::FORBIDDEN),
        ("/apis/example.com/v1/none", StatusCode::FORBIDDEN),
    ] {
        let response = wire
            .send(Method::GET, path, &[("authorization", &bearer)], "")
            .await;
        assert_eq!(response.status, expected, "{path}: {:?}", response.body);
    }
    let masters = [
        ("authorization", &*bearer),
        ("impersonate-group", "system:masters"),
        ("impersonate-user", "x"),
    ];
    let response = wire.send(Method::GET, "/api/v1/pods", &masters, "").await;
    assert_eq!(response.status, StatusCode::FORBIDDEN);
    // Without a credential.
    assert_eq!(wire.get("/readyz").await.status, StatusCode::OK);
    assert_eq!(wire.get("/api").await.status, StatusCode::UNAUTHORIZED);
    server.stop().await;
}

#[tokio::test]
async fn the_default_policy_is_reconciled_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let start = async |directory: &Path| {
        let server = Server::start_in(directory, &[]).await;
        let kubectl = Kubectl::new(&server.kubeconfig());
        (server, kubectl)
    };
    let (server, kubectl) = start(directory.path()).await;
    kubectl
        .run(&["delete", "clusterrole", "system:discovery"])
        .await;
    kubectl
        .run(&[
            "patch",
            "clusterrole",
            "system:basic-user",
            "--type=json",
            "-p",
            r#"[{"op": "replace", "path": "/rules", "value": []}]"#,
        ])
        .await;
    kubectl
        .run(&[
            "annotate",
            "--overwrite",
            "clusterrole",
            "system:public-info-viewer",
            "rbac.authorization.kubernetes.io/autoupdate=false",
        ])
        .await;
    kubectl
        .run(&[
            "patch",
            "clusterrole",
            "system:public-info-viewer",
            "--type=json",
            "-p",
            r#"[{"op": "replace", "path": "/rules", "value": []}]"#,
        ])
        .await;
    kubectl.run(&["patch", "clusterrolebinding", "system:discovery", "--type=json", "-p",
        r#"[{"op": "add", "path": "/subjects/-", "value": {"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}}]"#]).await;
    server.stop().await;

    let (server, kubectl) = start(directory.path()).await;
    let get = async |kind: &str, name: &str| -> Value {
        let text = kubectl.run(&["get", kind, name, "-o", "json"]).await;
        serde_json::from_str(&text).unwrap()
    };
    let discovery = get("clusterrole", "system:discovery").await;
    assert_eq!(discovery["rules"][0]["verbs"][0], "get");
    let basic = get("clusterrole", "system:basic-user").await;
    assert!(!basic["rules"].as_array().unwrap().is_empty());
    let public = get("clusterrole", "system:public-info-viewer").await;
    assert!(
        public["rules"].as_array().is_none_or(Vec::is_empty),
        "{public}"
    );
    let subjects = get("clusterrolebinding", "system:discovery").await["subjects"].clone();
    let names: Vec<&str> = subjects
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["system:authenticated", "joe"]);
    server.stop().await;
}

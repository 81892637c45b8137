//! Tests of RBAC: the rules of upstream one by one, and the default policy.

mod random;

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::attributes::Attributes;
use crate::authorizer::{Authorizer as _, Decision};
use watchet_api::UserInfo;

/// Returns an authorizer with these objects.
fn authorizer(objects: &[(RbacKind, &str, &str, Value)]) -> RbacAuthorizer {
    let authorizer = RbacAuthorizer::new();
    for (kind, namespace, name, object) in objects {
        let object = object.to_string();
        let change = RbacChange {
            namespace,
            name,
            object: Some(object.as_bytes()),
        };
        assert!(authorizer.change(*kind, [change]).is_empty());
    }
    authorizer
}

fn user(name: &str, groups: &[&str]) -> Arc<UserInfo> {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    Arc::new(UserInfo::authenticated(
        name.to_owned(),
        String::new(),
        groups,
    ))
}

fn request(
    user: Arc<UserInfo>,
    verb: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Attributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes {
        user,
        verb: verb.to_owned(),
        is_resource_request: true,
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

fn decide(authorizer: &RbacAuthorizer, attributes: &Attributes) -> Decision {
    futures_util::FutureExt::now_or_never(authorizer.authorize(attributes)).expect("it never waits")
}

fn allows(authorizer: &RbacAuthorizer, attributes: &Attributes) -> bool {
    decide(authorizer, attributes).is_allowed()
}

fn pod_reader(kind: RbacKind, namespace: &str) -> (RbacKind, &str, &str, Value) {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    (kind, namespace, "pod-reader", json!({"rules": rules}))
}

#[test]
fn a_role_binding_grants_in_its_namespace_only() {
    let authorizer = authorizer(&[
        pod_reader(RbacKind::ClusterRole, ""),
        (
            RbacKind::RoleBinding,
            "a",
            "readers",
            json!({
                "roleRef": {"kind": "ClusterRole", "name": "pod-reader"},
                "subjects": [{"kind": "User", "name": "jane"}, {"kind": "ServiceAccount", "name": "robot"}],
            }),
        ),
    ]);
    let jane = user("jane", &[]);
    assert_eq!(
        decide(&authorizer, &request(jane.clone(), "get", "pods", "a", "x")),
        Decision::Allow(r#"RBAC: allowed by RoleBinding "readers/a" of ClusterRole "pod-reader" to User "jane""#.into())
    );
    assert!(!allows(
        &authorizer,
        &request(jane.clone(), "get", "pods", "b", "x")
    ));
    assert!(!allows(
        &authorizer,
        &request(jane.clone(), "list", "pods", "", "")
    ));
    assert!(!allows(
        &authorizer,
        &request(jane.clone(), "get", "pods/log", "a", "x")
    ));
    assert!(!allows(
        &authorizer,
        &request(jane, "delete", "pods", "a", "x")
    ));
    // The namespace of the account is that of the binding.
    let robot = user("system:serviceaccount:a:robot", &[]);
    assert_eq!(
        decide(&authorizer, &request(robot, "get", "pods", "a", "x")).reason(),
        r#"RBAC: allowed by RoleBinding "readers/a" of ClusterRole "pod-reader" to ServiceAccount "robot/a""#
    );
    let other = user("system:serviceaccount:b:robot", &[]);
    assert!(!allows(
        &authorizer,
        &request(other, "get", "pods", "a", "x")
    ));
}

#[test]
fn a_cluster_role_binding_ignores_an_account_without_namespace() {
    let authorizer = authorizer(&[
        pod_reader(RbacKind::ClusterRole, ""),
        (
            RbacKind::ClusterRoleBinding,
            "",
            "b",
            json!({
                "roleRef": {"kind": "ClusterRole", "name": "pod-reader"},
                "subjects": [{"kind": "ServiceAccount", "name": "robot"}, {"kind": "Group", "name": "g"}],
            }),
        ),
    ]);
    let robot = user("system:serviceaccount::robot", &[]);
    assert!(!allows(
        &authorizer,
        &request(robot, "get", "pods", "", "x")
    ));
    let member = user("m", &["g"]);
    assert!(allows(
        &authorizer,
        &request(member.clone(), "get", "pods", "any", "x")
    ));
    assert!(allows(
        &authorizer,
        &request(member, "list", "pods", "", "")
    ));
}

#[test]
fn a_binding_of_a_missing_role_explains_the_refusal() {
    let authorizer = authorizer(&[(
        RbacKind::RoleBinding,
        "a",
        "b",
        json!({
            "roleRef": {"kind": "Role", "name": "none"}, "subjects": [{"kind": "User", "name": "jane"}],
        }),
    )]);
    assert_eq!(
        decide(
            &authorizer,
            &request(user("jane", &[]), "get", "pods", "a", "x")
        ),
        Decision::NoOpinion(r#"RBAC: role.rbac.authorization.k8s.io "none" not found"#.into())
    );
    assert_eq!(
        decide(
            &authorizer,
            &request(user("joe", &[]), "get", "pods", "a", "x")
        ),
        Decision::NoOpinion("".into())
    );
}

#[test]
fn changes_of_roles_and_bindings_take_effect() {
    let authorizer = authorizer(&[
        pod_reader(RbacKind::Role, "a"),
        (
            RbacKind::RoleBinding,
            "a",
            "b",
            json!({
                "roleRef": {"kind": "Role", "name": "pod-reader"}, "subjects": [{"kind": "User", "name": "jane"}],
            }),
        ),
    ]);
    let get = request(user("jane", &[]), "get", "pods", "a", "x");
    assert!(allows(&authorizer, &get));
    let deleted = RbacChange {
        namespace: "a",
        name: "pod-reader",
        object: None,
    };
    assert!(authorizer.change(RbacKind::Role, [deleted]).is_empty());
    assert!(!allows(&authorizer, &get));
    let created = RbacChange {
        object: Some(br#"{"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}"#),
        ..deleted
    };
    assert!(authorizer.replace(RbacKind::Role, [created]).is_empty());
    assert!(allows(&authorizer, &get));
    assert!(authorizer.replace(RbacKind::RoleBinding, []).is_empty());
    assert!(!allows(&authorizer, &get));
}

#[test]
fn an_invalid_object_is_an_error_and_grants_nothing() {
    let authorizer = authorizer(&[]);
    let invalid = RbacChange {
        namespace: "a",
        name: "b",
        object: Some(br#"{"rules":7}"#),
    };
    let errors = authorizer.change(RbacKind::Role, [invalid]);
    let text = errors[0].to_string();
    assert!(
        text.starts_with(r#"roles "a/b" is invalid and grants nothing: invalid type"#),
        "{text}"
    );
}

#[test]
fn the_default_policy_is_upstreams() {
    let policy = default_policy();
    let authorizer = RbacAuthorizer::new();
    for default in &policy {
        let object = default.object.to_string();
        let change = RbacChange {
            namespace: &default.namespace,
            name: &default.name,
            object: Some(object.as_bytes()),
        };
        assert!(authorizer.change(default.kind, [change]).is_empty());
    }
    let anonymous = Arc::new(UserInfo {
        name: "system:anonymous".to_owned(),
        groups: vec!["system:unauthenticated".to_owned()],
        ..UserInfo::default()
    });
    let path = |user: &Arc<UserInfo>, path: &str| Attributes {
        user: user.clone(),
        verb: "get".to_owned(),
        path: path.to_owned(),
        ..Attributes::default()
    };
    assert!(allows(&authorizer, &path(&anonymous, "/healthz")));
    assert!(allows(&authorizer, &path(&anonymous, "/version/")));
    assert!(!allows(&authorizer, &path(&anonymous, "/api")));
    let account = user(
        "system:serviceaccount:default:default",
        &["system:serviceaccounts"],
    );
    assert!(allows(&authorizer, &path(&account, "/apis/apps/v1")));
    assert!(!allows(&authorizer, &path(&account, "/metrics")));
    assert!(!allows(
        &authorizer,
        &request(account, "list", "pods", "default", "")
    ));
    let controller = user(
        "system:serviceaccount:kube-system:namespace-controller",
        &[],
    );
    assert!(allows(
        &authorizer,
        &request(controller, "deletecollection", "pods", "x", "")
    ));
    let admin = user("admin", &["system:masters"]);
    assert!(allows(
        &authorizer,
        &request(admin, "escalate", "roles", "x", "y")
    ));
}

#[test]
fn a_user_must_have_every_part_of_what_he_grants() {
    let rules = |value: Value| serde_json::from_value::<Vec<PolicyRule>>(value).unwrap();
    let owned = rules(json!([
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/scale"]},
        {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["web"]},
        {"verbs": ["get"], "nonResourceURLs": ["/logs/*"]},
    ]));
    for (granted, missing) in [
        (
            json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "x/scale"]}]),
            vec![],
        ),
        (
            json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]),
            vec![],
        ),
        (
            json!([{"verbs": ["patch"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["web"]}]),
            vec![],
        ),
        (
            json!([{"verbs": ["get"], "nonResourceURLs": ["/logs/x", "/logs/*"]}]),
            vec![],
        ),
        (
            json!([{"verbs": ["get", "watch"], "apiGroups": [""], "resources": ["pods"]}]),
            vec![r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch"]}"#],
        ),
        (
            json!([{"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments"]}]),
            vec![r#"{APIGroups:["apps"], Resources:["deployments"], Verbs:["*"]}"#],
        ),
        (
            json!([{"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["*"]}]),
            vec![
                r#"{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["*"], Verbs:["get"]}"#,
            ],
        ),
        (
            json!([{"verbs": ["get"], "nonResourceURLs": ["/*"]}]),
            vec![r#"{NonResourceURLs:["/*"], Verbs:["get"]}"#],
        ),
    ] {
        let found: Vec<String> = missing_rules(&owned, &rules(granted.clone()))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, missing, "{granted}");
    }
}

/// A new server denied discovery to every user until it had created the default roles.
#[tokio::test]
async fn the_default_policy_applies_until_it_is_stored() {
    let authorizer = RbacAuthorizer::with_default_policy();
    let discovery = Attributes {
        user: Arc::new(UserInfo::authenticated(
            "jane".into(),
            String::new(),
            Vec::new(),
        )),
        verb: "get".to_owned(),
        path: "/api".to_owned(),
        ..Attributes::default()
    };
    let is_allowed = async || authorizer.authorize(&discovery).await.is_allowed();
    assert!(is_allowed().await);
    // Storage has no default object yet.
    for kind in RbacKind::ALL {
        assert!(authorizer.replace(kind, []).is_empty());
    }
    assert!(is_allowed().await);
    // A stored object replaces the default one.
    let without_subjects =
        br#"{"roleRef": {"kind": "ClusterRole", "name": "system:discovery"}, "subjects": []}"#;
    let binding = |object| RbacChange {
        namespace: "",
        name: "system:discovery",
        object,
    };
    let kind = RbacKind::ClusterRoleBinding;
    assert!(
        authorizer
            .change(kind, [binding(Some(&without_subjects[..]))])
            .is_empty()
    );
    assert!(!is_allowed().await);
    assert!(authorizer.change(kind, [binding(None)]).is_empty());
    assert!(is_allowed().await);
    authorizer.omit_defaults();
    assert!(!is_allowed().await);
}

/// The filters of a decision would skip them.
#[test]
fn rules_that_allow_nothing_are_listed() {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": []}]);
    let subjects = json!([{"kind": "User", "name": "jane"}]);
    let authorizer = authorizer(&[
        (RbacKind::Role, "web", "none", json!({"rules": rules})),
        (
            RbacKind::RoleBinding,
            "web",
            "none",
            json!({"roleRef": {"kind": "Role", "name": "none"}, "subjects": subjects}),
        ),
    ]);
    let (rules, errors) = authorizer.rules_of(&user("jane", &[]), "web");
    assert_eq!(errors, [""; 0]);
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].resources, ["pods"]);
    assert_eq!(authorizer.rules_of(&user("jane", &[]), "other").0, []);
}

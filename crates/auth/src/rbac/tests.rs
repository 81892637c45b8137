//! Tests of RBAC: the rules of upstream one by one, the default policy, and random policies against a reference.

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

/// Decides by the definition of RBAC in Kubernetes' documentation, over the JSON of all objects.
fn reference(objects: &[(RbacKind, String, String, Value)], request: &Attributes) -> bool {
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let bound = |binding: &Value, namespace: &str| {
        binding["subjects"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|subject| {
                let name = subject["name"].as_str().unwrap();
                match subject["kind"].as_str().unwrap() {
                    "User" => request.user.name == name,
                    "Group" => request.user.groups.iter().any(|group| group == name),
                    _ => {
                        let own = subject["namespace"].as_str().unwrap_or(namespace);
                        request.user.name == format!("system:serviceaccount:{own}:{name}")
                    }
                }
            })
    };
    let rule_allows = |rule: &Value| {
        let member = |name: &str, wanted: &[&str]| {
            texts(&rule[name])
                .iter()
                .any(|value| wanted.contains(&&**value))
        };
        if !member("verbs", &["*", &request.verb]) {
            return false;
        }
        if !request.is_resource_request {
            return texts(&rule["nonResourceURLs"])
                .iter()
                .any(|url| match url.strip_suffix('*') {
                    Some(prefix) => request.path.starts_with(prefix),
                    None => request.path == *url,
                });
        }
        let resource = match &*request.subresource {
            "" => vec!["*".to_owned(), request.resource.clone()],
            sub => vec![
                "*".to_owned(),
                format!("*/{sub}"),
                format!("{}/{sub}", request.resource),
            ],
        };
        let resource: Vec<&str> = resource.iter().map(|one| &**one).collect();
        member("apiGroups", &["*", &request.api_group])
            && member("resources", &resource)
            && (texts(&rule["resourceNames"]).is_empty()
                || member("resourceNames", &[&request.name]))
    };
    objects.iter().any(|(kind, namespace, _, binding)| {
        let applies = match kind {
            RbacKind::ClusterRoleBinding => true,
            RbacKind::RoleBinding => *namespace == request.namespace,
            _ => false,
        };
        let wanted = match binding["roleRef"]["kind"].as_str() {
            Some("ClusterRole") => RbacKind::ClusterRole,
            _ => RbacKind::Role,
        };
        applies
            && bound(binding, namespace)
            && objects.iter().any(|(kind, of, name, role)| {
                *kind == wanted
                    && (wanted == RbacKind::ClusterRole || of == namespace)
                    && binding["roleRef"]["name"] == **name
                    && role["rules"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .any(rule_allows)
            })
    })
}

#[test]
fn decisions_equal_those_of_the_reference() {
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed_or(1));
    let (mut allowed, mut refused) = (0, 0);
    for _ in 0..200 {
        let objects = random_objects(&mut random);
        let authorizer = RbacAuthorizer::new();
        for (kind, namespace, name, object) in &objects {
            let object = object.to_string();
            let change = RbacChange {
                namespace,
                name,
                object: Some(object.as_bytes()),
            };
            assert!(authorizer.change(*kind, [change]).is_empty());
        }
        for _ in 0..50 {
            let request = random_request(&mut random);
            let expected = reference(&objects, &request);
            assert_eq!(
                allows(&authorizer, &request),
                expected,
                "{request:?}\n{objects:#?}"
            );
            *if expected { &mut allowed } else { &mut refused } += 1;
        }
    }
    // Neither answer is rare.
    assert!(
        allowed > 500 && refused > 500,
        "{allowed} allowed, {refused} refused"
    );
}

const VERBS: &[&str] = &["get", "list", "create", "*"];
const GROUPS: &[&str] = &["", "apps", "*"];
const RESOURCES: &[&str] = &[
    "pods",
    "pods/log",
    "deployments",
    "*/scale",
    "deployments/scale",
    "*",
];
const NAMES: &[&str] = &["a", "b"];
const PATHS: &[&str] = &["/metrics", "/logs/*", "/logs/x", "*"];
const NAMESPACES: &[&str] = &["n", "m"];
const USERS: &[&str] = &[
    "jane",
    "joe",
    "system:serviceaccount:n:robot",
    "system:serviceaccount:m:robot",
];

fn one(random: &mut fastrand::Rng, of: &[&str]) -> String {
    of[random.usize(..of.len())].to_owned()
}

fn some(random: &mut fastrand::Rng, of: &[&str], least: usize) -> Vec<String> {
    (0..random.usize(least..=3))
        .map(|_| one(random, of))
        .collect()
}

fn random_objects(random: &mut fastrand::Rng) -> Vec<(RbacKind, String, String, Value)> {
    let mut objects = Vec::new();
    for kind in [
        RbacKind::ClusterRole,
        RbacKind::Role,
        RbacKind::ClusterRoleBinding,
        RbacKind::RoleBinding,
    ] {
        let is_cluster = matches!(kind, RbacKind::ClusterRole | RbacKind::ClusterRoleBinding);
        let mut taken = std::collections::BTreeSet::new();
        for _ in 0..random.usize(1..9) {
            let namespace = if is_cluster {
                String::new()
            } else {
                one(random, NAMESPACES)
            };
            let name = one(random, NAMES);
            let object = match kind {
                RbacKind::ClusterRole | RbacKind::Role => {
                    let rules: Vec<Value> = (0..random.usize(0..5))
                        .map(|_| random_rule(random))
                        .collect();
                    json!({"rules": rules})
                }
                _ => random_binding(random, is_cluster),
            };
            if taken.insert((namespace.clone(), name.clone())) {
                objects.push((kind, namespace, name, object));
            }
        }
    }
    objects
}

fn random_rule(random: &mut fastrand::Rng) -> Value {
    match random.u8(..4) {
        0 => json!({"verbs": some(random, VERBS, 1), "nonResourceURLs": some(random, PATHS, 1)}),
        _ => json!({
            "verbs": some(random, VERBS, 1),
            "apiGroups": some(random, GROUPS, 1),
            "resources": some(random, RESOURCES, 1),
            "resourceNames": if random.bool() { Vec::new() } else { some(random, NAMES, 0) },
        }),
    }
}

fn random_binding(random: &mut fastrand::Rng, is_cluster: bool) -> Value {
    let role = if is_cluster || random.bool() {
        "ClusterRole"
    } else {
        "Role"
    };
    let subjects: Vec<Value> = (0..random.usize(0..6))
        .map(|_| match random.u8(..3) {
            0 => json!({"kind": "User", "name": one(random, USERS)}),
            1 => json!({"kind": "Group", "name": one(random, &["g", "h", "system:authenticated"])}),
            _ => json!({"kind": "ServiceAccount", "name": "robot", "namespace": one(random, NAMESPACES)}),
        })
        .collect();
    json!({"roleRef": {"kind": role, "name": one(random, &["a", "b", "none"])}, "subjects": subjects})
}

fn random_request(random: &mut fastrand::Rng) -> Attributes {
    let groups = some(random, &["g", "h"], 0);
    let groups: Vec<&str> = groups.iter().map(|group| &**group).collect();
    let user = user(&one(random, USERS), &groups);
    if random.u8(..4) == 0 {
        return Attributes {
            user,
            verb: one(random, &["get", "post"]),
            path: one(random, &["/metrics", "/logs/x", "/logs/", "/logsx"]),
            ..Attributes::default()
        };
    }
    let resource = one(
        random,
        &[
            "pods",
            "pods/log",
            "deployments",
            "deployments/scale",
            "pods/scale",
        ],
    );
    let verb = one(random, &["get", "list", "create", "delete"]);
    let namespace = one(random, &["n", "m", ""]);
    let name = one(random, &["a", "b", ""]);
    Attributes {
        api_group: one(random, &["", "apps"]),
        ..request(user, &verb, &resource, &namespace, &name)
    }
}

//! Random policies: decisions equal those of a reference that reads the JSON of the objects.

use serde_json::{Value, json};

use super::{allows, request, user};
use crate::attributes::Attributes;
use crate::rbac::{RbacAuthorizer, RbacChange, RbacKind};

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
        let member = |name: &str, accepted: &[&str]| {
            texts(&rule[name])
                .iter()
                .any(|value| accepted.contains(&&**value))
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
        let role_kind = match binding["roleRef"]["kind"].as_str() {
            Some("ClusterRole") => RbacKind::ClusterRole,
            _ => RbacKind::Role,
        };
        applies
            && bound(binding, namespace)
            && objects.iter().any(|(kind, of, name, role)| {
                *kind == role_kind
                    && (role_kind == RbacKind::ClusterRole || of == namespace)
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
    // Both decisions are frequent.
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

//! The time of a decision by roles, and of a change: `cargo bench --bench authorization`.
//!
//! 2,000 roles of three rules, 500 cluster roles, 4,500 role bindings in 300 namespaces and 500 cluster role bindings; the
//! requests are of 400 users in three groups each, half of them allowed. Each decision is timed alone, so the figures
//! contain the some 20 ns of reading the clock twice.

use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;
use watchet::api::UserInfo;
use watchet::auth::rbac::{RbacAuthorizer, RbacChange, RbacKind};
use watchet::auth::{Attributes, Authorizer as _};

const NAMESPACES: usize = 300;
const USERS: usize = 400;
const GROUPS: usize = 40;
const ROLES: usize = 2_000;
const CLUSTER_ROLES: usize = 500;
const ROLE_BINDINGS: usize = 4_500;
const DECISIONS: usize = 200_000;
const CHANGES: usize = 50;

const RESOURCES: [&str; 8] = [
    "pods",
    "services",
    "secrets",
    "configmaps",
    "endpoints",
    "events",
    "nodes",
    "serviceaccounts",
];

/// The objects of a kind, as namespace, name and JSON.
type Objects = Vec<(String, String, String)>;

fn role(number: usize) -> String {
    let rule = |n: usize, verbs: &[&str]| json!({"apiGroups": [""], "resources": [RESOURCES[(number + n) % RESOURCES.len()]], "verbs": verbs});
    let rules = [
        rule(0, &["get", "list", "watch"]),
        rule(1, &["create", "update"]),
        rule(2, &["*"]),
    ];
    json!({"rules": rules}).to_string()
}

fn binding(number: usize, kind: &str, role: String) -> String {
    let subject: Value = match number % 3 {
        0 => json!({"kind": "Group", "name": format!("group-{}", number % GROUPS)}),
        _ => json!({"kind": "User", "name": format!("user-{}", number % USERS)}),
    };
    json!({"roleRef": {"kind": kind, "name": role}, "subjects": [subject]}).to_string()
}

fn pass(authorizer: &RbacAuthorizer, kind: RbacKind, objects: &Objects) {
    let changes = objects.iter().map(|(namespace, name, object)| RbacChange {
        namespace,
        name,
        object: Some(object.as_bytes()),
    });
    let errors = authorizer.replace(kind, changes);
    assert!(errors.is_empty(), "{errors:?}");
}

fn authorizer() -> RbacAuthorizer {
    let namespace = |n: usize| format!("namespace-{}", n % NAMESPACES);
    let roles = (0..ROLES).map(|n| (namespace(n), format!("role-{n}"), role(n)));
    let cluster_roles =
        (0..CLUSTER_ROLES).map(|n| (String::new(), format!("cluster-{n}"), role(n)));
    let bindings = (0..ROLE_BINDINGS).map(|n| {
        // Of the roles in the namespace of the binding.
        let of_role = format!("role-{}", (n % NAMESPACES) + NAMESPACES * (n % 6));
        (
            namespace(n),
            format!("binding-{n}"),
            binding(n, "Role", of_role),
        )
    });
    let cluster_bindings = (0..CLUSTER_ROLES).map(|n| {
        let binding = binding(n, "ClusterRole", format!("cluster-{n}"));
        (String::new(), format!("binding-{n}"), binding)
    });
    let authorizer = RbacAuthorizer::with_default_policy();
    pass(&authorizer, RbacKind::Role, &roles.collect());
    pass(&authorizer, RbacKind::ClusterRole, &cluster_roles.collect());
    pass(&authorizer, RbacKind::RoleBinding, &bindings.collect());
    pass(
        &authorizer,
        RbacKind::ClusterRoleBinding,
        &cluster_bindings.collect(),
    );
    authorizer
}

fn requests() -> Vec<Attributes> {
    let mut random = fastrand::Rng::with_seed(1);
    let users: Vec<Arc<UserInfo>> = (0..USERS)
        .map(|n| {
            let groups = (0..3).map(|group| format!("group-{}", (n + group * 7) % GROUPS));
            let groups = groups.chain(["system:authenticated".to_owned()]).collect();
            let name = format!("user-{n}");
            Arc::new(UserInfo {
                name,
                groups,
                ..UserInfo::default()
            })
        })
        .collect();
    (0..DECISIONS)
        .map(|_| Attributes {
            user: Arc::clone(&users[random.usize(..USERS)]),
            verb: ["get", "list", "create", "delete"][random.usize(..4)].to_owned(),
            is_resource_request: true,
            resource: RESOURCES[random.usize(..RESOURCES.len())].to_owned(),
            namespace: format!("namespace-{}", random.usize(..NAMESPACES)),
            name: "object".to_owned(),
            ..Attributes::default()
        })
        .collect()
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let (authorizer, requests) = (authorizer(), requests());
    let mut allowed = 0;
    let mut times: Vec<Duration> = Vec::with_capacity(DECISIONS);
    for request in &requests {
        let begin = Instant::now();
        let decision = black_box(&authorizer)
            .authorize(black_box(request))
            .now_or_never();
        times.push(begin.elapsed());
        allowed += usize::from(decision.expect("it does not wait").is_allowed());
    }
    times.sort_unstable();
    let (p50, p99) = (percentile(&times, 50), percentile(&times, 99));
    writeln!(
        out,
        "decision: p50 {p50:?}, p99 {p99:?} ({DECISIONS} decisions, {allowed} allowed)"
    )?;

    let mut changes: Vec<Duration> = Vec::with_capacity(CHANGES);
    for n in 0..CHANGES {
        let (name, object) = (format!("new-{n}"), role(n));
        let begin = Instant::now();
        let change = RbacChange {
            namespace: "namespace-0",
            name: &name,
            object: Some(object.as_bytes()),
        };
        let errors = authorizer.change(RbacKind::Role, [change]);
        changes.push(begin.elapsed());
        assert!(errors.is_empty(), "{errors:?}");
    }
    changes.sort_unstable();
    let (p50, p99) = (percentile(&changes, 50), percentile(&changes, 99));
    writeln!(out, "change: p50 {p50:?}, p99 {p99:?}")
}

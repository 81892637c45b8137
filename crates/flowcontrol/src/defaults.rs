//! The default objects: the mandatory and the suggested ones of kube-apiserver (`pkg/apis/flowcontrol/bootstrap`).

use serde_json::{Value, json};

use crate::objects::{EXEMPT, FlowSchema, PriorityLevelConfiguration};

/// The annotation of default objects: with `true` the server restores the default spec, with `false` users maintain it.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// A default object.
#[derive(Debug, Clone, PartialEq)]
pub struct DefaultObject {
    /// The name.
    pub name: &'static str,
    /// The spec, as the server stores it.
    pub spec: Value,
    /// True if users cannot change its spec, and the server creates it again after a deletion.
    pub is_mandatory: bool,
}

/// Returns the default PriorityLevelConfigurations.
pub fn default_levels() -> Vec<DefaultObject> {
    let suggested = [
        ("system", 30, 33, (64, 6)),
        ("node-high", 40, 25, (64, 6)),
        ("leader-election", 10, 0, (16, 4)),
        ("workload-high", 40, 50, (128, 6)),
        ("workload-low", 100, 90, (128, 6)),
        ("global-default", 20, 50, (128, 6)),
    ];
    let suggested = suggested.map(|(name, shares, lendable, (queues, hand_size))| {
        let queuing = json!({"queues": queues, "handSize": hand_size, "queueLengthLimit": 50});
        let response = json!({"type": "Queue", "queuing": queuing});
        object(name, limited(shares, lendable, response))
    });
    let exempt = json!({
        "type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0},
    });
    let mandatory = [
        object("exempt", exempt),
        object("catch-all", limited(5, 0, json!({"type": "Reject"}))),
    ];
    mandatory
        .map(mandated)
        .into_iter()
        .chain(suggested)
        .collect()
}

fn limited(shares: i32, lendable: i32, response: Value) -> Value {
    let limited = json!({
        "nominalConcurrencyShares": shares, "limitResponse": response, "lendablePercent": lendable,
    });
    json!({"type": "Limited", "limited": limited})
}

/// Returns the default FlowSchemas.
pub fn default_schemas() -> Vec<DefaultObject> {
    let manager = user("system:kube-controller-manager");
    let scheduler = user("system:kube-scheduler");
    let in_system = |name: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": "kube-system"}});
    let all_users = || {
        let groups = ["system:unauthenticated", "system:authenticated"];
        groups.map(group).to_vec()
    };
    let nodes = || vec![group("system:nodes")];
    let leader_verbs = ["get", "create", "update"];
    let leases = resources(
        &leader_verbs,
        &["coordination.k8s.io"],
        &["leases"],
        "*",
        false,
    );
    let node_rules = vec![
        resources(&["*"], &[""], &["nodes", "nodes/status"], "*", true),
        resources(&["*"], &["coordination.k8s.io"], &["leases"], "*", false),
    ];
    let leaders = vec![manager.clone(), scheduler.clone(), in_system("*")];
    let by_user = Some("ByUser");
    let by_namespace = Some("ByNamespace");
    let probes = json!({
        "subjects": all_users(),
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
    });
    let of = |subjects: Vec<Value>, rules: Vec<Value>| json!({"subjects": subjects, "resourceRules": rules});
    let mandatory = [
        schema(
            "exempt",
            "exempt",
            1,
            None,
            all(vec![group("system:masters")]),
        ),
        schema("catch-all", "catch-all", 10_000, by_user, all(all_users())),
    ];
    let suggested = [
        schema("probes", "exempt", 2, None, probes),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            by_user,
            of(leaders, vec![leases]),
        ),
        schema(
            "system-node-high",
            "node-high",
            400,
            by_user,
            of(nodes(), node_rules),
        ),
        schema("system-nodes", "system", 500, by_user, all(nodes())),
        schema(
            "kube-controller-manager",
            "workload-high",
            800,
            by_namespace,
            all(vec![manager]),
        ),
        schema(
            "kube-scheduler",
            "workload-high",
            800,
            by_namespace,
            all(vec![scheduler]),
        ),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            by_namespace,
            all(vec![in_system("*")]),
        ),
        schema(
            "service-accounts",
            "workload-low",
            9_000,
            by_user,
            all(vec![group("system:serviceaccounts")]),
        ),
        schema(
            "global-default",
            "global-default",
            9_900,
            by_user,
            all(all_users()),
        ),
    ];
    mandatory
        .map(mandated)
        .into_iter()
        .chain(suggested)
        .collect()
}

fn object(name: &'static str, spec: Value) -> DefaultObject {
    DefaultObject {
        name,
        spec,
        is_mandatory: false,
    }
}

fn mandated(object: DefaultObject) -> DefaultObject {
    DefaultObject {
        is_mandatory: true,
        ..object
    }
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn resources(
    verbs: &[&str],
    groups: &[&str],
    resources: &[&str],
    namespace: &str,
    is_cluster_scope: bool,
) -> Value {
    let mut rule = json!({
        "verbs": verbs, "apiGroups": groups, "resources": resources, "namespaces": [namespace],
    });
    if is_cluster_scope {
        rule["clusterScope"] = true.into();
    }
    rule
}

/// Returns the rule for all requests of the subjects.
fn all(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [resources(&["*"], &["*"], &["*"], "*", true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn schema(
    name: &'static str,
    level: &str,
    precedence: i32,
    distinguisher: Option<&str>,
    rule: Value,
) -> DefaultObject {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [rule],
    });
    if let Some(kind) = distinguisher {
        spec["distinguisherMethod"] = json!({"type": kind});
    }
    object(name, spec)
}

impl FlowSchema {
    /// Returns true if a schema of this name may have the spec of `schema`: the spec of a mandatory schema is fixed.
    /// `None` is an object that cannot be parsed.
    pub fn allows_spec(name: &str, schema: Option<&Self>) -> bool {
        let mut mandatory = mandatory_schemas();
        let fixed = mandatory.find(|mandatory| mandatory.name() == name);
        fixed.is_none_or(|fixed| schema.is_some_and(|schema| schema.spec == fixed.spec))
    }
}

impl PriorityLevelConfiguration {
    /// Returns true if a level of this name may have the spec of `level`: the spec of a mandatory level is fixed,
    /// except for the field `exempt` of the level `exempt`. `None` is an object that cannot be parsed.
    pub fn allows_spec(name: &str, level: Option<&Self>) -> bool {
        let mut mandatory = mandatory_levels();
        let Some(mut fixed) = mandatory.find(|mandatory| mandatory.name() == name) else {
            return true;
        };
        level.is_some_and(|level| {
            if name == EXEMPT {
                fixed.spec.exempt.clone_from(&level.spec.exempt);
            }
            level.spec == fixed.spec
        })
    }
}

/// Returns the mandatory schemas, in the order of their precedence.
pub(crate) fn mandatory_schemas() -> impl Iterator<Item = FlowSchema> {
    let mandatory = default_schemas()
        .into_iter()
        .filter(|object| object.is_mandatory);
    mandatory.map(|object| parsed(object, FlowSchema::parse))
}

/// Returns the mandatory levels.
pub(crate) fn mandatory_levels() -> impl Iterator<Item = PriorityLevelConfiguration> {
    let mandatory = default_levels()
        .into_iter()
        .filter(|object| object.is_mandatory);
    mandatory.map(|object| parsed(object, PriorityLevelConfiguration::parse))
}

fn parsed<T>(object: DefaultObject, parse: fn(&[u8]) -> Result<T, serde_json::Error>) -> T {
    let object = json!({"metadata": {"name": object.name}, "spec": object.spec});
    parse(object.to_string().as_bytes()).expect("the default objects have the types of the API")
}

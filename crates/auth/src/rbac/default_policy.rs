//! The default roles and bindings of a cluster.

use serde_json::Value;

use super::kind::RbacKind;

/// Generated from upstream's by `scripts/type-tables`: one JSON object in a line.
const POLICY: &str = include_str!("default_policy.txt");

/// A default role or binding.
#[derive(Debug, Clone, PartialEq)]
pub struct DefaultObject {
    /// The kind of the object.
    pub kind: RbacKind,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The object.
    pub object: Value,
}

/// Returns the roles and bindings that every cluster has, in the order of their creation.
pub fn default_policy() -> Vec<DefaultObject> {
    let lines = POLICY.lines().filter(|line| !line.starts_with('#'));
    lines.map(parse).collect()
}

fn parse(line: &str) -> DefaultObject {
    let object: Value = serde_json::from_str(line).expect("the generated file has JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = match object["kind"].as_str() {
        Some("ClusterRole") => RbacKind::ClusterRole,
        Some("Role") => RbacKind::Role,
        Some("ClusterRoleBinding") => RbacKind::ClusterRoleBinding,
        Some("RoleBinding") => RbacKind::RoleBinding,
        kind => panic!("the generated file has an object of kind {kind:?}"),
    };
    DefaultObject {
        kind,
        namespace: text(&object["metadata"]["namespace"]),
        name: text(&object["metadata"]["name"]),
        object,
    }
}

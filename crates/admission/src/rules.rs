//! The rules of webhooks and policies: match a write by its operation, group, version, resource, subresource and scope,
//! like upstream's matcher. `matching` evaluates selectors, and `webhook::conditions` evaluates match conditions.

use k8s_openapi::api::admissionregistration::v1::{NamedRuleWithOperations, RuleWithOperations};

use super::request::{AdmissionRequest, GroupVersionResource};

/// A rule, which matches writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// The resources, each with its subresource, which is empty for the resource itself.
    resources: Vec<(String, String)>,
    scope: Scope,
    /// The names of the objects; empty for all.
    names: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    All,
    Cluster,
    Namespaced,
}

impl Rule {
    pub(super) fn of_webhook(rule: &RuleWithOperations) -> Self {
        let resource = |text: &String| match text.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (text.clone(), String::new()),
        };
        Self {
            operations: rule.operations.clone().unwrap_or_default(),
            groups: rule.api_groups.clone().unwrap_or_default(),
            versions: rule.api_versions.clone().unwrap_or_default(),
            resources: rule.resources.iter().flatten().map(resource).collect(),
            scope: match rule.scope.as_deref() {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
            names: Vec::new(),
        }
    }

    /// Returns a rule that matches every write.
    pub(super) fn any() -> Self {
        let any = || vec!["*".to_owned()];
        Self {
            operations: any(),
            groups: any(),
            versions: any(),
            resources: vec![("*".to_owned(), "*".to_owned())],
            ..Self::default()
        }
    }

    pub(super) fn of_policy(rule: &NamedRuleWithOperations) -> Self {
        let webhook = RuleWithOperations {
            api_groups: rule.api_groups.clone(),
            api_versions: rule.api_versions.clone(),
            operations: rule.operations.clone(),
            resources: rule.resources.clone(),
            scope: rule.scope.clone(),
        };
        Self {
            names: rule.resource_names.clone().unwrap_or_default(),
            ..Self::of_webhook(&webhook)
        }
    }

    /// Returns true if the rule matches `write` in the resource `resource`.
    pub(super) fn matches(
        &self,
        write: &AdmissionRequest<'_>,
        resource: &GroupVersionResource,
    ) -> bool {
        let one_of = |expected: &[String], is: &str| expected.iter().any(|w| w == "*" || w == is);
        let is_resource = |(expected, subresource): &(String, String)| {
            (expected == "*" || *expected == resource.resource)
                && (subresource == "*" || subresource == write.subresource)
        };
        self.has_scope(write)
            && one_of(&self.operations, write.operation.as_str())
            && one_of(&self.groups, &resource.group)
            && one_of(&self.versions, &resource.version)
            && self.resources.iter().any(is_resource)
            && (self.names.is_empty() || self.names.iter().any(|name| name == write.name))
    }

    fn has_scope(&self, write: &AdmissionRequest<'_>) -> bool {
        let of_cluster = write.namespace.is_empty() || write.is_of_namespaces();
        match self.scope {
            Scope::All => true,
            Scope::Cluster => of_cluster,
            Scope::Namespaced => !of_cluster,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::request::Operation;
    use super::super::testing;
    use super::*;

    fn check(rule: Value, resource: &str, expect: bool) {
        let mut written = json!({
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
        });
        for (key, value) in rule.as_object().unwrap() {
            written[key] = value.clone();
        }
        let read: NamedRuleWithOperations = serde_json::from_value(written).unwrap();
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (group, resource) = resource.split_once(':').unwrap_or(("", resource));
        let namespace = match resource {
            "nodes" => "",
            _ => "ns",
        };
        let mut write = testing::write(Operation::Update, resource, namespace, "one");
        write.resource.group = group.to_owned();
        write.subresource = subresource;
        let matched = Rule::of_policy(&read).matches(&write, &write.resource);
        assert_eq!(matched, expect, "{rule} of {resource}/{subresource}");
    }

    #[test]
    fn rules_distinguish_resources_and_subresources() {
        check(json!({"resources": ["pods"]}), "pods", true);
        check(json!({"resources": ["pods"]}), "pods/status", false);
        check(json!({"resources": ["pods/status"]}), "pods/status", true);
        check(json!({"resources": ["pods/status"]}), "pods", false);
        check(json!({"resources": ["pods/*"]}), "pods/status", true);
        check(json!({"resources": ["pods/*"]}), "pods", true);
        check(json!({"resources": ["*"]}), "pods", true);
        check(json!({"resources": ["*"]}), "pods/status", false);
        check(json!({"resources": ["*/status"]}), "pods/status", true);
        check(json!({"resources": ["*/scale"]}), "pods/status", false);
        check(json!({"resources": ["*/*"]}), "pods", true);
        check(json!({"resources": ["*/*"]}), "pods/status", true);
        check(json!({"resources": ["services", "pods"]}), "pods", true);
    }

    #[test]
    fn groups_versions_operations_and_names_count() {
        check(json!({"apiGroups": [""]}), "pods", true);
        check(json!({"apiGroups": ["apps"]}), "pods", false);
        check(json!({"apiGroups": ["apps"]}), "apps:deployments", true);
        check(json!({"apiVersions": ["v1beta1"]}), "pods", false);
        check(json!({"operations": ["CREATE", "DELETE"]}), "pods", false);
        check(json!({"operations": ["CREATE", "UPDATE"]}), "pods", true);
        check(json!({"resourceNames": ["one"]}), "pods", true);
        check(json!({"resourceNames": ["two"]}), "pods", false);
    }

    /// The scope of a Namespace is the cluster, although its admission request has its own name as the namespace.
    #[test]
    fn scopes_are_of_the_object() {
        check(json!({"scope": "Namespaced"}), "pods", true);
        check(json!({"scope": "Cluster"}), "pods", false);
        check(json!({"scope": "Namespaced"}), "nodes", false);
        check(json!({"scope": "Cluster"}), "nodes", true);
        check(json!({"scope": "Namespaced"}), "namespaces", false);
        check(json!({"scope": "Cluster"}), "namespaces", true);
        check(json!({"scope": "*"}), "namespaces", true);
    }
}

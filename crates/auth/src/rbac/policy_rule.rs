//! `PolicyRule`: a rule of a role, and the requests that it allows.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::attributes::Attributes;

/// Matches every verb, group, resource or path.
pub(super) const ALL: &str = "*";

/// A rule of a role, as `PolicyRule` of `rbac.authorization.k8s.io/v1`. It allows requests for resources, or requests
/// for paths if it has `non_resource_urls`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// The verbs; `*` is all.
    #[serde(deserialize_with = "null_as_empty")]
    pub verbs: Vec<String>,
    /// The groups; `*` is all, the empty one is the core group.
    #[serde(
        deserialize_with = "null_as_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub api_groups: Vec<String>,
    /// The resources: `pods`, `pods/log`, `*/scale` (the subresource of all resources), or `*` (all with their
    /// subresources).
    #[serde(
        deserialize_with = "null_as_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub resources: Vec<String>,
    /// The names of the objects; empty is all.
    #[serde(
        deserialize_with = "null_as_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub resource_names: Vec<String>,
    /// The paths; one that ends with `*` matches all that begin with the rest.
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "null_as_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

/// Go writes an empty slice as null.
fn null_as_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn has(values: &[String], value: &str) -> bool {
    values.iter().any(|one| one == value || one == ALL)
}

impl PolicyRule {
    /// Returns true if the rule allows the request.
    pub fn allows(&self, request: &Attributes) -> bool {
        if !has(&self.verbs, &request.verb) {
            return false;
        }
        match request.is_resource_request {
            true => {
                has(&self.api_groups, &request.api_group)
                    && self.has_resource(&request.resource, &request.subresource)
                    && self.has_name(&request.name)
            }
            false => self.has_path(&request.path),
        }
    }

    /// Returns true if the rule matches the resource, or its subresource if that is not empty.
    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|one| match one.split_once('/') {
            None => one == ALL || one == resource && subresource.is_empty(),
            Some((of, sub)) => {
                !subresource.is_empty() && sub == subresource && (of == ALL || of == resource)
            }
        })
    }

    /// Returns true if the rule has no names, or has `name`. The name of a list or create is empty, and no rule has it.
    fn has_name(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|one| one == name)
    }

    fn has_path(&self, path: &str) -> bool {
        self.non_resource_urls
            .iter()
            .any(|one| covers_path(one, path))
    }
}

/// Returns true if the path `pattern` of a rule matches `path`, which may be a pattern too.
pub(super) fn covers_path(pattern: &str, path: &str) -> bool {
    pattern == path
        || pattern
            .ends_with('*')
            .then(|| pattern.trim_end_matches('*'))
            .is_some_and(|prefix| path.starts_with(prefix))
}

/// Formats a rule as upstream in the message of a rejected escalation.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.resource_names),
            ("NonResourceURLs", &self.non_resource_urls),
            ("Verbs", &self.verbs),
        ];
        f.write_str("{")?;
        let mut separator = "";
        for (name, values) in members.into_iter().filter(|(_, values)| !values.is_empty()) {
            let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            write!(f, "{separator}{name}:[{}]", quoted.join(" "))?;
            separator = ", ";
        }
        f.write_str("}")
    }
}

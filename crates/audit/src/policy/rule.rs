//! The rules of a policy, and the attributes of requests that they match.

use serde::Deserialize;

use super::stage::{Level, Stages};
use watchet_api::UserInfo;

/// The attributes of a request that rules match.
#[derive(Debug, Clone, Copy)]
pub struct RequestAttributes<'a> {
    /// The authenticated user; `None` if the authentication failed. Such a request matches rules with any users and
    /// groups, as upstream.
    pub user: Option<&'a UserInfo>,
    /// The verb on a resource, or the method in lower case.
    pub verb: &'a str,
    /// The path of the URL.
    pub path: &'a str,
    /// The resource; `None` for other paths.
    pub resource: Option<ResourceAttributes<'a>>,
}

/// The resource of a request; absent parts are empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceAttributes<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version, such as `v1`.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// The namespace; empty for cluster-scoped resources and requests across namespaces.
    pub namespace: &'a str,
    /// The name of the object; empty for collections.
    pub name: &'a str,
}

/// Resources of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GroupResources {
    /// The API group; empty for the core group.
    pub group: String,
    /// `pods`, `pods/log`, `pods/*`, `*/scale` or `*`; empty for all.
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    pub resource_names: Vec<String>,
}

/// A rule. An empty list matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    /// The level of the events of matching requests.
    pub level: Level,
    /// Names of users.
    pub users: Vec<String>,
    /// Groups, of which the user has at least one.
    pub user_groups: Vec<String>,
    /// Verbs, without wildcards.
    pub verbs: Vec<String>,
    /// Resources.
    pub resources: Vec<GroupResources>,
    /// Namespaces; `""` matches requests without one.
    pub namespaces: Vec<String>,
    /// Paths; with a `*` at the end, every path that begins with the rest.
    pub non_resource_urls: Vec<String>,
    /// Stages without events, in addition to the policy's.
    pub omit_stages: Stages,
    /// Overrides the policy's `omitManagedFields`.
    pub omit_managed_fields: Option<bool>,
}

impl PolicyRule {
    /// Returns true if the rule applies to `request`.
    pub fn matches(&self, request: &RequestAttributes<'_>) -> bool {
        if let Some(user) = request.user {
            if !allows(&self.users, &user.name) {
                return false;
            }
            let is_member = |group: &String| user.groups.contains(group);
            if !self.user_groups.is_empty() && !self.user_groups.iter().any(is_member) {
                return false;
            }
        }
        if !allows(&self.verbs, request.verb) {
            return false;
        }
        let selects_resources = !self.namespaces.is_empty() || !self.resources.is_empty();
        match &request.resource {
            Some(resource) if selects_resources => self.matches_resource(resource),
            None if selects_resources => false,
            Some(_) => self.non_resource_urls.is_empty(),
            None => self.matches_path(request.path),
        }
    }

    fn matches_resource(&self, requested: &ResourceAttributes<'_>) -> bool {
        allows(&self.namespaces, requested.namespace)
            && (self.resources.is_empty()
                || self.resources.iter().any(|group| group.matches(requested)))
    }

    fn matches_path(&self, path: &str) -> bool {
        let matches = |url: &String| match url.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == url,
        };
        self.non_resource_urls.is_empty() || self.non_resource_urls.iter().any(matches)
    }
}

impl GroupResources {
    fn matches(&self, requested: &ResourceAttributes<'_>) -> bool {
        if self.group != requested.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        allows(&self.resource_names, requested.name)
            && self
                .resources
                .iter()
                .any(|pattern| is_resource(pattern, requested))
    }
}

/// Returns true if `pattern` matches a resource, as upstream: `pods/*` also matches `pods` itself.
fn is_resource(pattern: &str, requested: &ResourceAttributes<'_>) -> bool {
    let (resource, subresource) = (requested.resource, requested.subresource);
    match pattern.split_once('/') {
        None => pattern == "*" || (pattern == resource && subresource.is_empty()),
        Some(("*", sub)) if !subresource.is_empty() => sub == subresource,
        Some((named, "*")) => named == resource,
        Some((named, sub)) => named == resource && sub == subresource && !sub.is_empty(),
    }
}

/// Returns true if `allowed` is empty or has `value`.
fn allows(allowed: &[String], value: &str) -> bool {
    allowed.is_empty() || allowed.iter().any(|allowed| allowed == value)
}

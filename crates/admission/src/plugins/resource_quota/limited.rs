//! ResourceQuotaConfiguration, the configuration of the ResourceQuota plugin: resources that a namespace can use only
//! if a quota covers them.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::json;

use super::super::resources::ResourceList;
use super::scope::Scope;
use watchet_api::StatusCause;

/// The scopes of upstream's API.
const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];
const OPERATORS: [&str; 4] = ["DoesNotExist", "Exists", "In", "NotIn"];

/// The resources that a namespace can use only with a quota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::plugins) struct LimitedResources(Vec<Limited>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Limited {
    group: String,
    resource: String,
    /// A quota must cover each resource whose name contains one of these.
    parts: Vec<String>,
    /// A quota must cover each of these scopes that an object is in.
    scopes: Vec<Scope>,
}

/// The configuration file as parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::plugins) struct ResourceQuotaConfiguration {
    limited_resources: Option<Vec<LimitedResource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LimitedResource {
    #[serde(default)]
    api_group: String,
    #[serde(default)]
    resource: String,
    match_contains: Option<Vec<String>>,
    match_scopes: Option<Vec<ScopeRequirement>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScopeRequirement {
    scope_name: String,
    operator: String,
    values: Option<Vec<String>>,
}

impl LimitedResources {
    /// Checks a configuration.
    ///
    /// # Errors
    /// The problems of all values that cannot be used, in upstream's words.
    pub(in crate::plugins) fn check(
        configuration: ResourceQuotaConfiguration,
    ) -> Result<Self, String> {
        let resources = configuration.limited_resources.into_iter().flatten();
        let mut problems = Vec::new();
        let limited = resources.enumerate().map(|(index, limited)| {
            let field = format!("limitedResources[{index}]");
            if limited.resource.is_empty() {
                problems.push(StatusCause::required(&format!("{field}.resource"), ""));
            }
            let scopes = limited.match_scopes.unwrap_or_default();
            for (index, scope) in scopes.iter().enumerate() {
                let field = format!("{field}.matchScopes[{index}]");
                problems.extend(scope_problem(&field, scope));
            }
            let expressions = scopes.into_iter().map(|scope| {
                json!({
                    "scopeName": scope.scope_name,
                    "operator": scope.operator,
                    "values": scope.values.unwrap_or_default(),
                })
            });
            let expressions: Vec<_> = expressions.collect();
            Limited {
                group: limited.api_group,
                resource: limited.resource,
                parts: limited.match_contains.unwrap_or_default(),
                scopes: Scope::all(&json!({"scopeSelector": {"matchExpressions": expressions}})),
            }
        });
        let limited = limited.collect();
        match problems.is_empty() {
            true => Ok(Self(limited)),
            false => {
                let problems = problems.iter();
                let texts = problems.map(|cause| format!("{}: {}", cause.field, cause.message));
                Err(texts.collect::<Vec<_>>().join("; "))
            }
        }
    }

    /// Returns true if nothing is limited.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the limits that need a quota, of those that an object of this resource uses.
    pub(super) fn names<'u>(
        &self,
        (group, resource): (&str, &str),
        usage: &'u ResourceList,
    ) -> BTreeSet<&'u str> {
        let of_resource =
            |limited: &&Limited| limited.group == group && limited.resource == resource;
        let parts = self
            .0
            .iter()
            .filter(of_resource)
            .flat_map(|limited| &limited.parts);
        let parts: Vec<&String> = parts.collect();
        let used = usage.iter();
        let used = used.filter(|(_, amount)| !amount.is_zero() && !amount.is_negative());
        let names = used.map(|(name, _)| name.as_str());
        names
            .filter(|name| parts.iter().any(|part| name.contains(part.as_str())))
            .collect()
    }

    /// Returns the scopes that need a quota. As upstream, those of one resource count for objects of each.
    pub(super) fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.0.iter().flat_map(|limited| &limited.scopes)
    }
}

/// Upstream accepts these values at start, but they have no effect.
fn scope_problem(field: &str, scope: &ScopeRequirement) -> Option<StatusCause> {
    let (name, operator) = (&*scope.scope_name, &*scope.operator);
    let has_values = scope
        .values
        .as_ref()
        .is_some_and(|values| !values.is_empty());
    if !SCOPES.contains(&name) {
        let field = format!("{field}.scopeName");
        return Some(StatusCause::not_supported(&field, name, &SCOPES));
    }
    if !OPERATORS.contains(&operator) {
        let field = format!("{field}.operator");
        return Some(StatusCause::not_supported(&field, operator, &OPERATORS));
    }
    let needs_values = ["In", "NotIn"].contains(&operator);
    (needs_values && !has_values).then(|| {
        let why = "must be at least one value when the operator is 'In' or 'NotIn'";
        StatusCause::required(&format!("{field}.values"), why)
    })
}

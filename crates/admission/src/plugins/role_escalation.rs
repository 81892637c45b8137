//! Refuses a role or binding with which a user would grant permissions that it does not have itself. Upstream does this
//! in the storage of the resources; here it is a step of admission, which cannot be disabled.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::super::cluster::{Cluster, Freshness, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::plugin::AdmissionPlugin;
use watchet_api::{SYSTEM_MASTERS, Status, StatusDetails};
use watchet_auth::rbac::{PolicyRule, missing_rules};
use watchet_auth::{Attributes, SubjectRules};

const GROUP: &str = "rbac.authorization.k8s.io";
const ROLES: [&str; 2] = ["roles", "clusterroles"];
const BINDINGS: [&str; 2] = ["rolebindings", "clusterrolebindings"];

/// The check; see the module.
#[derive(Debug)]
pub(super) struct RoleEscalation;

#[async_trait]
impl AdmissionPlugin for RoleEscalation {
    fn name(&self) -> &'static str {
        "RoleEscalation"
    }

    fn validates(&self, request: Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update)
            && request.group == GROUP
            && request.subresource.is_empty()
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        request: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let is_master = request
            .user
            .groups
            .iter()
            .any(|group| group == SYSTEM_MASTERS);
        if is_master || changes_only_collection_metadata(&request.old_object, &request.object) {
            return Ok(());
        }
        let resource = &*request.resource.resource;
        if ROLES.contains(&resource) {
            check_role(cluster, request).await
        } else if BINDINGS.contains(&resource) {
            check_binding(cluster, request).await
        } else {
            Ok(())
        }
    }
}

/// Returns true for an update of nothing but what garbage collection writes, which grants nothing.
fn changes_only_collection_metadata(old: &Value, new: &Value) -> bool {
    const WRITTEN: [&str; 5] = [
        "finalizers",
        "ownerReferences",
        "managedFields",
        "resourceVersion",
        "generation",
    ];
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|member, _| !WRITTEN.contains(&&**member));
        }
        object
    };
    old.is_object() && rest(old) == rest(new)
}

async fn check_role(
    cluster: &dyn Cluster,
    request: &AdmissionRequest<'_>,
) -> Result<(), AdmissionError> {
    let resource = &request.resource.resource;
    if is_allowed(cluster, request, "escalate", resource, request.shown_name()).await {
        return Ok(());
    }
    let aggregation = &request.object["aggregationRule"];
    if aggregation.is_object() && *aggregation != request.old_object["aggregationRule"] {
        let everything: Vec<PolicyRule> = serde_json::from_value(json!([
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]))
        .expect("these are rules");
        if check_rules(cluster, request, &everything).await.is_err() {
            return Err(
                request.forbidden("must have cluster-admin privileges to use an aggregationRule")
            );
        }
    }
    check_rules(cluster, request, &rules_of(&request.object)).await
}

async fn check_binding(
    cluster: &dyn Cluster,
    request: &AdmissionRequest<'_>,
) -> Result<(), AdmissionError> {
    let role = &request.object["roleRef"];
    let text = |member: &str| role[member].as_str().unwrap_or_default();
    let (name, namespace) = (text("name"), request.namespace);
    let (resource, namespace) = match text("kind") {
        "Role" => ("roles", namespace),
        _ => ("clusterroles", ""),
    };
    if is_allowed(cluster, request, "bind", resource, name).await {
        return Ok(());
    }
    let found = cluster
        .object(
            GroupResource::new(GROUP, resource),
            namespace,
            name,
            Freshness::Latest,
        )
        .await;
    match found {
        Ok(Some(role)) => check_rules(cluster, request, &rules_of(&role)).await,
        Ok(None) => Err(AdmissionError::Denied(Box::new(role_not_found(
            resource, name,
        )))),
        Err(error) => Err(request.forbidden(format!("cannot read the role {name:?}: {error}"))),
    }
}

fn role_not_found(resource: &str, name: &str) -> Status {
    let kind = resource.trim_end_matches('s');
    Status::failure(
        404,
        "NotFound",
        format!("{kind}.{GROUP} {name:?} not found"),
    )
    .with_details(StatusDetails {
        name: name.to_owned(),
        group: GROUP.to_owned(),
        kind: kind.to_owned(),
        ..StatusDetails::default()
    })
}

fn rules_of(role: &Value) -> Vec<PolicyRule> {
    // The object has been validated.
    serde_json::from_value(role["rules"].clone()).unwrap_or_default()
}

/// Asks whether the user may `verb` a role, whatever its rules.
async fn is_allowed(
    cluster: &dyn Cluster,
    request: &AdmissionRequest<'_>,
    verb: &str,
    resource: &str,
    name: &str,
) -> bool {
    let attributes = Attributes {
        user: Arc::new(request.user.clone()),
        verb: verb.to_owned(),
        is_resource_request: true,
        api_group: GROUP.to_owned(),
        api_version: request.resource.version.clone(),
        resource: resource.to_owned(),
        // A RoleBinding of a ClusterRole needs `bind` in its own namespace only.
        namespace: request.namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    cluster
        .authorizer()
        .authorize(&attributes)
        .await
        .is_allowed()
}

/// Checks that the user has all `rules` in the namespace of the request.
async fn check_rules(
    cluster: &dyn Cluster,
    request: &AdmissionRequest<'_>,
    rules: &[PolicyRule],
) -> Result<(), AdmissionError> {
    let own = cluster
        .authorizer()
        .rules(request.user, request.namespace)
        .await;
    let unresolved = own.evaluation_error.clone();
    let missing = missing_rules(&as_policy_rules(own), rules);
    if missing.is_empty() {
        return Ok(());
    }
    let mut missing: Vec<String> = with_all_verbs(missing)
        .iter()
        .map(ToString::to_string)
        .collect();
    missing.sort_unstable();
    let groups: Vec<String> = request
        .user
        .groups
        .iter()
        .map(|group| format!("{group:?}"))
        .collect();
    let mut why = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        request.user.name,
        groups.join(" "),
        missing.join("\n"),
    );
    if !unresolved.is_empty() {
        why += &format!("; resolution errors: [{unresolved}]");
    }
    Err(request.forbidden(why))
}

fn as_policy_rules(rules: SubjectRules) -> Vec<PolicyRule> {
    let of_resources = rules.resource_rules.into_iter().map(|rule| PolicyRule {
        verbs: rule.verbs,
        api_groups: rule.api_groups,
        resources: rule.resources,
        resource_names: rule.resource_names,
        ..PolicyRule::default()
    });
    let of_paths = rules.non_resource_rules.into_iter().map(|rule| PolicyRule {
        verbs: rule.verbs,
        non_resource_urls: rule.non_resource_urls,
        ..PolicyRule::default()
    });
    of_resources.chain(of_paths).collect()
}

/// Joins the rules for the same resource, which then have several verbs, for the message.
fn with_all_verbs(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut joined: Vec<PolicyRule> = Vec::new();
    for rule in rules {
        let same = |other: &&mut PolicyRule| {
            rule.non_resource_urls.is_empty()
                && other.api_groups == rule.api_groups
                && other.resources == rule.resources
                && other.resource_names == rule.resource_names
                && other.non_resource_urls.is_empty()
        };
        match joined.iter_mut().find(same) {
            Some(other) => other.verbs.extend(rule.verbs),
            None => joined.push(rule),
        }
    }
    joined
}

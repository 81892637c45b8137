//! Creates the default roles and bindings, and reconciles existing ones, as kube-apiserver does when it starts.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Map, Value, json};

use super::{RoleVersions, resource};
use watchet_api::{DeleteOptions, GetOptions, Preconditions, ResourceVersion, WriteOptions};
use watchet_auth::rbac::{DefaultObject, PolicyRule, RbacKind, default_policy, missing_rules};
use watchet_registry::{ApiError, Registry, Target};

/// With the value `false` on an object, it is not reconciled.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// How often a write is repeated after another client changed the object.
const ATTEMPTS: usize = 5;

/// How many objects are written at the same time: the embedded store syncs concurrent writes together.
const CONCURRENT: usize = 64;

/// Creates the default roles and bindings that do not exist, and adds missing default rules, subjects, labels and
/// annotations to existing ones. Removes nothing. Returns the greatest version of the objects of each kind.
///
/// # Errors
/// The first read or write that fails. The call can be repeated.
pub async fn create_default_policy(registry: &Arc<Registry>) -> Result<RoleVersions, ApiError> {
    // The aggregated roles come last: the controller that writes their rules is then permitted to.
    let is_aggregated = |default: &DefaultObject| default.object.get("aggregationRule").is_some();
    let (aggregated, others): (Vec<_>, Vec<_>) =
        default_policy().into_iter().partition(is_aggregated);
    let mut versions = RoleVersions::default();
    for objects in [others, aggregated] {
        let reconciled = objects.into_iter().map(|default| async move {
            let version = reconcile_until_done(registry, &default).await?;
            Ok::<_, ApiError>((default.kind, version))
        });
        let mut reconciled = stream::iter(reconciled).buffer_unordered(CONCURRENT);
        while let Some((kind, version)) = reconciled.try_next().await? {
            versions.raise(kind, version);
        }
    }
    Ok(versions)
}

async fn reconcile_until_done(
    registry: &Arc<Registry>,
    default: &DefaultObject,
) -> Result<ResourceVersion, ApiError> {
    let mut attempt = 1;
    loop {
        match reconcile(registry, default).await {
            Err(ApiError::Conflict { .. } | ApiError::AlreadyExists { .. })
                if attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            result => return result,
        }
    }
}

/// Returns the version of the stored object.
async fn reconcile(
    registry: &Arc<Registry>,
    default: &DefaultObject,
) -> Result<ResourceVersion, ApiError> {
    let resource = resource(registry, default.kind);
    let namespace = Some(default.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let target = Target {
        resource: resource.clone(),
        namespace: namespace.map(str::to_owned),
        name: default.name.clone(),
        subresource: None,
    };
    let options = WriteOptions::of_server();
    let create = async || {
        let created = registry.create(&resource, namespace, default.object.clone(), &options);
        Ok(created.await?.resource_version())
    };
    let stored = match registry.get(&target, GetOptions::default()).await {
        Ok(object) => object,
        Err(error) if error.is_not_found() => return create().await,
        Err(error) => return Err(error),
    };
    let stored_value: Value = serde_json::from_slice(stored.body_slice()).unwrap_or_default();
    if stored_value["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return Ok(stored.resource_version());
    }
    if default
        .object
        .get("roleRef")
        .is_some_and(|role| !same_role(role, &stored_value["roleRef"]))
    {
        // The role of a binding cannot be changed.
        let delete = DeleteOptions {
            preconditions: Some(Preconditions {
                uid: Some(stored.uid().to_owned()),
                ..Preconditions::default()
            }),
            user: options.user.clone(),
            ..DeleteOptions::default()
        };
        registry.delete(&target, &delete).await?;
        return create().await;
    }
    let mut completed = stored_value.clone();
    complete(&mut completed, default);
    if completed == stored_value {
        return Ok(stored.resource_version());
    }
    let updated = registry.update(&target, completed, &options).await?;
    Ok(updated.0.resource_version())
}

fn same_role(left: &Value, right: &Value) -> bool {
    left["kind"] == right["kind"] && left["name"] == right["name"]
}

/// Adds what a stored object lacks.
fn complete(stored: &mut Value, default: &DefaultObject) {
    for member in ["labels", "annotations"] {
        let given = default.object["metadata"][member].as_object();
        let Some(given) = given.filter(|given| !given.is_empty()) else {
            continue;
        };
        let metadata = &mut stored["metadata"][member];
        if !metadata.is_object() {
            *metadata = Value::Object(Map::new());
        }
        for (key, value) in given {
            // What a user has set stays.
            let values = metadata.as_object_mut().expect("it was made an object");
            values.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    match default.kind {
        RbacKind::ClusterRole if default.object.get("aggregationRule").is_some() => {
            let selectors = "/aggregationRule/clusterRoleSelectors";
            let given = default
                .object
                .pointer(selectors)
                .cloned()
                .unwrap_or_default();
            if !stored["aggregationRule"].is_object() {
                stored["aggregationRule"] = json!({});
            }
            add_missing(
                &mut stored["aggregationRule"]["clusterRoleSelectors"],
                &given,
            );
        }
        RbacKind::ClusterRole | RbacKind::Role => {
            let missing = missing_rules(&rules(stored), &rules(&default.object));
            let missing: Vec<Value> = missing.iter().map(|rule| json!(rule)).collect();
            add_missing(&mut stored["rules"], &missing.into());
        }
        RbacKind::ClusterRoleBinding | RbacKind::RoleBinding => {
            let given = default.object["subjects"].clone();
            add_missing(&mut stored["subjects"], &given);
        }
    }
}

fn rules(role: &Value) -> Vec<PolicyRule> {
    // Invalid rules grant nothing, so all default rules are missing.
    serde_json::from_value(role["rules"].clone()).unwrap_or_default()
}

/// Adds the items of the list `given` that the list `stored` does not have.
fn add_missing(stored: &mut Value, given: &Value) {
    let given = given.as_array().into_iter().flatten();
    let missing: Vec<Value> = {
        let existing = stored.as_array().map(Vec::as_slice).unwrap_or_default();
        given
            .filter(|item| !existing.contains(item))
            .cloned()
            .collect()
    };
    if missing.is_empty() {
        return;
    }
    match stored.as_array_mut() {
        Some(items) => items.extend(missing),
        None => *stored = missing.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(object: Value) -> DefaultObject {
        DefaultObject {
            kind: RbacKind::ClusterRole,
            namespace: String::new(),
            name: "r".to_owned(),
            object,
        }
    }

    #[test]
    fn missing_rules_labels_and_subjects_are_added_and_others_stay() {
        let default = role(json!({
            "metadata": {"name": "r", "labels": {"a": "1"}, "annotations": {"b": "2"}},
            "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}],
        }));
        let mut stored = json!({
            "metadata": {"name": "r", "labels": {"a": "changed", "own": "x"}},
            "rules": [{"verbs": ["get"], "apiGroups": ["*"], "resources": ["pods"]}],
        });
        complete(&mut stored, &default);
        let expected = json!({
            "metadata": {
                "name": "r", "labels": {"a": "changed", "own": "x"}, "annotations": {"b": "2"},
            },
            "rules": [
                {"verbs": ["get"], "apiGroups": ["*"], "resources": ["pods"]},
                {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
            ],
        });
        assert_eq!(stored, expected);
        complete(&mut stored, &default);
        assert_eq!(stored, expected, "a second time changes nothing");

        let binding = DefaultObject {
            kind: RbacKind::ClusterRoleBinding,
            ..role(json!({"subjects": [{"kind": "Group", "name": "g"}]}))
        };
        let mut stored = json!({"subjects": [{"kind": "User", "name": "u"}]});
        complete(&mut stored, &binding);
        let both = json!([{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}]);
        assert_eq!(stored["subjects"], both);
    }

    #[test]
    fn an_aggregated_role_gets_its_selectors_but_no_rules() {
        let selector = json!({"matchLabels": {"x": "true"}});
        let default = role(json!({
            "metadata": {"name": "r"},
            "aggregationRule": {"clusterRoleSelectors": [selector]},
        }));
        let mut stored = json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"]}]});
        complete(&mut stored, &default);
        assert_eq!(
            stored["aggregationRule"]["clusterRoleSelectors"],
            json!([selector])
        );
        assert_eq!(stored["rules"], json!([{"verbs": ["get"]}]));
    }
}

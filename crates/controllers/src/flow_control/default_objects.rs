//! Creates and maintains the default FlowSchemas and PriorityLevelConfigurations, as kube-apiserver does when it starts and
//! each minute.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{LEVELS, SCHEMAS, resource};
use watchet_api::{DeleteOptions, GetOptions, ListOptions, Preconditions, WriteOptions};
use watchet_flowcontrol::{AUTO_UPDATE, DefaultObject, default_levels, default_schemas};
use watchet_registry::{ApiError, Registry, Resource, Target};

/// How often the objects are compared with their defaults.
const PERIOD: Duration = Duration::from_secs(60);

/// The name under which kube-apiserver writes these objects.
const FIELD_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";

/// Creates the default objects that do not exist, and restores the specs of those that users do not maintain: of mandatory
/// objects, and of those with the annotation `apf.kubernetes.io/autoupdate-spec: "true"`. Deletes objects with that
/// annotation that are no default objects.
///
/// # Errors
/// The first read or write that fails. The call can be repeated.
pub async fn ensure_default_flow_objects(registry: &Arc<Registry>) -> Result<(), ApiError> {
    for (plural, defaults) in [(LEVELS, default_levels()), (SCHEMAS, default_schemas())] {
        let resource = resource(registry, plural);
        let writes = defaults
            .iter()
            .map(|default| ensure(registry, &resource, default));
        futures_util::future::try_join_all(writes).await?;
        remove_former_defaults(registry, &resource, &defaults).await?;
    }
    Ok(())
}

/// Ensures the default objects each minute; never returns.
pub async fn maintain_default_flow_objects(registry: &Arc<Registry>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        if let Err(error) = ensure_default_flow_objects(registry).await {
            // An outage of storage itself is logged once.
            match error.is_outage() {
                true => {
                    tracing::debug!(%error, "cannot maintain the default objects of flow control, retrying")
                }
                false => {
                    tracing::warn!(%error, "cannot maintain the default objects of flow control, retrying")
                }
            }
        }
    }
}

fn options() -> WriteOptions {
    WriteOptions {
        field_manager: FIELD_MANAGER.to_owned(),
        ..WriteOptions::of_server()
    }
}

fn target(resource: &Arc<Resource>, name: &str) -> Target {
    Target {
        resource: Arc::clone(resource),
        namespace: None,
        name: name.to_owned(),
        subresource: None,
    }
}

async fn ensure(
    registry: &Arc<Registry>,
    resource: &Arc<Resource>,
    default: &DefaultObject,
) -> Result<(), ApiError> {
    let target = target(resource, default.name);
    let stored = match registry.get(&target, GetOptions::default()).await {
        Ok(stored) => stored,
        Err(error) if error.is_not_found() => {
            let metadata = json!({"name": default.name, "annotations": {AUTO_UPDATE: "true"}});
            let object = json!({"metadata": metadata, "spec": default.spec});
            return match registry.create(resource, None, object, &options()).await {
                // Another server has created it.
                Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error),
            };
        }
        Err(error) => return Err(error),
    };
    let mut object: Value = serde_json::from_slice(stored.body_slice()).unwrap_or_default();
    if !restore(&mut object, default) {
        return Ok(());
    }
    match registry.update(&target, object, &options()).await {
        // The object was changed meanwhile; it is compared again in a minute.
        Ok(_) | Err(ApiError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Restores the spec and the annotation of a stored object. False if nothing changes.
fn restore(object: &mut Value, default: &DefaultObject) -> bool {
    let annotation = object["metadata"]["annotations"][AUTO_UPDATE].as_str();
    let annotated = annotation.and_then(|value| value.parse::<bool>().ok());
    // Without the annotation, a changed spec is a user's.
    let is_unchanged = object["metadata"]["generation"] == 1;
    let is_updated = default.is_mandatory || annotated.unwrap_or(is_unchanged);
    let mut changes = annotated != Some(is_updated);
    if changes {
        let annotations = &mut object["metadata"]["annotations"];
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[AUTO_UPDATE] = is_updated.to_string().into();
    }
    let mut spec = default.spec.clone();
    if default.is_mandatory && object["spec"]["exempt"].is_object() && spec["exempt"].is_object() {
        // The only members of mandatory objects that users may change.
        spec["exempt"] = object["spec"]["exempt"].clone();
    }
    if is_updated && object["spec"] != spec {
        object["spec"] = spec;
        changes = true;
    }
    changes
}

/// Deletes the objects that the server maintains, but that are no defaults of this version.
async fn remove_former_defaults(
    registry: &Arc<Registry>,
    resource: &Arc<Resource>,
    defaults: &[DefaultObject],
) -> Result<(), ApiError> {
    let list = registry
        .list(resource, None, &ListOptions::default())
        .await?;
    for object in list.items.iter() {
        let name = object.key().name();
        if defaults.iter().any(|default| default.name == name) {
            continue;
        }
        let value: Value = serde_json::from_slice(object.body_slice()).unwrap_or_default();
        if value["metadata"]["annotations"][AUTO_UPDATE] != "true" {
            continue;
        }
        let delete = DeleteOptions {
            preconditions: Some(Preconditions {
                uid: Some(object.uid().to_owned()),
                resource_version: Some(object.resource_version().to_string()),
            }),
            user: options().user,
            ..DeleteOptions::default()
        };
        match registry.delete(&target(resource, name), &delete).await {
            Ok(_) | Err(ApiError::Conflict { .. }) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default(is_mandatory: bool) -> DefaultObject {
        DefaultObject {
            name: "d",
            spec: json!({"type": "Limited"}),
            is_mandatory,
        }
    }

    fn stored(annotation: Option<&str>, generation: i64, kind: &str) -> Value {
        let mut object =
            json!({"metadata": {"name": "d", "generation": generation}, "spec": {"type": kind}});
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({AUTO_UPDATE: annotation});
        }
        object
    }

    #[test]
    fn specs_are_restored_unless_users_maintain_them() {
        let check = |annotation, generation, kind, is_mandatory, expected: (bool, &str, &str)| {
            let mut object = stored(annotation, generation, kind);
            let changed = restore(&mut object, &default(is_mandatory));
            let kind = object["spec"]["type"].as_str().unwrap();
            let annotation = object["metadata"]["annotations"][AUTO_UPDATE]
                .as_str()
                .unwrap();
            assert_eq!((changed, kind, annotation), expected);
        };
        check(
            Some("true"),
            5,
            "Limited",
            false,
            (false, "Limited", "true"),
        );
        check(Some("true"), 5, "other", false, (true, "Limited", "true"));
        check(Some("false"), 5, "other", false, (false, "other", "false"));
        check(Some("false"), 5, "other", true, (true, "Limited", "true"));
        check(None, 1, "other", false, (true, "Limited", "true"));
        check(None, 2, "other", false, (true, "other", "false"));
        check(Some("?"), 2, "other", false, (true, "other", "false"));
    }

    #[test]
    fn the_exempt_level_keeps_its_shares() {
        let default = DefaultObject {
            spec: json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0}}),
            ..default(true)
        };
        let mut object = stored(Some("true"), 3, "Exempt");
        object["spec"]["exempt"] = json!({"nominalConcurrencyShares": 7});
        assert!(!restore(&mut object, &default));
    }
}

//! The priority of a new pod, which its class says (upstream's admission by priority).

use serde_json::Value;

use super::{ApiError, Registry, Target, classes};
use crate::api::StorageKey;

/// The classes that are there without being made.
const SYSTEM: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];
const PREEMPTS: &str = "PreemptLowerPriority";

/// Gives a pod the number that its class stands for.
///
/// # Errors
/// 403 when there is no such class, or when the pod says another number; storage's.
pub(super) async fn resolve(
    registry: &Registry,
    target: &Target,
    pod: &mut Value,
) -> Result<(), ApiError> {
    if !target.resource.is("", "pods") || !pod["spec"].is_object() {
        return Ok(());
    }
    let forbidden = |detail: String| ApiError::forbidden(&target.resource, &target.name, detail);
    if pod["spec"]["priorityClassName"]
        .as_str()
        .unwrap_or_default()
        .is_empty()
        && let Some(class) = classes::default_priority(registry).await?
    {
        pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
    }
    let spec = &mut pod["spec"];
    let name = spec["priorityClassName"].as_str().unwrap_or_default();
    let (value, policy) = match name {
        "" => (0, PREEMPTS.to_owned()),
        name => match find(registry, name).await? {
            Some(found) => found,
            None => {
                return Err(forbidden(format!(
                    "no PriorityClass with name {name} was found"
                )));
            }
        },
    };
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != value) {
        return Err(forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority \
             admission controller computed {value} from the given PriorityClass name"
        )));
    }
    spec["priority"] = value.into();
    if spec["preemptionPolicy"].is_null() {
        spec["preemptionPolicy"] = policy.into();
    }
    Ok(())
}

/// The number of a class, and whether its pods make room for themselves.
async fn find(registry: &Registry, name: &str) -> Result<Option<(i64, String)>, ApiError> {
    if let Some((_, value)) = SYSTEM.iter().find(|(system, _)| *system == name) {
        return Ok(Some((*value, PREEMPTS.to_owned())));
    }
    // A name that is no part of a path is no class's.
    let Ok(key) = StorageKey::new(&format!("/priorityclasses/{name}")) else {
        return Ok(None);
    };
    let (stored, _) = registry.storage.get(&key).await?;
    let Some(stored) = stored else {
        return Ok(None);
    };
    let class = super::write::Current::stored(&stored)?.value;
    let policy = class["preemptionPolicy"].as_str().unwrap_or(PREEMPTS);
    Ok(Some((
        class["value"].as_i64().unwrap_or(0),
        policy.to_owned(),
    )))
}

//! Namespaces: the system namespaces, and the state of a namespace for admission. A controller deletes the objects of a
//! deleted namespace.

use serde_json::json;

use super::error::ApiError;
use super::location::ObjectLocation;
use super::registry::Registry;
use super::{create, metadata};
use watchet_admission::cluster::NamespaceState;
use watchet_api::{Object, WriteOptions};
use watchet_storage::Storage as _;

/// The namespaces that exist before the first request.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates the system namespaces that do not exist.
pub(crate) async fn bootstrap(registry: &Registry) -> Result<(), ApiError> {
    for name in SYSTEM_NAMESPACES {
        let location = ObjectLocation::new(&registry.namespaces, None, name)?;
        let store = registry.store(&registry.namespaces);
        if store.get(&location.storage_key).await?.0.is_some() {
            continue;
        }
        let body = json!({"metadata": {"name": name}});
        let options = WriteOptions::of_server();
        match create::create(registry, &registry.namespaces, None, body, &options).await {
            // Another server created it concurrently.
            Ok(_) | Err(ApiError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the state of `namespace`, for admission.
pub(crate) async fn state(
    registry: &Registry,
    namespace: &str,
) -> Result<NamespaceState, ApiError> {
    let key = ObjectLocation::key_of(&registry.namespaces, None, namespace)?;
    let cache = registry.cache(&registry.namespaces)?;
    if registry
        .deleted_namespaces
        .is_cache_current(namespace, || cache.seen())
    {
        // The cache may be stale, as upstream's. The state of a namespace that it does not have, or that this server has
        // deleted, is read from storage.
        let cached = cache.peek(&key);
        if cached.is_some_and(|n| n.field(registry.namespace_phase) == "Active") {
            return Ok(NamespaceState::Active);
        }
    }
    let location = ObjectLocation::new(&registry.namespaces, None, namespace)?;
    let current = match registry.read_stored(&location).await {
        Ok(current) => current,
        Err(error) if error.is_not_found() => return Ok(NamespaceState::Absent),
        Err(error) => return Err(error),
    };
    let phase = &current.value["status"]["phase"];
    match phase == "Terminating" || metadata::is_terminating(&current.value) {
        true => Ok(NamespaceState::Terminating),
        false => Ok(NamespaceState::Active),
    }
}

/// Records that a delete has deleted `namespace` or marked it as being deleted.
pub(crate) fn record_deletion(registry: &Registry, namespace: &Object) -> Result<(), ApiError> {
    let seen = registry.cache(&registry.namespaces)?.seen();
    registry.deleted_namespaces.add(namespace, seen);
    Ok(())
}

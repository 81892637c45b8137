//! Namespaces: those that are always there, and the state of one for admission. How one is emptied once it is
//! deleted is a controller's work.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::json;

use super::guaranteed_update::Place;
use super::{ApiError, Registry, create, metadata};
use crate::admission::cluster::NamespaceState;
use crate::api::{Object, ResourceVersion, WriteOptions};
use crate::storage::Storage as _;

/// What exists from the first request on.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The namespaces whose deletion began here, and at which version, until the cache has heard of that: till
/// then its word that one is active is old.
#[derive(Debug, Default)]
pub(crate) struct Deleted(Mutex<BTreeMap<String, ResourceVersion>>);

impl Deleted {
    /// Notes that `namespace` was deleted, or marked so, as this state of it says. What the cache, at
    /// `seen`, has heard of is forgotten, which bounds what is kept.
    pub(crate) fn note(&self, namespace: &Object, seen: ResourceVersion) {
        let mut deleted = self.0.lock();
        deleted.retain(|_, at| *at > seen);
        let name = namespace.key().name().to_owned();
        deleted.insert(name, namespace.resource_version());
    }

    /// Whether a cache at `seen` can be trusted about the namespace.
    fn is_known(&self, namespace: &str, seen: impl FnOnce() -> ResourceVersion) -> bool {
        let at = self.0.lock().get(namespace).copied();
        at.is_none_or(|at| at <= seen())
    }
}

/// Makes the system namespaces, each unless it exists.
pub(crate) async fn bootstrap(registry: &Registry) -> Result<(), ApiError> {
    for name in SYSTEM_NAMESPACES {
        let place = Place::new(&registry.namespaces, None, name)?;
        let store = registry.store(&registry.namespaces);
        if store.get(&place.storage_key).await?.0.is_some() {
            continue;
        }
        let body = json!({"metadata": {"name": name}});
        let options = WriteOptions::default();
        match create::create(registry, &registry.namespaces, None, body, &options).await {
            // Another server was faster.
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
    let key = Place::key_of(&registry.namespaces, None, namespace)?;
    let cache = registry.cache(&registry.namespaces)?;
    if registry.deleted.is_known(namespace, || cache.seen()) {
        // The cache may be behind, as any admission by cache is; a namespace that it does not know
        // or that this server has seen go is asked for in storage.
        let cached = cache.peek(&key);
        if cached.is_some_and(|n| n.field(registry.namespace_phase) == "Active") {
            return Ok(NamespaceState::Active);
        }
    }
    let place = Place::new(&registry.namespaces, None, namespace)?;
    let current = match registry.read_stored(&place).await {
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

/// Notes that a delete has taken or marked `namespace`.
pub(crate) fn note_deleted(registry: &Registry, namespace: &Object) -> Result<(), ApiError> {
    let seen = registry.cache(&registry.namespaces)?.seen();
    registry.deleted.note(namespace, seen);
    Ok(())
}

//! The namespaces that this server has deleted, and that its cache may still contain as active.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use watchet_api::{Object, ResourceVersion};

/// The namespaces whose deletion this server has begun, with the version of the deletion, until the cache has received
/// it.
#[derive(Debug, Default)]
pub(crate) struct DeletedNamespaces(Mutex<BTreeMap<String, ResourceVersion>>);

impl DeletedNamespaces {
    /// Adds `namespace`, in the state after its deletion or after it was marked as being deleted. Removes the
    /// namespaces whose deletion the cache, which is at version `seen`, has received. This bounds the size of the map.
    pub(crate) fn add(&self, namespace: &Object, seen: ResourceVersion) {
        let mut deleted = self.0.lock();
        deleted.retain(|_, at| *at > seen);
        let name = namespace.key().name().to_owned();
        deleted.insert(name, namespace.resource_version());
    }

    /// Returns true if a cache at version `seen` has received every deletion of `namespace` by this server.
    pub(crate) fn is_cache_current(
        &self,
        namespace: &str,
        seen: impl FnOnce() -> ResourceVersion,
    ) -> bool {
        let at = self.0.lock().get(namespace).copied();
        at.is_none_or(|at| at <= seen())
    }
}

//! The caches of the served resources: started when they are first asked for, stopped when their
//! resource is no longer served, or no longer so. What a cache does is told by `cacher`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::table::Table;
use super::{ApiError, Registry, Resource};
use crate::api::{ColumnSet, Object, ObjectKey};
use crate::apiextensions::Versions;
use crate::cacher::{CachedResource, Cacher};
use crate::storage::Metered;
use crate::tasks::Tasks;

/// By storage prefix, because resources that share one share a cache. Bounded by the table.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    started: Mutex<BTreeMap<String, Started>>,
    /// The storage as each prefix's resource uses it.
    stores: Mutex<BTreeMap<String, Arc<Metered>>>,
}

#[derive(Debug)]
struct Started {
    /// Of its resource, with group.
    name: String,
    /// Nothing goes without it.
    needed: bool,
    cacher: Arc<Cacher>,
    columns: Arc<ColumnSet>,
    /// How what is stored reads, if that is not as it is.
    versions: Option<Arc<Versions>>,
    tasks: Tasks,
}

impl Started {
    /// Whether it is what `owner` would start.
    fn fits(&self, owner: &Resource) -> bool {
        let custom = owner.custom.as_ref();
        let versions = custom.map(|custom| Arc::as_ptr(&custom.versions));
        same(&self.columns, &owner.columns) && self.versions.as_ref().map(Arc::as_ptr) == versions
    }
}

/// Whether requests of all kinds wait for it: where they may write, what is served, who judges it.
fn is_needed(resource: &Resource) -> bool {
    resource.is("", "namespaces")
        || resource.is("apiextensions.k8s.io", "customresourcedefinitions")
        || resource.group == "admissionregistration.k8s.io"
}

/// Whether both read the same fields, whatever these are called: each version of a custom resource has labels
/// for its own.
fn same(one: &Arc<ColumnSet>, other: &Arc<ColumnSet>) -> bool {
    let read = |columns: &ColumnSet| -> Vec<_> {
        let fields = columns.fields().iter();
        fields
            .map(|field| (field.path.clone(), field.default.clone()))
            .collect()
    };
    Arc::ptr_eq(one, other) || one == other || read(one) == read(other)
}

impl Registry {
    /// Each started cache, by the name of its resource, and why it is not ready if it is not; for
    /// readiness checks. One that is about to have its first state takes nothing from a server that is
    /// ready: caches start at any time, and who asks for one waits for it. Only those that every write or
    /// the table of resources need are told of before.
    pub fn cache_readiness(&self) -> Vec<(String, Result<(), String>)> {
        let started = self.caches.started.lock();
        let all: Vec<_> = started
            .values()
            .filter(|started| started.needed || !started.cacher.is_starting())
            .map(|started| (started.name.clone(), started.cacher.clone()))
            .collect();
        drop(started);
        all.into_iter()
            .map(|(name, cacher)| (name, cacher.readiness()))
            .collect()
    }

    /// Serves these custom resources from now on, and no others. Caches of what is no longer served,
    /// or whose objects are selected by other fields or read otherwise, stop, and with them their watches.
    pub(crate) fn serve_custom(&self, custom: Vec<Arc<Resource>>) {
        let table = Arc::new(Table::new(&self.builtins, custom));
        self.table.store(table.clone());
        // After the swap: who has not seen it yet has started its cache, or will find none to start.
        let mut started = self.caches.started.lock();
        started.retain(|prefix, started| {
            let fits = table.owner(prefix).is_some_and(|owner| started.fits(owner));
            if !fits {
                started.tasks.cancel();
            }
            fits
        });
        let mut stores = self.caches.stores.lock();
        stores.retain(|prefix, _| table.owner(prefix).is_some());
    }

    /// The cache of `resource`, started if it was not yet.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] when it is of a definition that has gone or changed meanwhile.
    pub(crate) fn cache(&self, resource: &Resource) -> Result<Arc<Cacher>, ApiError> {
        let mut started = self.caches.started.lock();
        let table = self.table.load();
        let owner = table
            .owner(&resource.storage_prefix)
            .ok_or(ApiError::NotServed)?;
        // The fields of its selectors are numbered by its own columns.
        if resource.custom.is_some() && !same(&resource.columns, &owner.columns) {
            return Err(ApiError::NotServed);
        }
        if let Some(started) = started.get(&resource.storage_prefix) {
            return Ok(started.cacher.clone());
        }
        let store = self.store(resource);
        let custom = owner.custom.as_ref();
        let versions = custom.map(|custom| custom.versions.clone());
        let cached = CachedResource {
            name: owner.qualified(),
            namespaced: owner.namespaced,
            prefix: resource.prefix()?,
            columns: owner.columns.clone(),
            triggers: owner.triggers.clone(),
            metrics: store.metrics().clone(),
            transform: versions.clone().map(|versions| versions as _),
        };
        let tasks = self.tasks.child();
        let name = cached.name.clone();
        let cacher = Cacher::start(cached, store, &tasks, self.config.clone());
        let new = Started {
            name,
            needed: is_needed(owner),
            cacher: cacher.clone(),
            columns: owner.columns.clone(),
            versions,
            tasks,
        };
        started.insert(resource.storage_prefix.clone(), new);
        Ok(cacher)
    }

    /// The storage, as `resource` uses it.
    pub(crate) fn store(&self, resource: &Resource) -> Arc<Metered> {
        let mut stores = self.caches.stores.lock();
        if let Some(store) = stores.get(&resource.storage_prefix) {
            return store.clone();
        }
        let table = self.table.load();
        let owner = table.owner(&resource.storage_prefix);
        let known = owner.is_some();
        let owner = owner.map_or(resource, |owner| owner);
        let metrics = self.metrics.resource(&owner.group, &owner.plural);
        let store = Metered::new(self.storage.clone(), metrics);
        if known {
            stores.insert(resource.storage_prefix.clone(), store.clone());
        }
        store
    }

    /// The object as a cache that has been started happens to have it.
    pub(crate) fn suggestion(&self, resource: &Resource, key: &ObjectKey) -> Option<Arc<Object>> {
        let started = self.caches.started.lock();
        let cacher = started.get(&resource.storage_prefix)?.cacher.clone();
        drop(started);
        cacher.peek(key)
    }
}

//! The caches of the served resources: started by the first request, stopped when their resource is removed or its
//! definition changes. Reads take no lock: they look into an immutable map, which is replaced when a cache starts or
//! stops.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::table::Table;
use super::{ApiError, Registry, Resource};
use crate::api::{ColumnSet, Object, ObjectKey};
use crate::cacher::{CachedResource, Cacher, StoredTransform};
use crate::storage::Metered;
use crate::tasks::Tasks;

/// By storage prefix, because resources that share one share a cache. Bounded by the table.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    started: ArcSwap<HashMap<String, Arc<Started>>>,
    /// The storage as each prefix's resource uses it.
    stores: ArcSwap<HashMap<String, Arc<Metered>>>,
    /// Held while one of the maps is replaced.
    changing: Mutex<()>,
}

#[derive(Debug)]
struct Started {
    /// Of its resource, with group.
    name: String,
    /// Readiness waits for its first state.
    is_required: bool,
    cacher: Arc<Cacher>,
    columns: Arc<ColumnSet>,
    /// Applies today's schema to what is stored.
    transform: Option<Arc<dyn StoredTransform>>,
    tasks: Tasks,
}

impl Started {
    /// Returns true if a cache that starts for `owner` would be the same.
    fn fits(&self, owner: &Resource) -> bool {
        let transform = transform_of(owner);
        let is_same_transform = match (&self.transform, &transform) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        reads_same_fields(&self.columns, &owner.columns) && is_same_transform
    }
}

fn transform_of(resource: &Resource) -> Option<Arc<dyn StoredTransform>> {
    let converter = resource.strategy.converter();
    converter.map(|converter| converter.stored_transform())
}

/// Returns true if both read the same fields, whatever their labels are: each version of a custom resource has labels
/// of its own.
fn reads_same_fields(one: &Arc<ColumnSet>, other: &Arc<ColumnSet>) -> bool {
    let read = |columns: &ColumnSet| -> Vec<_> {
        let fields = columns.fields().iter();
        fields
            .map(|field| (field.path.clone(), field.default.clone()))
            .collect()
    };
    Arc::ptr_eq(one, other) || one == other || read(one) == read(other)
}

/// Replaces the map by one that `change` was applied to. The caller holds the lock of changes.
fn replace<V: Clone>(
    map: &ArcSwap<HashMap<String, V>>,
    change: impl FnOnce(&mut HashMap<String, V>),
) {
    let mut changed = HashMap::clone(&map.load());
    change(&mut changed);
    map.store(Arc::new(changed));
}

impl Registry {
    /// Each started cache by the name of its resource, with the reason if it is not ready; for readiness checks. A
    /// cache that waits for its first state only counts if every write or the table of resources depends on it:
    /// others start at any time, and requests for them wait.
    pub fn cache_readiness(&self) -> Vec<(String, Result<(), String>)> {
        let started = self.caches.started.load();
        let mut all: Vec<_> = started
            .iter()
            .filter(|(_, started)| started.is_required || !started.cacher.is_starting())
            .collect();
        all.sort_unstable_by_key(|(prefix, _)| *prefix);
        all.into_iter()
            .map(|(_, started)| (started.name.clone(), started.cacher.readiness()))
            .collect()
    }

    /// Serves these resources beside the built-in ones from now on, and no others. Stops the caches of resources that
    /// are no longer served or whose objects are selected by other fields or read by another schema, and with them
    /// their watches.
    pub(crate) fn serve_defined(&self, defined: Vec<Arc<Resource>>) {
        let table = Arc::new(Table::new(&self.builtins, defined));
        self.table.store(table.clone());
        // After the swap: a request that has not seen it yet has started its cache, or will find none to start.
        let _changing = self.caches.changing.lock();
        replace(&self.caches.started, |started| {
            started.retain(|prefix, started| {
                let fits = table.owner(prefix).is_some_and(|owner| started.fits(owner));
                if !fits {
                    started.tasks.cancel();
                }
                fits
            });
        });
        replace(&self.caches.stores, |stores| {
            stores.retain(|prefix, _| table.owner(prefix).is_some());
        });
    }

    /// The cache of `resource`, started if it was not yet.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] when its definition was removed or changed meanwhile.
    pub(crate) fn cache(&self, resource: &Resource) -> Result<Arc<Cacher>, ApiError> {
        let table = self.table.load();
        let owner = owner_of(&table, resource)?;
        let started = self.caches.started.load();
        match started.get(&resource.storage_prefix) {
            // One that does not fit is about to be stopped by a change of the table.
            Some(started) if started.fits(owner) => Ok(started.cacher.clone()),
            _ => self.start_cache(resource),
        }
    }

    fn start_cache(&self, resource: &Resource) -> Result<Arc<Cacher>, ApiError> {
        let store = self.store(resource);
        let _changing = self.caches.changing.lock();
        let table = self.table.load();
        let owner = owner_of(&table, resource)?;
        if let Some(started) = self.caches.started.load().get(&resource.storage_prefix) {
            return Ok(started.cacher.clone());
        }
        let transform = transform_of(owner);
        let cached = CachedResource {
            name: owner.qualified(),
            namespaced: owner.namespaced,
            prefix: resource.prefix()?,
            columns: owner.columns.clone(),
            triggers: owner.triggers.clone(),
            metrics: store.metrics().clone(),
            transform: transform.clone(),
        };
        let tasks = self.tasks.child();
        let name = cached.name.clone();
        let cacher = Cacher::start(cached, store, &tasks, self.config.clone());
        let new = Started {
            name,
            is_required: owner.strategy.rules().is_cache_required,
            cacher: cacher.clone(),
            columns: owner.columns.clone(),
            transform,
            tasks,
        };
        replace(&self.caches.started, |started| {
            started.insert(resource.storage_prefix.clone(), Arc::new(new));
        });
        Ok(cacher)
    }

    /// The storage, as `resource` uses it.
    pub(crate) fn store(&self, resource: &Resource) -> Arc<Metered> {
        if let Some(store) = self.caches.stores.load().get(&resource.storage_prefix) {
            return store.clone();
        }
        let _changing = self.caches.changing.lock();
        if let Some(store) = self.caches.stores.load().get(&resource.storage_prefix) {
            return store.clone();
        }
        let table = self.table.load();
        let owner = table.owner(&resource.storage_prefix);
        let known = owner.is_some();
        let owner = owner.map_or(resource, |owner| owner);
        let metrics = self.metrics.resource(&owner.group, &owner.plural);
        let store = Metered::new(self.storage.clone(), metrics);
        if known {
            replace(&self.caches.stores, |stores| {
                stores.insert(resource.storage_prefix.clone(), store.clone());
            });
        }
        store
    }

    /// The object as a cache that has been started happens to have it.
    pub(crate) fn suggestion(&self, resource: &Resource, key: &ObjectKey) -> Option<Arc<Object>> {
        let started = self.caches.started.load();
        started.get(&resource.storage_prefix)?.cacher.peek(key)
    }
}

/// Of the resources that share the prefix of `resource`, the one that names their cache.
///
/// # Errors
/// [`ApiError::NotServed`] when the definition of `resource` was removed or selects by other fields now.
fn owner_of<'t>(table: &'t Table, resource: &Resource) -> Result<&'t Arc<Resource>, ApiError> {
    let owner = table
        .owner(&resource.storage_prefix)
        .ok_or(ApiError::NotServed)?;
    // The fields of its selectors are numbered by its own columns.
    let is_same = || reads_same_fields(&resource.columns, &owner.columns);
    match resource.is_builtin() || is_same() {
        true => Ok(owner),
        false => Err(ApiError::NotServed),
    }
}

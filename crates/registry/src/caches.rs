//! The caches of the served resources: started by the first request, stopped when their resource is removed or its
//! definition changes. Reads take no lock: they look into an immutable map, which is replaced when a cache starts or
//! stops.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use jiff::Timestamp;
use parking_lot::Mutex;
use uuid::Uuid;

use super::error::ApiError;
use super::resource::Resource;
use super::stored_version::StoredVersion;
use super::table::{Table, has_same_fields};
use watchet_api::{ColumnSet, Object, ObjectKey};
use watchet_cacher::{
    CacheSize, CacheStatus, CachedResource, Cacher, CacherConfig, StoredTransform,
};
use watchet_encryption::{EncryptedStorage, Encryption};
use watchet_metrics::Metrics;
use watchet_protobuf::{Messages, StorageMediaType, TranscodingStorage};
use watchet_storage::{MeteredStorage, Storage};
use watchet_tasks::Tasks;

/// The table of the served resources, and their caches by storage prefix. Resources with the same prefix share a cache.
#[derive(Debug)]
pub(crate) struct Caches {
    storage: Arc<dyn Storage>,
    encryption: Option<Arc<Encryption>>,
    messages: Arc<Messages>,
    media_type: StorageMediaType,
    metrics: Arc<Metrics>,
    tasks: Tasks,
    config: CacherConfig,
    builtins: Vec<Arc<Resource>>,
    /// The built-in resources, and the custom resources that are currently defined.
    table: ArcSwap<Table>,
    started: ArcSwap<HashMap<String, Arc<Started>>>,
    /// The storage, with metrics for the resource of each prefix.
    stores: ArcSwap<HashMap<String, Arc<MeteredStorage>>>,
    /// Locked while one of the maps is replaced.
    changing: Mutex<()>,
}

/// A cache that has been started.
#[derive(Debug)]
pub struct StartedCache {
    /// The resource that owns the cache.
    pub resource: Arc<Resource>,
    /// Differs between caches, also of the same resource.
    pub uid: Uuid,
    /// When the cache was started.
    pub since: Timestamp,
    /// The state of the cache.
    pub status: CacheStatus,
}

#[derive(Debug, Clone)]
struct Started {
    uid: Uuid,
    since: Timestamp,
    /// The plural name of its resource, with the group.
    name: String,
    /// True if readiness waits for the first state of the cache.
    is_required: bool,
    cacher: Arc<Cacher>,
    /// The columns of its resource in the present table.
    columns: Arc<ColumnSet>,
    /// Applies the current schema to stored objects.
    transform: Option<Arc<dyn StoredTransform>>,
    tasks: Tasks,
}

impl Started {
    /// Returns true if this cache has the fields and the schema of `owner`, so that it can be retained.
    fn fits(&self, owner: &Resource) -> bool {
        has_same_fields(&self.columns, &owner.columns) && self.has_transform_of(owner)
    }

    /// Returns true if `owner` is the resource in the table that this cache was started or retained for.
    fn is_of(&self, owner: &Resource) -> bool {
        Arc::ptr_eq(&self.columns, &owner.columns) && self.has_transform_of(owner)
    }

    fn has_transform_of(&self, owner: &Resource) -> bool {
        match (&self.transform, &transform_of(owner)) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

fn transform_of(resource: &Resource) -> Option<Arc<dyn StoredTransform>> {
    let converter = resource.strategy.converter();
    converter.map(|converter| converter.stored_transform())
}

/// How values are stored.
#[derive(Debug)]
pub(crate) struct StoredValues {
    /// Encrypts them.
    pub(crate) encryption: Option<Arc<Encryption>>,
    /// Decodes those in protobuf, and encodes them.
    pub(crate) messages: Arc<Messages>,
    /// The encoding of new values.
    pub(crate) media_type: StorageMediaType,
}

/// Applies `change` to a copy of the map, and replaces the map by it. The caller holds the lock `changing`.
fn replace<V: Clone>(
    map: &ArcSwap<HashMap<String, V>>,
    change: impl FnOnce(&mut HashMap<String, V>),
) {
    let mut changed = HashMap::clone(&map.load());
    change(&mut changed);
    map.store(Arc::new(changed));
}

impl Caches {
    /// Returns the caches of `builtins` over `storage`, whose values `form` describes. They run in tasks of `tasks`.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
        config: CacherConfig,
        form: StoredValues,
        builtins: Vec<Arc<Resource>>,
    ) -> Self {
        Self {
            storage,
            encryption: form.encryption,
            messages: form.messages,
            media_type: form.media_type,
            metrics,
            tasks,
            config,
            table: ArcSwap::from_pointee(Table::new(&builtins, Vec::new())),
            builtins,
            started: ArcSwap::default(),
            stores: ArcSwap::default(),
            changing: Mutex::default(),
        }
    }

    /// Returns the table of the served resources.
    pub(crate) fn table(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    /// Returns the built-in resources.
    pub(crate) fn builtins(&self) -> &[Arc<Resource>] {
        &self.builtins
    }

    /// Returns each started cache by the name of its resource, with the reason if it is not ready. A cache that waits
    /// for its first state only counts if it is required.
    pub(crate) fn readiness(&self) -> Vec<(String, Result<(), String>)> {
        let started = self.started.load();
        let mut all: Vec<_> = started
            .iter()
            .filter(|(_, started)| started.is_required || !started.cacher.is_starting())
            .collect();
        all.sort_unstable_by_key(|(prefix, _)| *prefix);
        all.into_iter()
            .map(|(_, started)| (started.name.clone(), started.cacher.readiness()))
            .collect()
    }

    /// Serves `defined` beside the built-in resources from now on, and no others. Stops the caches of resources that
    /// are no longer served, that have other selectable fields, or whose schema has changed, and ends their watches.
    pub(crate) fn serve_defined(&self, defined: Vec<Arc<Resource>>) {
        let table = Arc::new(Table::new(&self.builtins, defined));
        self.table.store(table.clone());
        // The table is replaced before the caches: a request with the old table has either started its cache already,
        // or receives the error that its resource is not served.
        let _changing = self.changing.lock();
        let retained = |(prefix, started): (&String, &Arc<Started>)| {
            let Some(owner) = table.owner(prefix).filter(|owner| started.fits(owner)) else {
                started.tasks.cancel();
                return None;
            };
            let retained = Started {
                columns: owner.columns.clone(),
                ..Started::clone(started)
            };
            Some((prefix.clone(), Arc::new(retained)))
        };
        let started = self.started.load().iter().filter_map(retained).collect();
        self.started.store(Arc::new(started));
        replace(&self.stores, |stores| {
            stores.retain(|prefix, _| table.owner(prefix).is_some());
        });
    }

    /// Returns the cache of `resource`, which starts it if necessary.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] if its definition was removed or has changed.
    pub(crate) fn cache(&self, resource: &Resource) -> Result<Arc<Cacher>, ApiError> {
        let table = self.table.load();
        let owner = table.cache_owner(resource)?;
        let started = self.started.load();
        match started.get(&resource.storage_prefix) {
            // If the cache is that of another owner, a change of the table is about to stop or to retain it.
            Some(started) if started.is_of(owner) => Ok(started.cacher.clone()),
            _ => self.start_cache(resource),
        }
    }

    fn start_cache(&self, resource: &Resource) -> Result<Arc<Cacher>, ApiError> {
        let store = self.store(resource);
        let _changing = self.changing.lock();
        let table = self.table.load();
        let owner = table.cache_owner(resource)?;
        if let Some(started) = self.started.load().get(&resource.storage_prefix) {
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
            uid: Uuid::new_v4(),
            since: Timestamp::now(),
            name,
            is_required: owner.strategy.rules().is_cache_required,
            cacher: cacher.clone(),
            columns: owner.columns.clone(),
            transform,
            tasks,
        };
        replace(&self.started, |started| {
            started.insert(resource.storage_prefix.clone(), Arc::new(new));
        });
        Ok(cacher)
    }

    /// Returns the storage, with the encryption, the encoding and the metrics of `resource`.
    pub(crate) fn store(&self, resource: &Resource) -> Arc<MeteredStorage> {
        if let Some(store) = self.stores.load().get(&resource.storage_prefix) {
            return store.clone();
        }
        let _changing = self.changing.lock();
        if let Some(store) = self.stores.load().get(&resource.storage_prefix) {
            return store.clone();
        }
        let table = self.table.load();
        let served = table.owner(&resource.storage_prefix);
        let owner = served.map_or(resource, |owner| owner);
        let metrics = self.metrics.resource(&owner.group, &owner.plural);
        let metered = |storage| MeteredStorage::new(storage, metrics);
        if let Some(own) = owner.strategy.own_storage() {
            return self.add_store(resource, metered(own));
        }
        let mut storage = self.storage.clone();
        if let Some(encryption) = &self.encryption {
            let encryption = Arc::clone(encryption);
            storage = EncryptedStorage::new(encryption, &owner.group, &owner.plural, storage);
        }
        let conversion = served.map(|owner| {
            StoredVersion::conversion(Arc::clone(self.messages.types()), Arc::clone(owner))
        });
        let messages = Arc::clone(&self.messages);
        let storage = TranscodingStorage::new(messages, self.media_type, conversion, storage);
        match served {
            Some(_) => self.add_store(resource, metered(storage)),
            None => metered(storage),
        }
    }

    /// Stores and returns the storage of `resource`. The caller holds the lock `changing`.
    fn add_store(&self, resource: &Resource, store: Arc<MeteredStorage>) -> Arc<MeteredStorage> {
        replace(&self.stores, |stores| {
            stores.insert(resource.storage_prefix.clone(), store.clone());
        });
        store
    }

    /// Returns each started cache.
    pub(crate) fn started(&self) -> Vec<StartedCache> {
        let (started, table) = (self.started.load(), self.table.load());
        let cache = |(prefix, started): (&String, &Arc<Started>)| {
            Some(StartedCache {
                resource: table.owner(prefix)?.clone(),
                uid: started.uid,
                since: started.since,
                status: started.cacher.status(),
            })
        };
        started.iter().filter_map(cache).collect()
    }

    /// Returns true if the cache of `resource` has all objects that this server has created.
    pub(crate) fn has_own_creates(&self, resource: &Resource) -> bool {
        let prefix = &resource.storage_prefix;
        let stores = self.stores.load();
        let created = stores.get(prefix).map(|store| store.last_create());
        let Some(created) = created.filter(|created| !created.is_zero()) else {
            return true;
        };
        let started = self.started.load();
        let seen = started.get(prefix).map(|started| started.cacher.seen());
        seen.is_some_and(|seen| seen >= created)
    }

    /// Returns the size of a cache that has been started and has a state.
    pub(crate) fn size(&self, resource: &Resource) -> Option<CacheSize> {
        let started = self.started.load();
        started.get(&resource.storage_prefix)?.cacher.size()
    }

    /// Returns an object from a cache that has been started; the object may be stale.
    pub(crate) fn peek(&self, resource: &Resource, key: &ObjectKey) -> Option<Arc<Object>> {
        let started = self.started.load();
        started.get(&resource.storage_prefix)?.cacher.peek(key)
    }
}

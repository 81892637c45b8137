//! The registry: the resources, their caches and their admission, and the interfaces that other crates implement for
//! it.

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use serde_json::Value;

use super::caches::{Caches, StartedCache, StoredValues};
use super::deleted_namespaces::DeletedNamespaces;
use super::error::ApiError;
use super::open_watches::OpenWatches;
use super::resource::Resource;
use super::subresource::Posted;
use super::target::Target;
use watchet_admission::client::{ServiceResolver, WebhookClient};
use watchet_admission::{AdmissionChain, DynamicAdmission, EnabledPlugins, PluginConfigurations};
use watchet_api::{EncodingCache, FieldRef, Object, ObjectKey, ResourceVersion, WriteOptions};
use watchet_auth::{Authorizer, TokenAuthenticator};
use watchet_cacher::{CacheSize, Cacher, CacherConfig};
use watchet_encryption::Encryption;
use watchet_metrics::Metrics;
use watchet_protobuf::{Messages, StorageMediaType, TranscodingStorage};
use watchet_schema::{KindType, Types};
use watchet_storage::{BackupStream, MeteredStorage, RevisionTimes, Storage, StorageError};
use watchet_tasks::Tasks;

/// Adds resources to the table of a registry while it runs, and removes them.
#[async_trait]
pub trait ResourceProvider: Debug + Send + Sync {
    /// Starts to serve resources, in tasks of the registry.
    fn start(&self, registry: &Arc<Registry>);

    /// Waits until the resources that storage defined at the start are served.
    ///
    /// # Errors
    /// [`ApiError::Timeout`].
    async fn wait_until_started(&self) -> Result<(), ApiError>;

    /// Waits until the resources that storage defined at `version` are served.
    ///
    /// # Errors
    /// [`ApiError::Timeout`], and those of a cache that does not reach the version.
    async fn wait_until_served(
        &self,
        registry: &Registry,
        version: ResourceVersion,
    ) -> Result<(), ApiError>;
}

/// Handles POST requests to subresources of built-in resources, and to built-in resources that are not stored.
#[async_trait]
pub trait PostHandler: Debug + Send + Sync {
    /// Handles a request whose body was checked against the URL.
    ///
    /// # Errors
    /// The errors of the request.
    async fn post(
        &self,
        registry: &Registry,
        target: &Target,
        body: Value,
        options: &WriteOptions,
        tokens: &TokenAuthenticator,
    ) -> Result<Posted, ApiError>;
}

/// The configuration of a registry, and the code that other crates provide for it.
pub struct Parts {
    /// The built-in resources, in discovery order. They contain the resource of the namespaces.
    pub resources: Vec<Arc<Resource>>,
    /// Adds resources at run time.
    pub provider: Arc<dyn ResourceProvider>,
    /// Handles POST requests that create no object of their resource.
    pub post_handler: Arc<dyn PostHandler>,
    /// Creates the resolver of the services of webhooks.
    pub services: fn(Weak<Registry>) -> Arc<dyn ServiceResolver>,
    /// The limits of the watch caches.
    pub caches: CacherConfig,
    /// The enabled admission plugins.
    pub plugins: EnabledPlugins,
    /// The configuration of the admission plugins.
    pub plugin_configurations: PluginConfigurations,
    /// Encrypts stored values; `None` if they are stored as they are.
    pub encryption: Option<Arc<Encryption>>,
    /// The encoding in which objects of built-in kinds are stored.
    pub storage_media_type: StorageMediaType,
    /// Retains encodings of the objects in the caches.
    pub encodings: Arc<EncodingCache>,
}

/// The resources and the verbs on them. Clones are cheap.
#[derive(Debug)]
pub struct Registry {
    /// The storage without the encryption of a resource.
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) tasks: Tasks,
    pub(crate) caches: Caches,
    /// The resource of the namespaces.
    pub(crate) namespaces: Arc<Resource>,
    /// The column of a namespace's phase.
    pub(crate) namespace_phase: FieldRef,
    pub(crate) deleted_namespaces: DeletedNamespaces,
    pub(crate) provider: Arc<dyn ResourceProvider>,
    pub(crate) post_handler: Arc<dyn PostHandler>,
    /// The types of the built-in kinds.
    pub(crate) types: Arc<Types>,
    /// Their encoding as protobuf.
    messages: Arc<Messages>,
    encodings: Arc<EncodingCache>,
    /// Calls the webhooks of admission and of conversion.
    pub(crate) webhooks: WebhookClient,
    /// Calls the admission policies and webhooks.
    pub(crate) dynamic_admission: DynamicAdmission,
    /// Calls the admission plugins.
    pub(crate) plugins: AdmissionChain,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    open_watches: Arc<OpenWatches>,
}

impl Registry {
    /// Returns a registry over `storage`, and starts nothing. Its caches run in tasks of `tasks`, and `metrics` counts
    /// them. `authorizer` decides on requests, on reviews, and in admission.
    pub(crate) fn assemble(
        storage: Arc<dyn Storage>,
        tasks: &Tasks,
        metrics: Arc<Metrics>,
        parts: Parts,
        authorizer: Arc<dyn Authorizer>,
    ) -> Arc<Self> {
        let mut resources = parts.resources.iter();
        let namespaces = resources
            .find(|resource| resource.strategy.rules().is_namespaces)
            .cloned()
            .expect("the table has namespaces");
        let namespace_phase = namespaces
            .columns
            .resolve("status.phase")
            .expect("the table has the phase of namespaces");
        let types = Types::builtins();
        let messages = Arc::new(Messages::new(Arc::clone(&types)));
        let media_type = parts.storage_media_type;
        let stored_values = StoredValues {
            encryption: parts.encryption,
            messages: Arc::clone(&messages),
            media_type,
        };
        let caches = Caches::new(
            storage.clone(),
            metrics,
            tasks.clone(),
            parts.caches,
            stored_values,
            parts.resources,
        );
        let storage = TranscodingStorage::new(Arc::clone(&messages), media_type, None, storage);
        Arc::new_cyclic(|registry| {
            let services = (parts.services)(registry.clone());
            let webhooks = WebhookClient::new(tasks, services);
            let (plugins, configurations) = (&parts.plugins, &parts.plugin_configurations);
            Self {
                dynamic_admission: DynamicAdmission::new(&webhooks, tasks, plugins, configurations),
                plugins: AdmissionChain::new(plugins, configurations),
                webhooks,
                namespaces,
                namespace_phase,
                deleted_namespaces: DeletedNamespaces::default(),
                storage,
                tasks: tasks.clone(),
                caches,
                provider: parts.provider,
                post_handler: parts.post_handler,
                types,
                messages,
                encodings: parts.encodings,
                authorizer,
                open_watches: OpenWatches::new(),
            }
        })
    }

    /// Returns the type of the objects of a resource; `None` if it is not known.
    pub fn kind_type(&self, resource: &Resource) -> Option<KindType> {
        match resource.strategy.kind_type() {
            Some(kind) => Some(kind.clone()),
            None => KindType::builtin(&self.types, &resource.api_version(), &resource.kind),
        }
    }

    /// Returns the authorizer of requests.
    pub fn authorizer(&self) -> &Arc<dyn Authorizer> {
        &self.authorizer
    }

    /// Returns the types of the built-in kinds.
    pub fn types(&self) -> &Arc<Types> {
        &self.types
    }

    /// Returns the encoding of the built-in kinds as protobuf.
    pub fn messages(&self) -> &Arc<Messages> {
        &self.messages
    }

    /// Returns the encodings that are retained of the objects in the caches.
    pub fn encodings(&self) -> &Arc<EncodingCache> {
        &self.encodings
    }

    /// Returns the tasks that the registry runs in.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Returns the client of the webhooks of admission and of conversion.
    pub fn webhooks(&self) -> &WebhookClient {
        &self.webhooks
    }

    /// Returns the resource of this group (empty for core), version and plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.caches.table().find(group, version, plural).cloned()
    }

    /// Returns every served resource, groups in discovery order, preferred version of a group first. Resources with only
    /// the verb `create` are not stored.
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        self.caches.table().all().to_vec()
    }

    /// Returns the resource of this group and plural name, in the group's preferred version.
    pub fn preferred_resource(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.caches.table().preferred(group, plural).cloned()
    }

    /// Returns the resource whose objects have this `apiVersion` (`apps/v1`) and kind (`Deployment`).
    pub fn served_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let table = self.caches.table();
        let mut all = table.all().iter();
        all.find(|r| r.kind == kind && r.version == version && r.group == group)
            .cloned()
    }

    /// Returns the resource whose objects are stored with this prefix, in its preferred version.
    pub fn resource_at(&self, storage_prefix: &str) -> Option<Arc<Resource>> {
        self.caches.table().owner(storage_prefix).cloned()
    }

    /// Returns the built-in resources.
    pub fn builtins(&self) -> &[Arc<Resource>] {
        self.caches.builtins()
    }

    /// Returns the resource of the namespaces.
    pub fn namespaces(&self) -> &Arc<Resource> {
        &self.namespaces
    }

    /// Serves `defined` beside the built-in resources from now on, and no others. Stops the caches of resources that
    /// are no longer served, that have other selectable fields, or whose schema has changed, and ends their watches.
    pub fn serve_defined(&self, defined: Vec<Arc<Resource>>) {
        self.caches.serve_defined(defined);
    }

    /// Returns each started cache by the name of its resource, with the reason if it is not ready; for readiness checks.
    /// A cache that waits for its first state only counts if every write or the table of resources depends on it: others
    /// start at any time, and requests for them wait.
    pub fn cache_readiness(&self) -> Vec<(String, Result<(), String>)> {
        self.caches.readiness()
    }

    /// Returns the number of bytes that the storage occupies on disk; `None` if it is not on disk.
    ///
    /// # Errors
    /// Storage's.
    pub async fn storage_bytes(&self) -> Result<Option<u64>, StorageError> {
        self.storage.size_bytes().await
    }

    /// Returns the revisions of the storage at past times; `None` if it records none.
    pub fn revision_times(&self) -> Option<Arc<RevisionTimes>> {
        self.storage.revision_times()
    }

    /// Returns the kind of the storage: `embedded`, `memory` or `etcd`.
    pub fn storage_name(&self) -> &'static str {
        self.storage.name()
    }

    /// Returns the oldest revision of the storage whose state can be read, and the newest one.
    ///
    /// # Errors
    /// Storage's.
    pub async fn storage_revisions(
        &self,
    ) -> Result<(ResourceVersion, ResourceVersion), StorageError> {
        let newest = self.storage.current_revision().await?;
        let compacted = self.storage.compacted_revision().await?;
        Ok((compacted.max(ResourceVersion::new(1)), newest))
    }

    /// Returns a backup of all stored objects, as the storage makes it; `None` if it makes none.
    pub fn storage_backup(&self) -> Option<BackupStream> {
        Arc::clone(&self.storage).backup()
    }

    /// Returns the caches that have been started.
    pub fn started_caches(&self) -> Vec<StartedCache> {
        self.caches.started()
    }

    /// Returns the open watches of clients.
    pub fn open_watches(&self) -> &Arc<OpenWatches> {
        &self.open_watches
    }

    /// Returns the cache of `resource`, which starts it if necessary.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] if its definition was removed or has changed.
    pub fn cache(&self, resource: &Resource) -> Result<Arc<Cacher>, ApiError> {
        self.caches.cache(resource)
    }

    pub(crate) fn store(&self, resource: &Resource) -> Arc<MeteredStorage> {
        self.caches.store(resource)
    }

    /// Returns an object from the cache, if that has been started. The object may be stale.
    pub fn peek(&self, resource: &Resource, key: &ObjectKey) -> Option<Arc<Object>> {
        self.caches.peek(resource, key)
    }

    /// Returns the size of the cache of `resource`, if that has been started and has a state.
    pub fn cache_size(&self, resource: &Resource) -> Option<CacheSize> {
        self.caches.size(resource)
    }

    /// Returns true if the cache of `resource` has all objects that this server has created.
    pub(crate) fn has_own_creates(&self, resource: &Resource) -> bool {
        self.caches.has_own_creates(resource)
    }

    /// Waits until the cache of `resource` has every change up to `version`, and returns the version of the last one,
    /// or `None` if storage cannot report its progress ([`Cacher::changed_up_to`]).
    ///
    /// # Errors
    /// The cache has no state yet, or its resource is no longer served.
    pub async fn changed_up_to(
        &self,
        resource: &Resource,
        version: ResourceVersion,
    ) -> Result<Option<ResourceVersion>, ApiError> {
        Ok(self.cache(resource)?.changed_up_to(version).await?)
    }

    /// Waits until the resources that storage defined at `version` are served.
    ///
    /// # Errors
    /// [`ApiError::Timeout`], and those of a cache that does not reach the version.
    pub async fn definitions_up_to(&self, version: ResourceVersion) -> Result<(), ApiError> {
        self.provider.wait_until_served(self, version).await
    }
}

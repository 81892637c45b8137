//! What each resource is, and how it is written: the table of built-ins, the flows of create,
//! update, patch and delete over storage, and the reads, which it leaves to each resource's cache.
//! It knows no HTTP: bodies come as JSON values, failures leave as [`ApiError`].
//!
//! # Definitions
//!
//! - *Stored form*: an object's JSON as storage has it: with `apiVersion` and `kind`, without
//!   `metadata.resourceVersion`. Both groups' events are stored in the core group's form. Custom resources
//!   are written in the version that the client speaks, and converted where they are read and stored.
//! - *Suggestion*: the object as a cache has it, perhaps stale; a first guess for an optimistic
//!   write that saves a read (§2.1).
//!
//! # Invariants
//!
//! 1. What a write answers is made from the bytes and the revision written, never from a cache.
//! 2. A refusal is never decided on a suggestion alone: it is decided again on what storage has.
//! 3. A namespace is gone only after a pass over it found nothing. A create that was let in just
//!    before the deletion may still land behind that pass, as upstream; then it waits for the next
//!    namespace of that name.

pub(crate) mod admission_adapter;
mod apply;
pub(crate) mod caches;
pub(crate) mod conversion;
pub(crate) mod create;
mod create_authorization;
pub(crate) mod delete;
pub(crate) mod error;
mod field_managers;
mod field_validation;
pub(crate) mod fields;
pub(crate) mod guaranteed_update;
mod json_patch;
pub(crate) mod metadata;
pub(crate) mod names;
mod namespaces;
mod other_kind;
mod patch;
mod patched;
mod pipeline;
mod ratchet;
pub(crate) mod read;
mod resource;
pub(crate) mod scale;
mod service_account_tokens;
pub(crate) mod strategic;
mod strategy;
pub(crate) mod subresource;
mod table;
pub(crate) mod update;
mod watch;

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;

pub(crate) use crate::admission::plugins::protection_finalizer;
pub use error::ApiError;
pub use field_validation::{StrictDecodingError, judge};
pub use guaranteed_update::WRITE_DEADLINE;
pub(crate) use names::path_segment_problems;
pub(crate) use read::StoredName;
pub use resource::Resource;
pub use subresource::{BodyKind, Posted, Subresource};
pub use watch::Watch;

use crate::admission::client::WebhookClient;
use crate::admission::{AdmissionChain, EnabledPlugins, Gate, PluginConfigurations};
use crate::api::{
    DeleteOptions, FieldRef, GetOptions, ListOptions, Object, ObjectKey, ResourceVersion,
    WriteOptions,
};
use crate::apiextensions;
use crate::auth::{AllowAuthenticated, Authorizer, TokenAuthenticator};
use crate::builtin::{
    self, component_statuses, kubernetes_service, subresources, webhook_endpoints,
};
pub use crate::services::ServiceRanges;
// What the verbs take and answer with: who calls them needs to know no room further down.
pub use crate::cacher::{
    CacheWatcher, CacherConfig, CorruptObjects, ObjectList, ReadError, WatchItem,
};
use crate::metrics::Metrics;
use crate::schema::{KindType, Types};
use crate::storage::Storage;
pub use crate::storage::StorageError;
use crate::tasks::Tasks;

/// The object that a request is about.
#[derive(Debug, Clone)]
pub struct Target {
    /// Of which resource.
    pub resource: Arc<Resource>,
    /// From the URL.
    pub namespace: Option<String>,
    /// From the URL.
    pub name: String,
    /// `status`; `None` is the object itself.
    pub subresource: Option<String>,
}

/// A patch as it came.
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 6902
    Json(::json_patch::Patch),
    /// RFC 7396
    Merge(Value),
    /// Kubernetes' own, for built-ins
    Strategic(Value),
}

/// What a delete left.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// It is gone: answer a Success status with its uid.
    Gone(Arc<Object>),
    /// It is gone, and the resource answers with its last state.
    Last(Arc<Object>),
    /// It goes on until its finalizers or its grace period are done.
    Pending(Arc<Object>),
    /// It could not be read, and is gone.
    Unread,
}

/// What a registry is configured by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryConfig {
    /// The limits of the watch caches.
    pub caches: CacherConfig,
    /// Where services get their addresses from.
    pub service_ranges: ServiceRanges,
    /// The admission plugins that run.
    pub plugins: EnabledPlugins,
    /// What the admission plugins are configured by.
    pub plugin_configurations: PluginConfigurations,
}

/// The resources and the verbs on them. Cheap to share.
#[derive(Debug)]
pub struct Registry {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tasks: Tasks,
    pub(crate) config: CacherConfig,
    pub(crate) builtins: Vec<Arc<Resource>>,
    /// Those, and the custom resources of the moment.
    pub(crate) table: ArcSwap<table::Table>,
    /// The namespaces themselves, which every write into one asks for.
    pub(crate) namespaces: Arc<Resource>,
    /// Where in the columns of a namespace its phase is.
    pub(crate) namespace_phase: FieldRef,
    pub(crate) caches: caches::Caches,
    pub(crate) definitions: apiextensions::Definitions,
    /// Namespaces that were deleted just now.
    pub(crate) deleted: namespaces::Deleted,
    /// The types of the built-in kinds.
    pub(crate) types: Arc<Types>,
    /// Calls webhooks, of admission and of conversion.
    pub(crate) webhooks: WebhookClient,
    /// Who may change and refuse writes.
    pub(crate) gate: Gate,
    /// The admission plugins that run in this process.
    pub(crate) plugins: AdmissionChain,
    /// Where the addresses of services come from.
    pub(crate) service_ranges: ServiceRanges,
    pub(crate) authorizer: Arc<dyn Authorizer>,
}

impl Registry {
    /// The built-in resources over `storage`. Caches start on first use, in tasks of `tasks`; that of
    /// the namespaces at once, because every write into one asks it. What they do is counted in `metrics`.
    /// The ServiceAccount plugin is off, because no controller makes service accounts for this registry.
    pub fn new(
        storage: Arc<dyn Storage>,
        tasks: &Tasks,
        config: CacherConfig,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let config = RegistryConfig {
            caches: config,
            service_ranges: ServiceRanges::default(),
            plugins: EnabledPlugins::default().without("ServiceAccount"),
            plugin_configurations: PluginConfigurations::default(),
        };
        Self::with_config(
            storage,
            tasks,
            metrics,
            config,
            Arc::new(AllowAuthenticated),
        )
    }

    /// Creates a registry with `config`. `authorizer` decides on requests, reviews, and in admission.
    pub fn with_config(
        storage: Arc<dyn Storage>,
        tasks: &Tasks,
        metrics: Arc<Metrics>,
        config: RegistryConfig,
        authorizer: Arc<dyn Authorizer>,
    ) -> Arc<Self> {
        let mut unstored = subresources::questions();
        unstored.push(component_statuses::resource());
        let builtins = subresources::among(&builtin::table::resources(), &unstored);
        let namespaces = builtins
            .iter()
            .find(|r| r.is("", "namespaces"))
            .cloned()
            .expect("the table has namespaces");
        let namespace_phase = namespaces
            .columns
            .resolve("status.phase")
            .expect("the table has the phase of namespaces");
        let registry = Arc::new_cyclic(|registry| {
            let services = Arc::new(webhook_endpoints::Services(registry.clone()));
            let webhooks = WebhookClient::new(tasks, services);
            Self {
                gate: Gate::new(
                    &webhooks,
                    tasks,
                    &config.plugins,
                    &config.plugin_configurations,
                ),
                plugins: AdmissionChain::new(&config.plugins, &config.plugin_configurations),
                webhooks,
                namespace_phase,
                storage,
                metrics,
                tasks: tasks.clone(),
                config: config.caches,
                table: ArcSwap::from_pointee(table::Table::new(&builtins, Vec::new())),
                builtins,
                namespaces,
                caches: caches::Caches::default(),
                definitions: apiextensions::Definitions::default(),
                deleted: namespaces::Deleted::default(),
                types: Types::builtins(),
                service_ranges: config.service_ranges,
                authorizer: authorizer.clone(),
            }
        });
        let follower = admission_adapter::follow(registry.clone());
        registry.tasks.spawn("admission-configurations", follower);
        registry
            .cache(&registry.namespaces)
            .expect("the table's prefixes are paths");
        apiextensions::start(&registry);
        registry
    }

    /// Makes what must exist before the first request: the four system namespaces, and the custom
    /// resources that storage has definitions of.
    pub async fn bootstrap(&self) -> Result<(), ApiError> {
        namespaces::bootstrap(self).await?;
        apiextensions::served(self).await
    }

    /// Makes the service `kubernetes`, by which what runs in a cluster finds its API, of this server that
    /// serves it at `secure`. What keeps it from that is logged: nothing here leans on it.
    pub async fn publish(&self, secure: std::net::SocketAddr) {
        kubernetes_service::publish(self, secure).await;
    }

    /// Creates the config map that says since when uses of tokens in Secrets are recorded, unless it exists.
    pub async fn start_token_tracking(&self) {
        service_account_tokens::start_tracking(self).await;
    }

    /// Makes that service and its endpoints again whenever they were deleted; never returns.
    pub async fn keep_published(&self, secure: std::net::SocketAddr) {
        kubernetes_service::keep_published(self, secure).await;
    }

    /// The type of a resource's objects, where there is one to tell.
    pub fn kind_type(&self, resource: &Resource) -> Option<KindType> {
        match &resource.custom {
            Some(custom) => Some(custom.kind.clone()),
            None => KindType::builtin(&self.types, &resource.api_version(), &resource.kind),
        }
    }

    /// Returns the authorizer of requests.
    pub fn authorizer(&self) -> &Arc<dyn Authorizer> {
        &self.authorizer
    }

    /// The types of the built-in kinds.
    pub fn types(&self) -> &Arc<Types> {
        &self.types
    }

    /// The resource of this group (empty for core), version and plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.table.load().find(group, version, plural).cloned()
    }

    /// Every served resource, groups in discovery order, preferred version of a group first. Those with
    /// the verb `create` alone are stored nowhere.
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        self.table.load().all().to_vec()
    }

    /// How many bytes of disk the storage takes, if it takes any.
    ///
    /// # Errors
    /// Storage's.
    pub async fn storage_bytes(&self) -> Result<Option<u64>, StorageError> {
        self.storage.size_bytes().await
    }

    /// One object.
    pub async fn get(&self, target: &Target, options: GetOptions) -> Result<Arc<Object>, ApiError> {
        read::get(self, target, options).await
    }

    /// A list, of one namespace or of all.
    pub async fn list(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiError> {
        read::list(self, resource, namespace, options).await
    }

    /// A watch, of one namespace or of all.
    pub async fn watch(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<Watch, ApiError> {
        read::watch(self, resource, namespace, options).await
    }

    /// A new object.
    pub async fn create(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiError> {
        let created = create::create(self, resource, namespace, body, options).await?;
        apiextensions::settled(self, resource, &created).await;
        Ok(created)
    }

    /// Handles a POST to a subresource, or of a review, which stores no object of that kind. `tokens` issues
    /// and authenticates the tokens of token requests and reviews.
    pub async fn post(
        &self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
        tokens: &TokenAuthenticator,
    ) -> Result<Posted, ApiError> {
        subresources::post(self, target, body, options, tokens).await
    }

    /// Why a subresource that [needs a kubelet](Subresource::needs_kubelet) cannot be had.
    pub async fn connect(&self, target: &Target) -> ApiError {
        subresources::connect(self, target).await
    }

    /// Replaces an object (PUT); also says whether it was created by that.
    pub async fn update(
        &self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<(Arc<Object>, bool), ApiError> {
        let (updated, created) = update::update(self, target, body, options).await?;
        apiextensions::settled(self, &target.resource, &updated).await;
        Ok((updated, created))
    }

    /// Patches an object.
    pub async fn patch(
        &self,
        target: &Target,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiError> {
        let patched = patch::patch(self, target, patch, options).await?;
        apiextensions::settled(self, &target.resource, &patched).await;
        Ok(patched)
    }

    /// Makes an object what the manager of the options wants of it (server-side apply); also says whether
    /// it was created by that.
    pub async fn apply(
        &self,
        target: &Target,
        config: &Value,
        options: &WriteOptions,
    ) -> Result<(Arc<Object>, bool), ApiError> {
        let (applied, created) = apply::apply(self, target, config, options).await?;
        apiextensions::settled(self, &target.resource, &applied).await;
        Ok((applied, created))
    }

    /// Deletes an object, or starts to.
    pub async fn delete(
        &self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let deleted = delete::delete(self, target, options).await?;
        if let Deleted::Gone(last) | Deleted::Last(last) | Deleted::Pending(last) = &deleted {
            apiextensions::settled(self, &target.resource, last).await;
        }
        Ok(deleted)
    }

    /// Deletes what a list selects, one by one; returns the objects.
    pub async fn delete_collection(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<ObjectList, ApiError> {
        delete::delete_collection(self, resource, namespace, selection, options).await
    }

    /// The resource whose objects are of this kind, `apps/v1` and `Deployment`.
    pub(crate) fn served_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let table = self.table.load();
        let mut all = table.all().iter();
        all.find(|r| r.kind == kind && r.version == version && r.group == group)
            .cloned()
    }

    /// The resource of which the objects are that are stored there, in its preferred version.
    pub(crate) fn resource_at(&self, storage_prefix: &str) -> Option<Arc<Resource>> {
        self.table.load().owner(storage_prefix).cloned()
    }

    /// The object as the cache happens to have it, if that has been started.
    pub(crate) fn peek(&self, resource: &Resource, key: &ObjectKey) -> Option<Arc<Object>> {
        self.suggestion(resource, key)
    }

    /// Waits until the cache of `resource` has every change up to `version`; the version of the last one,
    /// unless storage cannot tell ([`Cacher::changed_up_to`](crate::cacher::Cacher::changed_up_to)).
    ///
    /// # Errors
    /// The cache is not there yet, or its resource is no longer served.
    pub(crate) async fn changed_up_to(
        &self,
        resource: &Resource,
        version: ResourceVersion,
    ) -> Result<Option<ResourceVersion>, ApiError> {
        Ok(self.cache(resource)?.changed_up_to(version).await?)
    }

    /// Waits until what storage defined at `version` is in the table.
    ///
    /// # Errors
    /// It is not in time.
    pub(crate) async fn definitions_up_to(&self, version: ResourceVersion) -> Result<(), ApiError> {
        apiextensions::served_up_to(self, version).await
    }

    /// The resource of the namespaces themselves.
    pub(crate) fn namespaces(&self) -> &Arc<Resource> {
        &self.namespaces
    }
}

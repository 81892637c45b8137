//! The verbs on resources: create, update, patch, apply and delete over storage, and the reads, which the cache of each
//! resource answers. How resources differ is in their strategies, which other modules provide.
//! It knows no HTTP: bodies come as JSON values, failures leave as [`ApiError`].
//!
//! # Definitions
//!
//! - *Stored form*: an object's JSON as storage has it: with `apiVersion` and `kind`, without
//!   `metadata.resourceVersion`. Both groups' events are stored in the core group's form. Custom resources
//!   are written in the version that the client speaks, and converted where they are read and stored.
//! - *Suggestion*: the object as a cache has it, perhaps stale; a first guess for an optimistic
//!   write that saves a read.
//!
//! # Invariants
//!
//! 1. What a write answers is made from the bytes and the revision written, never from a cache.
//! 2. A refusal is never decided on a suggestion alone: it is decided again on what storage has.
//! 3. A namespace is gone only after a pass over it found nothing. A create that was let in just
//!    before the deletion may still land behind that pass, as upstream; then it waits for the next
//!    namespace of that name.

pub(crate) mod admission_adapter;
pub(crate) mod age;
pub(crate) mod allocator;
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
pub(crate) mod other_kind;
mod patch;
mod patched;
mod pipeline;
pub(crate) mod provider;
mod ratchet;
pub(crate) mod read;
mod resource;
pub(crate) mod scale;
pub(crate) mod strategic;
pub(crate) mod strategy;
pub(crate) mod subresource;
mod table;
pub(crate) mod table_columns;
pub(crate) mod update;
mod watch;

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use serde_json::Value;

pub(crate) use crate::admission::plugins::protection_finalizer;
pub use error::ApiError;
pub use field_validation::{StrictDecodingError, judge};
pub use guaranteed_update::WRITE_DEADLINE;
pub(crate) use names::path_segment_problems;
pub(crate) use provider::ResourceProvider;
pub(crate) use read::StoredName;
pub use resource::Resource;
pub use subresource::{BodyKind, Posted, Subresource};
pub use table_columns::TableColumn;
pub use watch::Watch;

use crate::admission::client::{ServiceResolver, WebhookClient};
use crate::admission::{AdmissionChain, EnabledPlugins, Gate, PluginConfigurations};
use crate::api::{
    DeleteOptions, FieldRef, GetOptions, ListOptions, Object, ObjectKey, ResourceVersion,
    WriteOptions,
};
use crate::auth::{Authorizer, TokenAuthenticator};
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

/// What a registry is made of.
pub(crate) struct Parts {
    /// The built-in resources, in discovery order. One of them is that of the namespaces.
    pub(crate) resources: Vec<Arc<Resource>>,
    /// Adds resources at run time.
    pub(crate) provider: Arc<dyn ResourceProvider>,
    /// Makes what finds the endpoints of services for webhooks.
    pub(crate) services: fn(Weak<Registry>) -> Arc<dyn ServiceResolver>,
    /// The limits of the watch caches.
    pub(crate) caches: CacherConfig,
    /// The admission plugins that run.
    pub(crate) plugins: EnabledPlugins,
    /// The configuration of the admission plugins.
    pub(crate) plugin_configurations: PluginConfigurations,
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
    pub(crate) provider: Arc<dyn ResourceProvider>,
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
    pub(crate) authorizer: Arc<dyn Authorizer>,
}

impl Registry {
    /// Returns a registry over `storage`. Its caches run in tasks of `tasks` and are counted in `metrics`. `authorizer`
    /// decides on requests, reviews, and in admission.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        tasks: &Tasks,
        metrics: Arc<Metrics>,
        parts: Parts,
        authorizer: Arc<dyn Authorizer>,
    ) -> Arc<Self> {
        let builtins = parts.resources;
        let namespaces = builtins
            .iter()
            .find(|resource| resource.strategy.rules().is_namespaces)
            .cloned()
            .expect("the table has namespaces");
        let namespace_phase = namespaces
            .columns
            .resolve("status.phase")
            .expect("the table has the phase of namespaces");
        let registry = Arc::new_cyclic(|registry| {
            let services = (parts.services)(registry.clone());
            let webhooks = WebhookClient::new(tasks, services);
            Self {
                gate: Gate::new(
                    &webhooks,
                    tasks,
                    &parts.plugins,
                    &parts.plugin_configurations,
                ),
                plugins: AdmissionChain::new(&parts.plugins, &parts.plugin_configurations),
                webhooks,
                namespace_phase,
                storage,
                metrics,
                tasks: tasks.clone(),
                config: parts.caches,
                table: ArcSwap::from_pointee(table::Table::new(&builtins, Vec::new())),
                builtins,
                namespaces,
                caches: caches::Caches::default(),
                provider: parts.provider,
                deleted: namespaces::Deleted::default(),
                types: Types::builtins(),
                authorizer,
            }
        });
        let follower = admission_adapter::follow(registry.clone());
        registry.tasks.spawn("admission-configurations", follower);
        registry
            .cache(&registry.namespaces)
            .expect("the table's prefixes are paths");
        registry.provider.start(&registry);
        registry
    }

    /// Creates what must exist before the first request, which is the system namespaces, and waits for the resources
    /// that storage defines.
    pub async fn bootstrap(&self) -> Result<(), ApiError> {
        namespaces::bootstrap(self).await?;
        self.provider.wait_until_started().await
    }

    /// The type of a resource's objects, where there is one to tell.
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
        after_request(resource, &created).await;
        Ok(created)
    }

    /// Handles a POST to a subresource, or of a review, which stores no object of that kind. `tokens` issues
    /// and authenticates the tokens of token requests and reviews.
    pub async fn post(
        &self,
        target: &Target,
        mut body: Value,
        options: &WriteOptions,
        tokens: &TokenAuthenticator,
    ) -> Result<Posted, ApiError> {
        let resource = &target.resource;
        metadata::check_shape(&target.of_bodies(), &mut body)?;
        let namespace = target.namespace.as_deref();
        metadata::check_namespace(namespace.filter(|_| resource.namespaced), &mut body)?;
        match resource.strategy.post_handler() {
            Some(handler) => handler.post(self, target, body, options, tokens).await,
            None => Err(ApiError::MethodNotAllowed(format!(
                "{} has no subresource {:?} with the verb create",
                resource.qualified(),
                target.subresource.as_deref().unwrap_or_default()
            ))),
        }
    }

    /// Why a subresource that [needs a kubelet](Subresource::needs_kubelet) cannot be had.
    pub async fn connect(&self, target: &Target) -> ApiError {
        subresource::connect(self, target).await
    }

    /// Replaces an object (PUT); also says whether it was created by that.
    pub async fn update(
        &self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<(Arc<Object>, bool), ApiError> {
        let (updated, created) = update::update(self, target, body, options).await?;
        after_request(&target.resource, &updated).await;
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
        after_request(&target.resource, &patched).await;
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
        after_request(&target.resource, &applied).await;
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
            after_request(&target.resource, last).await;
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
        self.provider.wait_until_served(self, version).await
    }

    /// The resource of the namespaces themselves.
    pub(crate) fn namespaces(&self) -> &Arc<Resource> {
        &self.namespaces
    }
}

/// Waits until the write of a client has taken effect in this server.
async fn after_request(resource: &Resource, written: &Object) {
    if let Some(effect) = resource.strategy.after_request(written) {
        effect.await;
    }
}

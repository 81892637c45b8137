//! Builds the registry of a server from the built-in resources, the custom resources, and the resolver of webhook
//! services.

use std::sync::Arc;

use super::dependencies::Dependencies;
use super::table;
use super::{component_statuses, subresources, webhook_endpoints};
use watchet_admission::{EnabledPlugins, PluginConfigurations};
use watchet_api::EncodingCache;
use watchet_apiextensions::CustomResources;
use watchet_auth::{AllowAuthenticated, Authorizer};
use watchet_cacher::CacherConfig;
use watchet_encryption::Encryption;
use watchet_introspection::Introspection;
use watchet_metrics::Metrics;
use watchet_protobuf::StorageMediaType;
use watchet_registry::{Parts, Registry};
use watchet_services::ServiceRanges;
use watchet_storage::Storage;
use watchet_tasks::Tasks;

/// The configuration of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryConfig {
    /// The limits of the watch caches.
    pub caches: CacherConfig,
    /// The ranges of the cluster IPs and node ports of services.
    pub service_ranges: ServiceRanges,
    /// The admission plugins that are enabled.
    pub plugins: EnabledPlugins,
    /// The configuration of the admission plugins.
    pub plugin_configurations: PluginConfigurations,
    /// The encoding in which objects of built-in kinds are stored.
    pub storage_media_type: StorageMediaType,
    /// The memory for encodings of objects other than JSON, in bytes.
    pub encoding_cache_bytes: usize,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            caches: CacherConfig::default(),
            service_ranges: ServiceRanges::default(),
            plugins: EnabledPlugins::default(),
            plugin_configurations: PluginConfigurations::default(),
            storage_media_type: StorageMediaType::default(),
            // Some 100,000 pods.
            encoding_cache_bytes: 256 << 20,
        }
    }
}

/// Returns a registry of the built-in and custom resources in `storage`. Caches start on first use, in tasks of
/// `tasks`; the cache of the namespaces starts immediately, because every write depends on it. The ServiceAccount
/// plugin is disabled, because no controller creates service accounts for this registry.
pub fn new_registry(
    storage: Arc<dyn Storage>,
    tasks: &Tasks,
    caches: CacherConfig,
    metrics: Arc<Metrics>,
) -> Arc<Registry> {
    let config = RegistryConfig {
        caches,
        plugins: EnabledPlugins::default().without("ServiceAccount"),
        ..RegistryConfig::default()
    };
    let authorizer = Arc::new(AllowAuthenticated);
    new_registry_with_config(storage, None, tasks, metrics, config, authorizer)
}

/// Like [`new_registry`], with a configuration, and with an `encryption` of stored values. `authorizer` authorizes requests, answers reviews, and is available to
/// admission.
pub fn new_registry_with_config(
    storage: Arc<dyn Storage>,
    encryption: Option<Arc<Encryption>>,
    tasks: &Tasks,
    metrics: Arc<Metrics>,
    config: RegistryConfig,
    authorizer: Arc<dyn Authorizer>,
) -> Arc<Registry> {
    let dependencies = Dependencies {
        service_ranges: config.service_ranges,
        ..Dependencies::default()
    };
    let mut virtual_resources = subresources::virtual_resources(table::is_kind);
    virtual_resources.push(component_statuses::resource(table::is_kind));
    let introspection = Introspection::new();
    let mut stored = table::resources(&dependencies);
    stored.extend(introspection.resources());
    let parts = Parts {
        resources: subresources::among(&stored, &virtual_resources),
        provider: Arc::new(CustomResources(dependencies.definitions)),
        post_handler: Arc::new(subresources::Posts),
        services: |registry| Arc::new(webhook_endpoints::ServiceEndpoints(registry)),
        caches: config.caches,
        plugins: config.plugins,
        plugin_configurations: config.plugin_configurations,
        encryption,
        storage_media_type: config.storage_media_type,
        encodings: EncodingCache::new(config.encoding_cache_bytes),
    };
    let registry = Registry::new(storage, tasks, metrics, parts, authorizer);
    introspection.start(&registry);
    registry
}

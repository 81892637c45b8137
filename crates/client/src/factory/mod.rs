//! `SharedInformerFactory`: the informers of a program, one per collection, shared by all users.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::Resource;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::informer_snapshot::InformerSnapshot;
use super::{
    ApiResource, HttpListerWatcher, InformerSynced, KubeObject, ListWatchOptions, ObjectScope,
    RestClient, SharedInformer,
};
use watchet_tasks::{DrainTimeout, Tasks};

/// Creates, starts and stops the informers of one server. Informers are shared by resource, object
/// type, namespace and selection.
///
/// ```no_run
/// use std::time::Duration;
/// use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
/// use watchet_client::{ApiResource, Kubeconfig, PartialObjectMetadata, RestClient, RestConfig};
/// use watchet_client::SharedInformerFactory;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let kubeconfig = Kubeconfig::load(&["kubeconfig"])?;
/// let client = RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None)?)?;
/// let factory = SharedInformerFactory::new(client);
/// let namespaces = factory.informer::<Namespace>().lister();
/// // Metadata is enough for some users.
/// let maps = ApiResource::of::<ConfigMap>();
/// let maps = factory.informer_for::<PartialObjectMetadata>(&maps);
///
/// factory.start();
/// factory.wait_for_cache_sync().await?;
/// assert!(namespaces.get("default").is_ok());
/// assert!(maps.has_synced());
/// factory.shutdown(Duration::from_secs(5)).await?;
/// assert!(maps.is_stopped());
/// # Ok(())
/// # }
/// ```
pub struct SharedInformerFactory {
    client: RestClient,
    default_resync: Duration,
    resyncs: HashMap<ApiResource, Duration>,
    namespace: Option<String>,
    options: ListWatchOptions,
    informers: Mutex<Vec<FactoryInformer>>,
    tasks: Tasks,
}

/// The key of an informer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Collection {
    resource: ApiResource,
    /// The Rust type of its objects.
    object: TypeId,
    namespace: Option<String>,
    options: ListWatchOptions,
}

struct FactoryInformer {
    collection: Collection,
    informer: Box<dyn AnyInformer>,
}

/// An informer of any type.
trait AnyInformer: Send + Sync {
    /// Starts the informer, unless it was started before; returns whether it was not.
    fn start(&self, tasks: &Tasks) -> bool;
    fn synced(&self) -> InformerSynced;
    fn snapshot(&self) -> InformerSnapshot;
    fn as_any(&self) -> &dyn Any;
}

impl<T: KubeObject> AnyInformer for SharedInformer<T> {
    fn start(&self, tasks: &Tasks) -> bool {
        SharedInformer::start(self, tasks).is_ok()
    }

    fn synced(&self) -> InformerSynced {
        SharedInformer::synced(self)
    }

    fn snapshot(&self) -> InformerSnapshot {
        SharedInformer::snapshot(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An informer was stopped before it had synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the informer of {resource} was stopped before it was synced")]
pub struct FactoryNotSynced {
    /// The resource of the informer: `deployments.v1.apps`.
    pub resource: String,
}

impl SharedInformerFactory {
    /// Creates a factory of informers of all namespaces, without resyncs.
    pub fn new(client: RestClient) -> Self {
        Self {
            client,
            default_resync: Duration::ZERO,
            resyncs: HashMap::new(),
            namespace: None,
            options: ListWatchOptions::default(),
            informers: Mutex::default(),
            tasks: Tasks::new(),
        }
    }

    /// Sets the default resync period of handlers; zero is never.
    #[must_use]
    pub fn with_default_resync(mut self, period: Duration) -> Self {
        self.default_resync = period;
        self
    }

    /// Sets the default resync period of handlers of one resource.
    #[must_use]
    pub fn with_resync(mut self, resource: ApiResource, period: Duration) -> Self {
        self.resyncs.insert(resource, period);
        self
    }

    /// Restricts informers to one namespace, except for cluster-scoped resources.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the selectors and list options of informers.
    #[must_use]
    pub fn with_options(mut self, options: ListWatchOptions) -> Self {
        self.options = options;
        self
    }

    /// Returns the informer of a type of `k8s-openapi`, or of another type that implements its
    /// `Resource`.
    pub fn informer<K>(&self) -> SharedInformer<K>
    where
        K: KubeObject + Resource + DeserializeOwned,
        K::Scope: ObjectScope,
    {
        self.informer_for(&ApiResource::of::<K>())
    }

    /// Returns the informer of `resource` with objects of type `T`: typed, a
    /// [`DynamicObject`](super::DynamicObject), or only metadata as
    /// [`PartialObjectMetadata`](super::PartialObjectMetadata).
    pub fn informer_for<T>(&self, resource: &ApiResource) -> SharedInformer<T>
    where
        T: KubeObject + DeserializeOwned,
    {
        let namespace = self.namespace.as_deref();
        self.filtered_informer_for(resource, namespace, self.options.clone())
    }

    /// Returns an informer with another namespace (`None`: all) or other options than the
    /// factory's.
    pub fn filtered_informer_for<T>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        options: ListWatchOptions,
    ) -> SharedInformer<T>
    where
        T: KubeObject + DeserializeOwned,
    {
        let collection = Collection {
            resource: resource.clone(),
            object: TypeId::of::<T>(),
            namespace: namespace.filter(|_| resource.namespaced).map(str::to_owned),
            options,
        };
        let mut informers = self.informers.lock();
        let mut same = informers
            .iter()
            .filter(|known| known.collection == collection);
        if let Some(known) = same.next() {
            let informer = known.informer.as_any().downcast_ref::<SharedInformer<T>>();
            return informer.expect("the key contains the type").clone();
        }
        let informer = self.create(&collection);
        informers.push(FactoryInformer {
            collection,
            informer: Box::new(informer.clone()),
        });
        informer
    }

    fn create<T>(&self, collection: &Collection) -> SharedInformer<T>
    where
        T: KubeObject + DeserializeOwned,
    {
        let Collection {
            resource,
            namespace,
            options,
            ..
        } = collection;
        let objects = self.client.resource::<T>(resource.clone());
        let objects = match namespace {
            Some(namespace) => objects.namespace(namespace.as_str()),
            None => objects,
        };
        let source = HttpListerWatcher::new(objects, options.clone());
        let resync = self.resyncs.get(resource).copied();
        let name = match resource.group.as_str() {
            "" => resource.plural.clone(),
            group => format!("{}.{group}", resource.plural),
        };
        let metrics = source.metrics();
        let informer = SharedInformer::new(&name, source, resync.unwrap_or(self.default_resync));
        informer.set_reflector_metrics(metrics);
        informer
    }

    /// Returns snapshots of all informers for metrics, in order of creation.
    pub(super) fn snapshot(&self) -> Vec<InformerSnapshot> {
        let informers = self.informers.lock();
        let informers = informers.iter();
        informers.map(|known| known.informer.snapshot()).collect()
    }

    /// Starts all informers that were not started. After [`Self::shutdown`] they end immediately.
    pub fn start(&self) {
        for known in self.informers.lock().iter() {
            if known.informer.start(&self.tasks) {
                tracing::debug!(resource = %known.collection.resource, "informer started");
            }
        }
    }

    /// Waits until every informer has synced; they must have been started. Cancel safe.
    ///
    /// # Errors
    /// [`FactoryNotSynced`] if one is stopped before.
    pub async fn wait_for_cache_sync(&self) -> Result<(), FactoryNotSynced> {
        let informers: Vec<_> = {
            let informers = self.informers.lock();
            let informers = informers.iter();
            informers
                .map(|known| {
                    (
                        known.collection.resource.to_string(),
                        known.informer.synced(),
                    )
                })
                .collect()
        };
        for (resource, synced) in informers {
            if synced.wait().await.is_err() {
                return Err(FactoryNotSynced { resource });
            }
        }
        Ok(())
    }

    /// Stops all informers and waits for the end of their tasks and of running handler calls.
    ///
    /// # Errors
    /// [`DrainTimeout`] if some have not ended after `grace`.
    pub async fn shutdown(&self, grace: Duration) -> Result<(), DrainTimeout> {
        self.tasks.drain(grace).await
    }

    /// Returns the tasks of the informers and handlers, e.g. to notice when one fails.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }
}

impl Drop for SharedInformerFactory {
    /// Stops the informers, which nothing else could stop.
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let informers = self.informers.lock();
        let collections = informers.iter().map(|known| &known.collection);
        f.debug_list().entries(collections).finish()
    }
}

#[cfg(test)]
mod tests;

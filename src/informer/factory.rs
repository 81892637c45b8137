//! `SharedInformerFactory`: the informers of a program, one for each collection, however many parts of
//! it ask. What an informer does is not known here.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::Resource;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::metrics::Seen;
use super::{
    ApiResource, HttpListerWatcher, InformerSynced, KubeObject, ListWatchOptions, ObjectScope,
    RestClient, SharedInformer,
};
use crate::tasks::{DrainTimeout, Tasks};

/// Makes informers of one server, starts them and stops them. There is one for each resource, type of
/// object, namespace and choice of objects: who asks again gets the same.
///
/// ```
/// use std::time::Duration;
/// use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
/// use watchet::informer::{ApiResource, Kubeconfig, PartialObjectMetadata, RestClient, RestConfig};
/// use watchet::informer::SharedInformerFactory;
/// use watchet::testing::Server;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = Server::start().await?;
/// # let kubeconfig: Kubeconfig = server.kubeconfig().parse()?;
/// let client = RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None)?)?;
/// let factory = SharedInformerFactory::new(client);
/// let namespaces = factory.informer::<Namespace>().lister();
/// // What only needs metadata asks for no more.
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
    informers: Mutex<Vec<Known>>,
    tasks: Tasks,
}

/// Of which objects there is an informer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Collection {
    resource: ApiResource,
    /// In what they are held.
    object: TypeId,
    namespace: Option<String>,
    options: ListWatchOptions,
}

struct Known {
    collection: Collection,
    informer: Box<dyn AnyInformer>,
}

/// An informer of whatever type.
trait AnyInformer: Send + Sync {
    /// Starts it, unless it was before. Whether it was not.
    fn start(&self, tasks: &Tasks) -> bool;
    fn synced(&self) -> InformerSynced;
    fn seen(&self) -> Seen;
    fn as_any(&self) -> &dyn Any;
}

impl<T: KubeObject> AnyInformer for SharedInformer<T> {
    fn start(&self, tasks: &Tasks) -> bool {
        SharedInformer::start(self, tasks).is_ok()
    }

    fn synced(&self) -> InformerSynced {
        SharedInformer::synced(self)
    }

    fn seen(&self) -> Seen {
        SharedInformer::seen(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An informer was stopped before it had all that there was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the informer of {resource} was stopped before it was synced")]
pub struct FactoryNotSynced {
    /// Of which resource: `deployments.v1.apps`.
    pub resource: String,
}

impl SharedInformerFactory {
    /// A factory of informers of all namespaces, without resyncs.
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

    /// Has handlers told of every object anew each `period`, unless they say otherwise; never, if it is
    /// zero.
    #[must_use]
    pub fn with_default_resync(mut self, period: Duration) -> Self {
        self.default_resync = period;
        self
    }

    /// The same for those of one resource.
    #[must_use]
    pub fn with_resync(mut self, resource: ApiResource, period: Duration) -> Self {
        self.resyncs.insert(resource, period);
        self
    }

    /// Has informers follow one namespace only. Objects that are in none are followed all the same.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Has informers follow those objects only that `options` choose, and list them so.
    #[must_use]
    pub fn with_options(mut self, options: ListWatchOptions) -> Self {
        self.options = options;
        self
    }

    /// The informer of a type of `k8s-openapi`, or of one that says as they do what it is.
    pub fn informer<K>(&self) -> SharedInformer<K>
    where
        K: KubeObject + Resource + DeserializeOwned,
        K::Scope: ObjectScope,
    {
        self.informer_for(&ApiResource::of::<K>())
    }

    /// The informer of `resource`, which holds its objects as values of `T`: typed, a
    /// [`DynamicObject`](super::DynamicObject), or only their metadata as
    /// [`PartialObjectMetadata`](super::PartialObjectMetadata).
    pub fn informer_for<T>(&self, resource: &ApiResource) -> SharedInformer<T>
    where
        T: KubeObject + DeserializeOwned,
    {
        let namespace = self.namespace.as_deref();
        self.filtered_informer_for(resource, namespace, self.options.clone())
    }

    /// One that follows another namespace (`None`: all) or chooses other objects than the factory's.
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
            return informer.expect("its collection has this type").clone();
        }
        let informer = self.make(&collection);
        informers.push(Known {
            collection,
            informer: Box::new(informer.clone()),
        });
        informer
    }

    fn make<T>(&self, collection: &Collection) -> SharedInformer<T>
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

    /// What is told of its informers in a scrape, in the order in which they were made.
    pub(super) fn seen(&self) -> Vec<Seen> {
        let informers = self.informers.lock();
        let informers = informers.iter();
        informers.map(|known| known.informer.seen()).collect()
    }

    /// Starts the informers that were not started yet. After [`Self::shutdown`] they would end at once.
    pub fn start(&self) {
        for known in self.informers.lock().iter() {
            if known.informer.start(&self.tasks) {
                tracing::debug!(resource = %known.collection.resource, "informer started");
            }
        }
    }

    /// Waits until every informer that there is has all that there was at first; they must have been
    /// started. Cancel safe.
    ///
    /// # Errors
    /// [`FactoryNotSynced`] when one is stopped before.
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

    /// Stops all informers and waits until their tasks, and the calls of handlers that are in progress,
    /// have ended.
    ///
    /// # Errors
    /// [`DrainTimeout`] when some have not after `grace`.
    pub async fn shutdown(&self, grace: Duration) -> Result<(), DrainTimeout> {
        self.tasks.drain(grace).await
    }

    /// The tasks of the informers and their handlers: to hear when one fails, or to have others stop
    /// with them.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }
}

impl Drop for SharedInformerFactory {
    /// Informers without their factory would go on with nobody to stop them.
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

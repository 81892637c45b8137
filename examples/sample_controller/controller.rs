//! The controller. It maintains a Deployment with the requested number of replicas for each Foo, and writes the number of
//! available replicas to the status of the Foo.
//!
//! ```text
//!   Foo changes ─────────────▶ key ─┐
//!                                   ├─▶ WorkQueue ─▶ worker: reconcile(key) ─▶ server
//!   Deployment changes ─▶ owner's ──┘       ▲ later, if that failed │
//!                                           └───────────────────────┘
//! ```
//!
//! An event only queues the key of its Foo. `reconcile` compares the desired state with the observed one and writes the
//! difference, so it may be called any number of times, also after a restart of the process or the server.

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::Resource as _;
use k8s_openapi::api::apps::v1::Deployment;
use tokio_util::sync::CancellationToken;
use watchet::client::{
    ApiResource, Deleted, EventRecorder, InformerStopped, Lister, ObjectKey, ResourceClient,
    ResourceEventHandlerFuncs, RestClient, RestError, SharedInformer, SharedInformerFactory,
    WorkQueue, key_of,
};

use crate::foo::{Foo, controller_of};

/// Why a Foo could not be reconciled; the controller retries.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("Resource {0:?} already exists and is not managed by Foo")]
    NotOwned(String),
    #[error(transparent)]
    Server(#[from] RestError),
    #[error("the deployment cannot be written: {0}")]
    Deployment(#[from] serde_json::Error),
}

pub(crate) struct SampleController {
    /// Clients for writes.
    foos: ResourceClient<Foo>,
    deployments: ResourceClient<Deployment>,
    /// Listers for reads. They read the caches of the informers and send no requests.
    foo_lister: Lister<Foo>,
    deployment_lister: Lister<Deployment>,
    queue: Arc<WorkQueue<ObjectKey>>,
    recorder: EventRecorder,
}

impl SampleController {
    /// Adds handlers to the factory's informers. The caller starts them.
    pub(crate) fn new(
        client: &RestClient,
        factory: &SharedInformerFactory,
        recorder: EventRecorder,
    ) -> Result<Self, InformerStopped> {
        let foos = factory.informer::<Foo>();
        let deployments = factory.informer::<Deployment>();
        let queue = Arc::new(WorkQueue::named("foos"));
        follow_foos(&foos, &queue)?;
        follow_deployments(&deployments, &queue)?;
        Ok(Self {
            foos: client.resource(ApiResource::of::<Foo>()),
            deployments: client.resource(ApiResource::of::<Deployment>()),
            foo_lister: foos.lister(),
            deployment_lister: deployments.lister(),
            queue,
            recorder,
        })
    }

    /// Returns the queue of the keys of Foos to reconcile.
    pub(crate) fn queue(&self) -> Arc<WorkQueue<ObjectKey>> {
        self.queue.clone()
    }

    /// Runs the workers until `stop`, and waits for the keys in the queue to be reconciled.
    pub(crate) async fn run(&self, workers: usize, stop: CancellationToken) {
        let work = join_all((0..workers).map(|_| self.work()));
        let end = async {
            stop.cancelled().await;
            self.queue.shut_down();
        };
        tokio::join!(work, end);
    }

    /// Runs one worker. The queue never gives a key to two workers at the same time.
    async fn work(&self) {
        while let Some(key) = self.queue.get().await {
            match self.reconcile(&key).await {
                Ok(()) => self.queue.forget(&key),
                Err(error) => {
                    tracing::warn!(%key, %error, "trying again");
                    self.queue.add_rate_limited(key.clone());
                }
            }
            self.queue.done(&key);
        }
    }

    /// Reconciles one Foo. Its writes cause events of the Deployment, which queue the Foo again.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), Failure> {
        let (namespace, name) = (key.namespace(), key.name());
        let Ok(foo) = self.foo_lister.namespaced(namespace).get(name) else {
            // The Foo was deleted. The garbage collector deletes its Deployment.
            return Ok(());
        };
        let deployment = self.deployment_of(&foo, namespace).await?;
        self.update_status(&foo, namespace, &deployment).await?;
        let about = ApiResource::of::<Foo>().reference(&*foo);
        self.recorder
            .normal(&about, "Synced", "Foo synced successfully");
        Ok(())
    }

    /// Returns the Deployment of a Foo. Creates it if it does not exist, and scales it if the number of replicas differs.
    async fn deployment_of(&self, foo: &Foo, namespace: &str) -> Result<Arc<Deployment>, Failure> {
        let deployments = self.deployments.clone().namespace(namespace);
        let name = &foo.spec.deployment_name;
        let Ok(known) = self.deployment_lister.namespaced(namespace).get(name) else {
            // If the cache is behind, the Deployment may exist; then this fails, and the worker retries.
            let made = deployments.create(&foo.deployment()?).await?;
            tracing::info!(namespace, name, "created a deployment");
            return Ok(Arc::new(made));
        };
        if !foo.controls(&known) {
            let failure = Failure::NotOwned(name.clone());
            let about = ApiResource::of::<Foo>().reference(foo);
            self.recorder
                .warning(&about, "ErrResourceExists", failure.to_string());
            return Err(failure);
        }
        let replicas = Some(foo.spec.replicas);
        if known
            .spec
            .as_ref()
            .is_some_and(|spec| spec.replicas == replicas)
        {
            return Ok(known);
        }
        // The object of a lister is shared, so it is cloned. The clone has the resourceVersion: if another client has
        // changed the Deployment, the update fails with a conflict.
        let mut scaled_spec = Deployment::clone(&known);
        scaled_spec.spec.get_or_insert_default().replicas = replicas;
        let scaled = deployments.update(&scaled_spec).await?;
        tracing::info!(namespace, name, replicas, "scaled a deployment");
        Ok(Arc::new(scaled))
    }

    async fn update_status(
        &self,
        foo: &Foo,
        namespace: &str,
        deployment: &Deployment,
    ) -> Result<(), Failure> {
        let status = deployment.status.as_ref();
        let available = status.and_then(|status| status.available_replicas);
        let mut updated = foo.clone();
        updated.status.available_replicas = available.unwrap_or(0);
        if updated != *foo {
            let foos = self.foos.clone().namespace(namespace);
            foos.update_status(&updated).await?;
        }
        Ok(())
    }
}

fn follow_foos(
    informer: &SharedInformer<Foo>,
    queue: &Arc<WorkQueue<ObjectKey>>,
) -> Result<(), InformerStopped> {
    let (added, changed) = (queue.clone(), queue.clone());
    let handler = ResourceEventHandlerFuncs::<Foo>::new()
        .on_add(move |foo, _| added.add(key_of(&*foo)))
        .on_update(move |_, foo| changed.add(key_of(&*foo)));
    informer.add_event_handler(handler).map(drop)
}

fn follow_deployments(
    informer: &SharedInformer<Deployment>,
    queue: &Arc<WorkQueue<ObjectKey>>,
) -> Result<(), InformerStopped> {
    let [added, changed, deleted] = [(); 3].map(|()| queue.clone());
    let handler = ResourceEventHandlerFuncs::<Deployment>::new()
        .on_add(move |deployment, _| add_owner(&added, &deployment))
        .on_update(move |old, new| {
            // A resync sends every Deployment; unchanged ones are ignored.
            if old.metadata.resource_version != new.metadata.resource_version {
                add_owner(&changed, &new);
            }
        })
        // If the watch missed the deletion, the last known state has the owner.
        .on_delete(move |gone: Deleted<Deployment>| add_owner(&deleted, gone.object()));
    informer.add_event_handler(handler).map(drop)
}

/// Queues the Foo that owns a Deployment, if any.
fn add_owner(queue: &WorkQueue<ObjectKey>, deployment: &Deployment) {
    if let Some(owner) = controller_of(deployment)
        && owner.kind == Foo::KIND
    {
        let namespace = deployment.metadata.namespace.as_deref();
        queue.add(ObjectKey::new(namespace, &owner.name));
    }
}

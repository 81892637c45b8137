//! Controllers that maintain one object with a fixed name in each active namespace: the service
//! account `default`, and the config map with the server's CA certificate. They restore missing
//! objects and content, and leave other content unchanged.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::follower::{Follower, FollowerEvent};
use crate::framework::{self, Controller};
use crate::queue::{Next, Pauses, WorkQueue};
use watchet_api::{GetOptions, Object, ObjectKey};
use watchet_metrics::Metrics;
use watchet_registry::{ApiError, Patch, Registry, Resource, Target};

const SERVICE_ACCOUNT: &str = "serviceaccount-controller";
const ROOT_CA: &str = "root-ca-certificate-publisher-controller";

/// The key of the certificate in the config map.
const CERTIFICATE: &str = "ca.crt";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// The object to maintain.
#[derive(Debug)]
struct ManagedObject {
    /// The resource, of the core group.
    plural: &'static str,
    name: &'static str,
    /// A PEM certificate to store in it. Others may be in it too: servers that share a storage need
    /// not share a CA, and must not remove each other's.
    certificate: Option<String>,
    /// The name of upstream's service account for the controller.
    account: &'static str,
}

/// Maintains one object in each active namespace.
#[derive(Debug)]
struct ObjectMaintainer {
    registry: Arc<Registry>,
    /// Names of namespaces.
    queue: WorkQueue<String>,
    managed: ManagedObject,
}

impl ObjectMaintainer {
    fn resource(&self) -> Arc<Resource> {
        let resource = self.registry.resource("", "v1", self.managed.plural);
        resource.expect("the table of built-ins has it")
    }

    fn target(&self, namespace: &str) -> Target {
        Target {
            resource: self.resource(),
            namespace: Some(namespace.to_owned()),
            name: self.managed.name.to_owned(),
            subresource: None,
        }
    }

    /// Queues each added namespace, and each whose object is changed or deleted.
    async fn follow(&self) {
        let namespaces = self.registry.namespaces().clone();
        let mut namespaces = Follower::new(self.registry.clone(), namespaces);
        let mut objects = Follower::new(self.registry.clone(), self.resource());
        loop {
            // Namespaces come first: they are fewer.
            tokio::select! {
                biased;
                events = namespaces.next() => for event in events {
                    if let FollowerEvent::Object(namespace) = event {
                        self.queue.add(namespace.key().name().to_owned());
                    }
                },
                events = objects.next() => for event in events {
                    if let FollowerEvent::Object(object) | FollowerEvent::Deleted(object) = event
                        && object.key().name() == self.managed.name
                    {
                        self.queue.add(object.key().namespace().to_owned());
                    }
                },
            }
        }
    }

    fn is_active(&self, namespace: &str) -> bool {
        let key = ObjectKey::new(None, namespace);
        let cached = self.registry.peek(self.registry.namespaces(), &key);
        let phase = |object: Arc<Object>| parse(&object)["status"]["phase"] == "Active";
        cached.is_some_and(phase)
    }

    /// Returns a merge patch with the missing content of `object`; `None` if it is complete.
    fn lacks(&self, object: &Value) -> Option<Value> {
        let certificate = self.managed.certificate.as_deref()?;
        let published = object["data"][CERTIFICATE].as_str().unwrap_or_default();
        let lacks = !published.contains(certificate);
        lacks.then(|| json!({"data": {CERTIFICATE: format!("{published}{certificate}")}}))
    }

    async fn reconcile(&self, namespace: &str) -> Result<Next, ApiError> {
        if !self.is_active(namespace) {
            // An event follows when it becomes active.
            return Ok(Next::Done);
        }
        let target = self.target(namespace);
        let options = framework::write_options(self.managed.account);
        let found = self.registry.get(&target, GetOptions::default()).await;
        let written = match found {
            Ok(object) => {
                let Some(mut patch) = self.lacks(&parse(&object)) else {
                    return Ok(Next::Done);
                };
                let version = object.resource_version().to_string();
                patch["metadata"] = json!({"resourceVersion": version});
                let patch = Patch::Merge(patch);
                self.registry.patch(&target, &patch, &options).await
            }
            Err(error) if error.is_not_found() => {
                let mut object = self.lacks(&Value::Null).unwrap_or_else(|| json!({}));
                object["metadata"] = json!({"name": self.managed.name});
                let resource = &target.resource;
                self.registry
                    .create(resource, Some(namespace), object, &options)
                    .await
            }
            Err(error) => return Err(error),
        };
        match written {
            // Another server was faster, or the namespace was deleted: an event follows in both
            // cases.
            Ok(_)
            | Err(
                ApiError::AlreadyExists { .. }
                | ApiError::NotFound { .. }
                | ApiError::Forbidden { .. },
            ) => Ok(Next::Done),
            Err(error) => Err(error),
        }
    }
}

fn parse(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap_or_default()
}

/// Creates the service account `default`, which pods without a service account use.
#[derive(Debug)]
pub(super) struct ServiceAccounts(ObjectMaintainer);

impl ServiceAccounts {
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self(ObjectMaintainer {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(SERVICE_ACCOUNT)),
            managed: ManagedObject {
                plural: "serviceaccounts",
                name: "default",
                certificate: None,
                account: "service-account-controller",
            },
        })
    }
}

impl Controller for ServiceAccounts {
    type Key = String;
    const NAME: &'static str = SERVICE_ACCOUNT;
    const WORKERS: usize = 1;

    fn queue(&self) -> &WorkQueue<String> {
        &self.0.queue
    }

    async fn follow(&self) {
        self.0.follow().await;
    }

    async fn reconcile(&self, namespace: &String) -> Result<Next, ApiError> {
        self.0.reconcile(namespace).await
    }
}

/// Publishes the CA certificate with which pods verify the server.
#[derive(Debug)]
pub(super) struct RootCa(ObjectMaintainer);

impl RootCa {
    /// Creates a controller that publishes `certificate`, PEM.
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics, certificate: &str) -> Self {
        Self(ObjectMaintainer {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(ROOT_CA)),
            managed: ManagedObject {
                plural: "configmaps",
                name: "kube-root-ca.crt",
                certificate: Some(certificate.to_owned()),
                account: "root-ca-cert-publisher",
            },
        })
    }
}

impl Controller for RootCa {
    type Key = String;
    const NAME: &'static str = ROOT_CA;
    const WORKERS: usize = 1;

    fn queue(&self) -> &WorkQueue<String> {
        &self.0.queue
    }

    async fn follow(&self) {
        self.0.follow().await;
    }

    async fn reconcile(&self, namespace: &String) -> Result<Next, ApiError> {
        self.0.reconcile(namespace).await
    }
}

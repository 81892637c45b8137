//! Controllers that keep one object of a fixed name in each active namespace: the service account
//! `default`, and the config map with the certificate by which the server is trusted. What they make
//! again is what is missing or was changed; what else is in the objects is left alone.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::follower::{Follower, News};
use super::frame::{self, Controller};
use super::queue::{Next, Pauses, WorkQueue};
use crate::api::{GetOptions, Object, ObjectKey};
use crate::metrics::Metrics;
use crate::registry::{ApiError, Patch, Registry, Resource, Target};

pub(super) const SERVICE_ACCOUNT: &str = "serviceaccount-controller";
pub(super) const ROOT_CA: &str = "root-ca-certificate-publisher-controller";

/// Where in the config map it is.
const CERTIFICATE: &str = "ca.crt";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// The object that is kept.
#[derive(Debug)]
struct Kept {
    /// Of the core group.
    plural: &'static str,
    name: &'static str,
    /// PEM, if it holds one. It may hold others too: servers that share a storage need not share a CA, and
    /// if each replaced the other's there would be no end of it.
    certificate: Option<String>,
    /// Upstream's service account for whoever keeps it.
    account: &'static str,
}

/// Keeps one object in each active namespace.
#[derive(Debug)]
struct Keeper {
    registry: Arc<Registry>,
    /// The names of namespaces.
    queue: WorkQueue<String>,
    kept: Kept,
}

impl Keeper {
    fn resource(&self) -> Arc<Resource> {
        let resource = self.registry.resource("", "v1", self.kept.plural);
        resource.expect("the table of built-ins has it")
    }

    fn target(&self, namespace: &str) -> Target {
        Target {
            resource: self.resource(),
            namespace: Some(namespace.to_owned()),
            name: self.kept.name.to_owned(),
            subresource: None,
        }
    }

    /// Queues each namespace that comes, and that whose object changes or goes.
    async fn follow(&self) {
        let namespaces = self.registry.namespaces().clone();
        let mut namespaces = Follower::new(self.registry.clone(), namespaces);
        let mut objects = Follower::new(self.registry.clone(), self.resource());
        loop {
            // Namespaces come first: they are few.
            tokio::select! {
                biased;
                news = namespaces.next() => for news in news {
                    if let News::Object(namespace) = news {
                        self.queue.add(namespace.key().name().to_owned());
                    }
                },
                news = objects.next() => for news in news {
                    if let News::Object(object) | News::Deleted(object) = news
                        && object.key().name() == self.kept.name
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

    /// What `object` lacks, as a merge patch.
    fn lacks(&self, object: &Value) -> Option<Value> {
        let certificate = self.kept.certificate.as_deref()?;
        let known = object["data"][CERTIFICATE].as_str().unwrap_or_default();
        let lacks = !known.contains(certificate);
        lacks.then(|| json!({"data": {CERTIFICATE: format!("{known}{certificate}")}}))
    }

    async fn reconcile(&self, namespace: &str) -> Result<Next, ApiError> {
        if !self.is_active(namespace) {
            // When it becomes so, it is told.
            return Ok(Next::Done);
        }
        let target = self.target(namespace);
        let options = frame::write_options(self.kept.account);
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
                object["metadata"] = json!({"name": self.kept.name});
                let resource = &target.resource;
                self.registry
                    .create(resource, Some(namespace), object, &options)
                    .await
            }
            Err(error) => return Err(error),
        };
        match written {
            // Another server was faster, or the namespace has gone meanwhile: both are told.
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

/// Makes the service account `default`, which pods have that name none.
#[derive(Debug)]
pub(super) struct ServiceAccounts(Keeper);

impl ServiceAccounts {
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self(Keeper {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(SERVICE_ACCOUNT)),
            kept: Kept {
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

/// Publishes the CA by which pods trust the server.
#[derive(Debug)]
pub(super) struct RootCa(Keeper);

impl RootCa {
    /// One that publishes `certificate`, PEM.
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics, certificate: &str) -> Self {
        Self(Keeper {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(ROOT_CA)),
            kept: Kept {
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

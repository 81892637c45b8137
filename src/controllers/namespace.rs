//! The namespace controller: empties a namespace that is being deleted and then lets it go. That
//! nothing new gets into it is the registry's business.
//!
//! A pass over a namespace deletes what storage holds under it, pods first, as upstream does since what
//! a pod needs must outlive it. When a pass finds nothing left the `kubernetes` finalizer goes, and the
//! namespace with it. What has finalizers or a grace period of its own is waited for; what that is, the
//! conditions of the namespace tell meanwhile.

mod conditions;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use self::conditions::Findings;
use super::follower::{Follower, News};
use super::frame::{self, Controller};
use super::queue::{Next, Pauses, WorkQueue};
use crate::api::{DeleteOptions, GetOptions, Object, Preconditions, PropagationPolicy};
use crate::metrics::Metrics;
use crate::registry::{
    ApiError, Deleted, Patch, ReadError, Registry, Resource, StoredName, Target,
};

pub(super) const NAME: &str = "namespace-controller";

const FINALIZER: &str = "kubernetes";

/// How many names a pass reads at once: a few hundred keep memory flat and the store responsive.
const PAGE: usize = 500;

/// How many deletes of a pass are under way at once, so that a store that commits in groups can.
const DELETES_MAX: usize = 32;

/// How many resources a pass is at at once.
const RESOURCES_MAX: usize = 4;

/// How soon a namespace that was not empty yet is looked at again. What holds it back may take its time.
const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(100),
    max: Duration::from_secs(10),
};

/// Empties the namespaces that are being deleted.
#[derive(Debug)]
pub(super) struct NamespaceController {
    registry: Arc<Registry>,
    queue: WorkQueue<String>,
}

impl Controller for NamespaceController {
    type Key = String;
    const NAME: &'static str = NAME;
    /// Passes mostly wait for storage.
    const WORKERS: usize = 10;

    fn queue(&self) -> &WorkQueue<String> {
        &self.queue
    }

    /// Every namespace that is being deleted, whoever began it: a request whose client hung up, another
    /// server, an earlier run of this one.
    async fn follow(&self) {
        let namespaces = self.registry.namespaces().clone();
        let mut follower = Follower::new(self.registry.clone(), namespaces);
        loop {
            for news in follower.next().await {
                if let News::Object(object) = news
                    && is_terminating(&parse(&object))
                {
                    self.queue.add(object.key().name().to_owned());
                }
            }
        }
    }

    async fn reconcile(&self, name: &String) -> Result<Next, ApiError> {
        let target = self.target(name, None);
        let namespace = match self.registry.get(&target, GetOptions::default()).await {
            Ok(object) => parse(&object),
            Err(error) if error.is_not_found() => return Ok(Next::Done),
            Err(error) => return Err(error),
        };
        let finalizers = namespace["spec"]["finalizers"].as_array();
        let ours = finalizers.is_some_and(|list| list.iter().any(|f| f == FINALIZER));
        if !is_terminating(&namespace) || !ours {
            return Ok(Next::Done);
        }
        let uid = namespace["metadata"]["uid"].as_str().unwrap_or_default();
        let findings = self.empty(name, uid).await;
        if findings.deleted > 0 && findings.is_harmless() {
            // Only a pass that finds nothing proves that nothing is left; it can follow at once.
            return Ok(Next::After(Duration::ZERO));
        }
        self.conclude(namespace, name, findings).await
    }
}

impl NamespaceController {
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
        }
    }

    fn target(&self, name: &str, subresource: Option<&str>) -> Target {
        Target {
            resource: self.registry.namespaces().clone(),
            namespace: None,
            name: name.to_owned(),
            subresource: subresource.map(str::to_owned),
        }
    }

    /// One pass over a namespace.
    async fn empty(&self, name: &str, uid: &str) -> Findings {
        let mut prefixes = BTreeSet::new();
        let mut resources = self.registry.resources();
        resources.retain(|r| r.namespaced && r.is_stored());
        // The second of two that share a prefix has nothing of its own.
        resources.retain(|r| prefixes.insert(r.storage_prefix.clone()));
        // Custom resources go as what they are stored as: that needs no webhook, which may have gone before.
        let resources = resources.into_iter().map(|resource| {
            let owner = self.registry.resource_at(&resource.storage_prefix);
            owner.unwrap_or(resource)
        });
        let (pods, others): (Vec<_>, Vec<_>) = resources.partition(|r| is_pods(r));
        let findings = self.empty_all((name, uid), pods).await;
        match findings.remains() {
            true => findings,
            false => findings.and(self.empty_all((name, uid), others).await),
        }
    }

    /// One pass over the objects of some resources in a namespace. What fails, or waits for a webhook, keeps
    /// nobody from the others.
    async fn empty_all(
        &self,
        (namespace, uid): (&str, &str),
        resources: Vec<Arc<Resource>>,
    ) -> Findings {
        let passes = resources.into_iter().map(|resource| async move {
            let mut findings = Findings::default();
            self.empty_of((namespace, uid), &resource, &mut findings)
                .await;
            findings
        });
        let passes = futures_util::stream::iter(passes).buffer_unordered(RESOURCES_MAX);
        passes
            .fold(Findings::default(), async |all, found| all.and(found))
            .await
    }

    /// One pass over the objects of `resource` in a namespace.
    async fn empty_of(
        &self,
        (namespace, uid): (&str, &str),
        resource: &Arc<Resource>,
        findings: &mut Findings,
    ) {
        let mut after: Option<String> = None;
        loop {
            let page = self
                .registry
                .stored_names(resource, namespace, after.as_deref(), PAGE);
            let (names, more) = match page.await {
                Ok(page) => page,
                Err(error) => return findings.failed(error),
            };
            let Some(last) = names.last().map(|last| last.name.clone()) else {
                return;
            };
            // What was listed while the namespace was there is its own, and goes by its uid: another server
            // may have been faster, and somebody may have made the namespace anew since.
            match self.is_being_emptied(namespace, uid).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return findings.failed(error),
            }
            let deletes = names
                .into_iter()
                .map(|stored| self.delete(namespace, resource, stored));
            let mut deletes = futures_util::stream::iter(deletes).buffer_unordered(DELETES_MAX);
            while let Some(deleted) = deletes.next().await {
                match deleted {
                    Ok(Deleted::Pending(object)) => {
                        findings.pending(&resource.plural, &resource.group, &parse(&object));
                    }
                    Ok(_) => findings.deleted += 1,
                    Err(error) if error.is_not_found() => {}
                    // Its webhook is not asked again before the next pass: it may take half a minute each time.
                    Err(error @ ApiError::Read(ReadError::Unconvertible(_))) => {
                        return findings.failed(error);
                    }
                    Err(error) => findings.failed(error),
                }
            }
            if !more {
                return;
            }
            after = Some(last);
        }
    }

    /// Whether the namespace of this uid is still there and not yet through.
    async fn is_being_emptied(&self, name: &str, uid: &str) -> Result<bool, ApiError> {
        let target = self.target(name, None);
        match self.registry.get(&target, GetOptions::default()).await {
            Ok(object) => Ok(object.uid() == uid),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn delete(
        &self,
        namespace: &str,
        resource: &Arc<Resource>,
        stored: StoredName,
    ) -> Result<Deleted, ApiError> {
        let target = Target {
            resource: resource.clone(),
            namespace: Some(namespace.to_owned()),
            name: stored.name,
            subresource: None,
        };
        // The garbage collector has nothing to add: everything goes anyway.
        let options = DeleteOptions {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: stored.uid.map(|uid| Preconditions {
                uid: Some(uid),
                ..Preconditions::default()
            }),
            user: frame::user(ACCOUNT),
            ..DeleteOptions::default()
        };
        self.registry.delete(&target, &options).await
    }

    /// Writes what a pass found, and takes the finalizer from the namespace if it found nothing.
    async fn conclude(
        &self,
        namespace: Value,
        name: &str,
        findings: Findings,
    ) -> Result<Next, ApiError> {
        // Conditions of a namespace that is deleted with the next write serve nobody, and they would make a
        // conflict for clients that finalize it themselves.
        let ends = findings.is_harmless() && is_last_finalizer(&namespace);
        let namespace = match ends {
            true => namespace,
            false => match self.tell(&namespace, name, &findings).await {
                Ok(namespace) => namespace,
                Err(error) => return next_after(error),
            },
        };
        match findings.into_result()? {
            true => self.finalize(namespace, name).await,
            false => Ok(Next::Again),
        }
    }

    /// Puts what a pass found into the conditions of the namespace, if that is news.
    async fn tell(
        &self,
        namespace: &Value,
        name: &str,
        findings: &Findings,
    ) -> Result<Value, ApiError> {
        let Some(conditions) = findings.conditions(&namespace["status"]["conditions"]) else {
            return Ok(namespace.clone());
        };
        let patch = Patch::Merge(json!({
            "metadata": {
                "uid": namespace["metadata"]["uid"],
                "resourceVersion": namespace["metadata"]["resourceVersion"],
            },
            "status": {"phase": "Terminating", "conditions": conditions},
        }));
        let target = self.target(name, Some("status"));
        let options = frame::write_options(ACCOUNT);
        let told = self.registry.patch(&target, &patch, &options).await?;
        Ok(parse(&told))
    }

    /// Takes the finalizer from a namespace of which nothing is left.
    async fn finalize(&self, mut namespace: Value, name: &str) -> Result<Next, ApiError> {
        if let Some(finalizers) = namespace["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        let target = self.target(name, Some("finalize"));
        let options = frame::write_options(ACCOUNT);
        let finalized = self.registry.update(&target, namespace, &options).await;
        finalized.map_or_else(next_after, |_| Ok(Next::Done))
    }
}

/// What follows a write to the namespace that failed: nothing if it is gone, and another pass if another
/// client wrote to it meanwhile.
fn next_after(error: ApiError) -> Result<Next, ApiError> {
    match error {
        error if error.is_not_found() => Ok(Next::Done),
        ApiError::Conflict { .. } => Ok(Next::After(Duration::ZERO)),
        error => Err(error),
    }
}

/// Upstream's service account for it.
const ACCOUNT: &str = "namespace-controller";

fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns true if nothing but the controller's own finalizer holds the namespace.
fn is_last_finalizer(namespace: &Value) -> bool {
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    count(&namespace["spec"]["finalizers"]) == 1 && count(&namespace["metadata"]["finalizers"]) == 0
}

/// The object as JSON; a cache holds nothing else.
fn parse(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap_or_default()
}

//! The namespace controller: deletes the content of a namespace that is being deleted, and then its
//! finalizer. The registry rejects creates in such a namespace.
//!
//! A pass deletes all objects that storage contains in the namespace, pods first, as upstream,
//! because other objects must outlive the pods that use them. A pass that finds nothing removes the
//! `kubernetes` finalizer and thereby the namespace. While objects with finalizers or a grace period
//! remain, the conditions of the namespace report them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::follower::{Follower, FollowerEvent};
use crate::framework::{self, Controller};
use crate::namespace_conditions::Findings;
use crate::queue::{Next, Pauses, WorkQueue};
use watchet_api::{DeleteOptions, GetOptions, Object, Preconditions, PropagationPolicy};
use watchet_metrics::Metrics;
use watchet_registry::{
    ApiError, Deleted, Patch, ReadError, Registry, Resource, StoredName, Target,
};

const NAME: &str = "namespace-controller";

const FINALIZER: &str = "kubernetes";

/// The page size of lists: a few hundred names bound the memory and keep storage responsive.
const PAGE: usize = 500;

/// The maximum number of concurrent deletes of a pass, for storage with group commit.
const DELETES_MAX: usize = 32;

/// The maximum number of resources that a pass deletes concurrently.
const RESOURCES_MAX: usize = 4;

/// The pauses between passes over a namespace that is not empty.
const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(100),
    max: Duration::from_secs(10),
};

/// Deletes the content of namespaces that are being deleted.
#[derive(Debug)]
pub(super) struct NamespaceController {
    registry: Arc<Registry>,
    queue: WorkQueue<String>,
}

impl Controller for NamespaceController {
    type Key = String;
    const NAME: &'static str = NAME;
    /// Workers mostly wait for storage.
    const WORKERS: usize = 10;

    fn queue(&self) -> &WorkQueue<String> {
        &self.queue
    }

    /// Queues every namespace that is being deleted, whether through this server, another one, or
    /// before a restart.
    async fn follow(&self) {
        let namespaces = self.registry.namespaces().clone();
        let mut follower = Follower::new(self.registry.clone(), namespaces);
        loop {
            for event in follower.next().await {
                if let FollowerEvent::Object(object) = event
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
        let has_finalizer = finalizers.is_some_and(|list| list.iter().any(|f| f == FINALIZER));
        if !is_terminating(&namespace) || !has_finalizer {
            return Ok(Next::Done);
        }
        let uid = namespace["metadata"]["uid"].as_str().unwrap_or_default();
        let findings = self.empty(name, uid).await;
        if findings.deleted > 0 && findings.is_clean() {
            // Only a pass that finds nothing proves that the namespace is empty; it follows
            // immediately.
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

    /// Runs one pass over a namespace.
    async fn empty(&self, name: &str, uid: &str) -> Findings {
        let mut prefixes = BTreeSet::new();
        let mut resources = self.registry.resources();
        resources.retain(|r| r.namespaced && r.is_stored());
        // A resource that shares a storage prefix has the same objects.
        resources.retain(|r| prefixes.insert(r.storage_prefix.clone()));
        // Custom resources are deleted in their stored version: no conversion webhook is needed,
        // which may be deleted already.
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

    /// Runs one pass over the objects of some resources. A failure, or a slow webhook, of one
    /// resource does not block the others.
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

    /// Runs one pass over the objects of one resource.
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
            // Objects listed while the namespace existed are deleted by uid: another server may
            // have finished the deletion, and the namespace may have been created again since.
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
                    // The webhook is not called again in this pass: each call may take half a
                    // minute.
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

    /// Returns whether the namespace with this uid still exists and is not finalized.
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
        // Dependents need no garbage collection, since everything is deleted.
        let options = DeleteOptions {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: stored.uid.map(|uid| Preconditions {
                uid: Some(uid),
                ..Preconditions::default()
            }),
            user: framework::user(ACCOUNT),
            ..DeleteOptions::default()
        };
        self.registry.delete(&target, &options).await
    }

    /// Writes the findings of a pass, and removes the finalizer from the namespace if nothing is
    /// left.
    async fn conclude(
        &self,
        namespace: Value,
        name: &str,
        findings: Findings,
    ) -> Result<Next, ApiError> {
        // Conditions of a namespace that the next write deletes are useless, and would cause
        // conflicts for clients that finalize it themselves.
        let ends = findings.is_clean() && is_last_finalizer(&namespace);
        let namespace = match ends {
            true => namespace,
            false => match self.update_conditions(&namespace, name, &findings).await {
                Ok(namespace) => namespace,
                Err(error) => return next_after(error),
            },
        };
        match findings.into_result()? {
            true => self.finalize(namespace, name).await,
            false => Ok(Next::Again),
        }
    }

    /// Writes the findings of a pass to the conditions of the namespace, if they have changed.
    async fn update_conditions(
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
        let options = framework::write_options(ACCOUNT);
        let patched = self.registry.patch(&target, &patch, &options).await?;
        Ok(parse(&patched))
    }

    /// Removes the finalizer from an empty namespace.
    async fn finalize(&self, mut namespace: Value, name: &str) -> Result<Next, ApiError> {
        if let Some(finalizers) = namespace["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        let target = self.target(name, Some("finalize"));
        let options = framework::write_options(ACCOUNT);
        let finalized = self.registry.update(&target, namespace, &options).await;
        finalized.map_or_else(next_after, |_| Ok(Next::Done))
    }
}

/// Returns the next step after a failed write to the namespace: none if it was deleted, another
/// pass after a conflict.
fn next_after(error: ApiError) -> Result<Next, ApiError> {
    match error {
        error if error.is_not_found() => Ok(Next::Done),
        ApiError::Conflict { .. } => Ok(Next::After(Duration::ZERO)),
        error => Err(error),
    }
}

/// The name of upstream's service account for this controller.
const ACCOUNT: &str = "namespace-controller";

fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns true if the controller's own finalizer is the only one of the namespace.
fn is_last_finalizer(namespace: &Value) -> bool {
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    count(&namespace["spec"]["finalizers"]) == 1 && count(&namespace["metadata"]["finalizers"]) == 0
}

/// Returns the object as JSON; objects in a cache are always valid.
fn parse(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap_or_default()
}

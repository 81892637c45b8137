//! Processes one object of the graph: reads it and its owners from storage, then deletes it, waits for its dependents or
//! orphans them, as upstream's `attemptToDeleteItem` and `attemptToOrphan` do.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};

use crate::framework;
use crate::garbage::collector::{ACCOUNT, GarbageCollector};
use crate::garbage::graph::{Dependent, Location, Uid, View, Work};
use crate::garbage::metadata::{FOREGROUND, Metadata, ORPHAN, OwnerReference};
use crate::queue::Next;
use watchet_api::{
    DeleteOptions, Object, ObjectKey, Preconditions, PropagationPolicy, ResourceVersion,
};
use watchet_registry::{ApiError, Resource, Target};

/// The maximum number of dependents that are orphaned concurrently.
const PATCHES_MAX: usize = 16;

/// How many times the patch of a dependent is retried immediately after a conflict.
const CONFLICTS_MAX: usize = 5;

/// The state of an owner, as seen from a dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    /// It exists.
    Solid,
    /// It does not exist.
    Dangling,
    /// It exists, is being deleted in the foreground and waits for its dependents. The value is its
    /// resourceVersion.
    Waiting(ResourceVersion),
    /// Its kind is not served, or not yet.
    Unknown,
    /// It is namespaced and the dependent is not, so the reference is ambiguous.
    Misplaced,
}

/// The owner references of an object, by the state of the owner.
#[derive(Debug, Default)]
struct Owners<'a> {
    solid: Vec<&'a OwnerReference<'a>>,
    dangling: Vec<&'a OwnerReference<'a>>,
    /// The greatest resourceVersion of the owners that wait for their dependents.
    waiting: Option<ResourceVersion>,
}

impl GarbageCollector {
    /// Determines whether an object is garbage, or which dependents its deletion waits for.
    pub(super) async fn examine(&self, uid: &Uid) -> Result<Next, ApiError> {
        let Some(view) = self.graph.lock().view(uid) else {
            return Ok(Next::Done);
        };
        // Only references of dependents name this owner; no event of it was observed. Its dependents are examined instead.
        let Some(location) = &view.location else {
            return Ok(Next::Done);
        };
        if view.being_deleted && !view.deletes_dependents {
            return self.check_deleted(uid, location).await;
        }
        if !view.deletes_dependents
            && let Some(resource) = self.registry.resource_at(&location.prefix)
            && let Some(cached) = self.registry.peek(&resource, &location.key)
            && *cached.uid() == **uid
            && self.are_owners_present(&Metadata::of(&cached), &location.key)
        {
            return Ok(Next::Done);
        }
        let Some((target, object)) = self.get_live(uid, location).await? else {
            return Ok(self.forget(uid));
        };
        let Ok(metadata) = Metadata::parse(&object) else {
            // No API server wrote this object, and none can delete it.
            return Ok(Next::Done);
        };
        if view.deletes_dependents {
            return self
                .wait_for_dependents(&target, &view, &object, &metadata)
                .await;
        }
        self.collect(uid, &target, &object, &metadata).await
    }

    /// Checks an object that is being deleted: its DELETED event may have been missed.
    async fn check_deleted(&self, uid: &Uid, location: &Location) -> Result<Next, ApiError> {
        match self.get_live(uid, location).await? {
            Some(_) => Ok(Next::Done),
            None => Ok(self.forget(uid)),
        }
    }

    fn forget(&self, uid: &Uid) -> Next {
        let then = self.graph.lock().remove(uid);
        self.enqueue(then);
        Next::Done
    }

    /// Returns the object from storage; `None` if no object at `location` has this uid.
    async fn get_live(
        &self,
        uid: &Uid,
        location: &Location,
    ) -> Result<Option<(Target, Arc<Object>)>, ApiError> {
        let Some(resource) = self.registry.resource_at(&location.prefix) else {
            return Ok(None);
        };
        let target = target(resource, &location.key);
        match self.registry.get_stored(&target).await {
            Ok(object) if *object.uid() == **uid => Ok(Some((target, object))),
            Ok(_) => Ok(None),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Continues a foreground deletion: removes the finalizer when no blocking dependents exist.
    async fn wait_for_dependents(
        &self,
        target: &Target,
        view: &View,
        object: &Object,
        metadata: &Metadata<'_>,
    ) -> Result<Next, ApiError> {
        // An object that owns itself would wait for itself.
        let blocks = |d: &&Dependent| d.blocks && *d.uid != *metadata.uid;
        let mut blocking: Vec<Dependent> = view.dependents.iter().filter(blocks).cloned().collect();
        if blocking.is_empty() {
            if !self.catch_up(object.resource_version()).await? {
                return Ok(Next::Again);
            }
            let dependents = self.dependents(&metadata.uid.as_ref().into());
            blocking = dependents.iter().filter(blocks).cloned().collect();
        }
        if blocking.is_empty() {
            return self
                .remove_finalizer(target, object, metadata, FOREGROUND)
                .await;
        }
        for dependent in blocking.iter().filter(|d| !d.deletes_dependents) {
            self.queue.add(Work::Examine(dependent.uid.clone()));
        }
        Ok(Next::Done)
    }

    fn dependents(&self, uid: &Uid) -> Vec<Dependent> {
        let view = self.graph.lock().view(uid);
        view.map_or_else(Vec::new, |view| view.dependents)
    }

    /// Deletes an object if none of its owners exists. If some exist, removes the references to the others.
    async fn collect(
        &self,
        uid: &Uid,
        target: &Target,
        object: &Object,
        metadata: &Metadata<'_>,
    ) -> Result<Next, ApiError> {
        let mut owners = Owners::default();
        for owner in &metadata.owners {
            match self.owner_state(owner, target).await? {
                OwnerState::Solid => owners.solid.push(owner),
                OwnerState::Dangling => owners.dangling.push(owner),
                OwnerState::Waiting(since) => owners.waiting = owners.waiting.max(Some(since)),
                OwnerState::Unknown => return Ok(Next::Again),
                OwnerState::Misplaced => {
                    self.warn_misplaced(target, metadata, owner).await;
                    return Ok(Next::Done);
                }
            }
        }
        if metadata.owners.is_empty() {
            return Ok(Next::Done);
        }
        if !owners.solid.is_empty() {
            if owners.solid.len() < metadata.owners.len() {
                // Otherwise owners that wait for this dependent would wait forever.
                self.retain_owners(target, object, |uid| {
                    owners.solid.iter().any(|owner| owner.uid == uid)
                })
                .await?;
            }
            return Ok(Next::Done);
        }
        if let Some(since) = owners.waiting {
            // The owners wait for this object's dependents too.
            if !self.catch_up(since).await? {
                return Ok(Next::Again);
            }
            let dependents = self.dependents(uid);
            if !dependents.is_empty() {
                let mut version = metadata.resource_version.to_string();
                if dependents.iter().any(|d| d.deletes_dependents) {
                    // Possibly a cycle of objects, each of which would wait for the next.
                    version = self.unblock_owners(target, object).await?;
                }
                let policy = PropagationPolicy::Foreground;
                return self.delete(target, metadata, &version, policy).await;
            }
        }
        let policy = match () {
            () if metadata.has(ORPHAN) => PropagationPolicy::Orphan,
            () if metadata.has(FOREGROUND) => PropagationPolicy::Foreground,
            () => PropagationPolicy::Background,
        };
        let version = &metadata.resource_version;
        self.delete(target, metadata, version, policy).await
    }

    /// Returns the state of an owner of `dependent`.
    async fn owner_state(
        &self,
        owner: &OwnerReference<'_>,
        dependent: &Target,
    ) -> Result<OwnerState, ApiError> {
        let kind = self.registry.served_kind(&owner.api_version, &owner.kind);
        let Some(kind) = kind else {
            let (kind, version) = (&owner.kind, &owner.api_version);
            tracing::debug!(%version, %kind, dependent = dependent.name, "kind of owner is not served");
            return Ok(OwnerState::Unknown);
        };
        if kind.namespaced && dependent.namespace.is_none() {
            return Ok(OwnerState::Misplaced);
        }
        let namespace = dependent.namespace.as_deref().filter(|_| kind.namespaced);
        let key = ObjectKey::new(namespace, &owner.name);
        let prefix: Arc<str> = kind.storage_prefix.as_str().into();
        let owner_target = target(kind, &key);
        let object = match self.registry.get_stored(&owner_target).await {
            Ok(object) if *object.uid() == *owner.uid => object,
            Ok(_) => return Ok(OwnerState::Dangling),
            // An object with an invalid name cannot exist.
            Err(ApiError::NotFound { .. } | ApiError::BadRequest(_)) => {
                return Ok(OwnerState::Dangling);
            }
            Err(error) => return Err(error),
        };
        let waits = Metadata::of(&object).deletes_dependents();
        let found = || Location { prefix, key };
        self.graph.lock().found(&owner.uid, found);
        Ok(match waits {
            true => OwnerState::Waiting(object.resource_version()),
            false => OwnerState::Solid,
        })
    }

    /// Deletes the object that `metadata` was read from, if it still has the resourceVersion
    /// `version` or if its owner references are unchanged.
    async fn delete(
        &self,
        target: &Target,
        metadata: &Metadata<'_>,
        version: &str,
        policy: PropagationPolicy,
    ) -> Result<Next, ApiError> {
        let mut options = DeleteOptions {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions {
                uid: Some(metadata.uid.to_string()),
                resource_version: Some(version.to_owned()),
            }),
            user: framework::user(ACCOUNT),
            ..DeleteOptions::default()
        };
        let deleted = match self.registry.delete(target, &options).await {
            Err(ApiError::Conflict { .. }) => {
                let now = self.registry.get_stored(target).await;
                let now = match now {
                    Ok(object) if *object.uid() == *metadata.uid => object,
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => return Ok(self.forget(&metadata.uid.as_ref().into())),
                };
                let same = Metadata::parse(&now).is_ok_and(|now| now.owners == metadata.owners);
                if !same {
                    return Ok(Next::Again);
                }
                if let Some(preconditions) = &mut options.preconditions {
                    preconditions.resource_version = None;
                }
                self.registry.delete(target, &options).await
            }
            other => other,
        };
        match deleted {
            Ok(_) => {
                let resource = target.resource.qualified();
                tracing::debug!(resource, name = target.name, ?policy, "garbage deleted");
                Ok(Next::Done)
            }
            Err(error) if error.is_not_found() => Ok(self.forget(&metadata.uid.as_ref().into())),
            Err(error) => Err(error),
        }
    }

    /// Removes the owner references of an object whose uids are not in `keep`.
    async fn retain_owners(
        &self,
        target: &Target,
        object: &Object,
        keep: impl Fn(&str) -> bool,
    ) -> Result<(), ApiError> {
        let retained = |mut owners: Vec<Value>| {
            owners.retain(|owner| keep(owner["uid"].as_str().unwrap_or_default()));
            owners
        };
        self.patch_owners(target, object, retained).await.map(drop)
    }

    /// Sets `blockOwnerDeletion` to false in all owner references of an object; returns its new
    /// resourceVersion.
    async fn unblock_owners(&self, target: &Target, object: &Object) -> Result<String, ApiError> {
        let unblocked = |mut owners: Vec<Value>| {
            for owner in &mut owners {
                owner["blockOwnerDeletion"] = false.into();
            }
            owners
        };
        let patched = self.patch_owners(target, object, unblocked).await?;
        Ok(patched.resource_version().to_string())
    }

    async fn patch_owners(
        &self,
        target: &Target,
        object: &Object,
        change: impl Fn(Vec<Value>) -> Vec<Value>,
    ) -> Result<Arc<Object>, ApiError> {
        // Objects in a cache are valid JSON.
        let mut value: Value = serde_json::from_slice(object.body_slice()).unwrap_or_default();
        let owners = value["metadata"]["ownerReferences"].as_array_mut();
        let owners = change(owners.map(std::mem::take).unwrap_or_default());
        let owners = json!({"ownerReferences": owners});
        framework::patch_metadata(&self.registry, ACCOUNT, target, object, owners).await
    }

    async fn remove_finalizer(
        &self,
        target: &Target,
        object: &Object,
        metadata: &Metadata<'_>,
        finalizer: &str,
    ) -> Result<Next, ApiError> {
        if !metadata.has(finalizer) {
            return Ok(Next::Done);
        }
        let finalizers = metadata.finalizers.iter().filter(|f| *f != finalizer);
        let finalizers = json!({"finalizers": finalizers.collect::<Vec<_>>()});
        let patched =
            framework::patch_metadata(&self.registry, ACCOUNT, target, object, finalizers).await;
        match patched {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Next::Done),
        }
    }

    /// Removes an object that is being deleted from the owner references of its dependents, then
    /// removes its `orphan` finalizer.
    pub(super) async fn orphan(&self, uid: &Uid) -> Result<Next, ApiError> {
        let view = self.graph.lock().view(uid);
        let Some(location) = view
            .filter(|view| view.orphans_dependents)
            .and_then(|view| view.location)
        else {
            return Ok(Next::Done);
        };
        let Some((target, object)) = self.get_live(uid, &location).await? else {
            return Ok(self.forget(uid));
        };
        let metadata = Metadata::parse(&object);
        let Some(metadata) = metadata.ok().filter(Metadata::orphans_dependents) else {
            return Ok(Next::Done);
        };
        if !self.catch_up(object.resource_version()).await? {
            return Ok(Next::Again);
        }
        let dependents = self.dependents(uid);
        let mut orphans = FuturesUnordered::new();
        let mut left = dependents.iter();
        loop {
            while orphans.len() < PATCHES_MAX
                && let Some(dependent) = left.next()
            {
                orphans.push(self.orphan_one(uid, dependent));
            }
            match orphans.next().await {
                Some(orphaned) => orphaned?,
                None => break,
            }
        }
        self.remove_finalizer(&target, &object, &metadata, ORPHAN)
            .await
    }

    async fn orphan_one(&self, owner: &Uid, dependent: &Dependent) -> Result<(), ApiError> {
        let Some(location) = &dependent.location else {
            return Ok(());
        };
        let mut tries = 0;
        loop {
            let Some((target, object)) = self.get_live(&dependent.uid, location).await? else {
                return Ok(());
            };
            let owned = Metadata::of(&object).owners;
            if owned.iter().all(|o| *o.uid != **owner) {
                return Ok(());
            }
            match self
                .retain_owners(&target, &object, |uid| *uid != **owner)
                .await
            {
                Err(ApiError::Conflict { .. }) if tries < CONFLICTS_MAX => tries += 1,
                Err(error) if error.is_not_found() => return Ok(()),
                other => return other,
            }
        }
    }
}

fn target(resource: Arc<Resource>, key: &ObjectKey) -> Target {
    Target {
        namespace: resource.namespaced.then(|| key.namespace().to_owned()),
        resource,
        name: key.name().to_owned(),
        subresource: None,
    }
}

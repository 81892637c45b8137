//! What is done about one object of the graph, decided on what storage has of it and of its owners.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};

use super::graph::{Dependent, Place, Uid, View, Work};
use super::metadata::{FOREGROUND, Metadata, ORPHAN, OwnerReference};
use super::{ACCOUNT, GarbageCollector};
use crate::api::{
    DeleteOptions, Object, ObjectKey, Preconditions, PropagationPolicy, ResourceVersion,
};
use crate::controllers::frame;
use crate::controllers::queue::Next;
use crate::registry::{ApiError, Resource, Target};

/// How many dependents are orphaned at once.
const PATCHES_MAX: usize = 16;

/// How often the patch of one dependent is tried again at once when others write it too.
const CONFLICTS_MAX: usize = 5;

/// What an owner is to one of its dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is there.
    Solid,
    /// It is absent.
    Dangling,
    /// It is there, and is being deleted once its dependents are gone; of this version.
    Waiting(ResourceVersion),
    /// It is of a kind that is not served, at least not yet.
    Unknown,
    /// It lives in a namespace and its dependent does not: nobody can say which is meant.
    Misplaced,
}

/// The owners of an object, by what they are to it.
#[derive(Debug, Default)]
struct Owners<'a> {
    solid: Vec<&'a OwnerReference<'a>>,
    dangling: Vec<&'a OwnerReference<'a>>,
    /// The newest version of those that wait.
    waiting: Option<ResourceVersion>,
}

impl GarbageCollector {
    /// Finds out whether an object is garbage, or what its deletion waits for.
    pub(super) async fn examine(&self, uid: &Uid) -> Result<Next, ApiError> {
        let Some(view) = self.graph.lock().view(uid) else {
            return Ok(Next::Done);
        };
        // Of an owner that nobody has seen, its dependents are looked at.
        let Some(place) = &view.place else {
            return Ok(Next::Done);
        };
        if view.being_deleted && !view.deletes_dependents {
            return self.is_still_there(uid, place).await;
        }
        if !view.deletes_dependents
            && let Some(resource) = self.registry.resource_at(&place.prefix)
            && let Some(cached) = self.registry.peek(&resource, &place.key)
            && *cached.uid() == **uid
            && self.owners_are_there(&Metadata::of(&cached), &place.key)
        {
            return Ok(Next::Done);
        }
        let Some((target, object)) = self.live(uid, place).await? else {
            return Ok(self.forget(uid));
        };
        let Ok(metadata) = Metadata::parse(&object) else {
            // No API server wrote that, and none can delete it either.
            return Ok(Next::Done);
        };
        if view.deletes_dependents {
            return self
                .wait_for_dependents(&target, &view, &object, &metadata)
                .await;
        }
        self.collect(uid, &target, &object, &metadata).await
    }

    /// What is being deleted is only waited for, but its deletion may have been missed.
    async fn is_still_there(&self, uid: &Uid, place: &Place) -> Result<Next, ApiError> {
        match self.live(uid, place).await? {
            Some(_) => Ok(Next::Done),
            None => Ok(self.forget(uid)),
        }
    }

    fn forget(&self, uid: &Uid) -> Next {
        let then = self.graph.lock().remove(uid);
        self.enqueue(then);
        Next::Done
    }

    /// The object as storage has it, if it is that one.
    async fn live(
        &self,
        uid: &Uid,
        place: &Place,
    ) -> Result<Option<(Target, Arc<Object>)>, ApiError> {
        let Some(resource) = self.registry.resource_at(&place.prefix) else {
            return Ok(None);
        };
        let target = target(resource, &place.key);
        match self.registry.get_stored(&target).await {
            Ok(object) if *object.uid() == **uid => Ok(Some((target, object))),
            Ok(_) => Ok(None),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A foreground deletion: over when no blocking dependents are left.
    async fn wait_for_dependents(
        &self,
        target: &Target,
        view: &View,
        object: &Object,
        metadata: &Metadata<'_>,
    ) -> Result<Next, ApiError> {
        // What owns itself would wait for itself.
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

    /// Deletes an object that has owners, none of which is there to stay.
    async fn collect(
        &self,
        uid: &Uid,
        target: &Target,
        object: &Object,
        metadata: &Metadata<'_>,
    ) -> Result<Next, ApiError> {
        let mut owners = Owners::default();
        for owner in &metadata.owners {
            match self.standing(owner, target).await? {
                Standing::Solid => owners.solid.push(owner),
                Standing::Dangling => owners.dangling.push(owner),
                Standing::Waiting(since) => owners.waiting = owners.waiting.max(Some(since)),
                Standing::Unknown => return Ok(Next::Again),
                Standing::Misplaced => {
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
                // Those that wait for it would wait for ever.
                self.keep_owners(target, object, |uid| {
                    owners.solid.iter().any(|owner| owner.uid == uid)
                })
                .await?;
            }
            return Ok(Next::Done);
        }
        if let Some(since) = owners.waiting {
            // They wait for what this one owns too.
            if !self.catch_up(since).await? {
                return Ok(Next::Again);
            }
            let dependents = self.dependents(uid);
            if !dependents.is_empty() {
                let mut version = metadata.resource_version.to_string();
                if dependents.iter().any(|d| d.deletes_dependents) {
                    // Perhaps a circle, in which each would wait for the next.
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

    /// What an owner is to `dependent`.
    async fn standing(
        &self,
        owner: &OwnerReference<'_>,
        dependent: &Target,
    ) -> Result<Standing, ApiError> {
        let kind = self.registry.served_kind(&owner.api_version, &owner.kind);
        let Some(kind) = kind else {
            let (kind, version) = (&owner.kind, &owner.api_version);
            tracing::debug!(%version, %kind, dependent = dependent.name, "no such kind of owner");
            return Ok(Standing::Unknown);
        };
        if kind.namespaced && dependent.namespace.is_none() {
            return Ok(Standing::Misplaced);
        }
        let namespace = dependent.namespace.as_deref().filter(|_| kind.namespaced);
        let key = ObjectKey::new(namespace, &owner.name);
        let prefix: Arc<str> = kind.storage_prefix.as_str().into();
        let wanted = target(kind, &key);
        let object = match self.registry.get_stored(&wanted).await {
            Ok(object) if *object.uid() == *owner.uid => object,
            Ok(_) => return Ok(Standing::Dangling),
            // A name that none can have is one that nothing has.
            Err(ApiError::NotFound { .. } | ApiError::BadRequest(_)) => {
                return Ok(Standing::Dangling);
            }
            Err(error) => return Err(error),
        };
        let waits = Metadata::of(&object).deletes_dependents();
        let found = || Place { prefix, key };
        self.graph.lock().found(&owner.uid, found);
        Ok(match waits {
            true => Standing::Waiting(object.resource_version()),
            false => Standing::Solid,
        })
    }

    /// Deletes the object that `metadata` was read of, if it is still of that version; if only something
    /// else than its owners has changed, of whichever version.
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
            user: frame::user(ACCOUNT),
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
                tracing::debug!(resource, name = target.name, ?policy, "deleted garbage");
                Ok(Next::Done)
            }
            Err(error) if error.is_not_found() => Ok(self.forget(&metadata.uid.as_ref().into())),
            Err(error) => Err(error),
        }
    }

    /// Takes those owners from an object whose uids `keep` does not keep.
    async fn keep_owners(
        &self,
        target: &Target,
        object: &Object,
        keep: impl Fn(&str) -> bool,
    ) -> Result<(), ApiError> {
        let kept = |mut owners: Vec<Value>| {
            owners.retain(|owner| keep(owner["uid"].as_str().unwrap_or_default()));
            owners
        };
        self.patch_owners(target, object, kept).await.map(drop)
    }

    /// Has no owner wait for an object any more; its version after that.
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
        // A cache holds nothing that is no JSON.
        let mut value: Value = serde_json::from_slice(object.body_slice()).unwrap_or_default();
        let owners = value["metadata"]["ownerReferences"].as_array_mut();
        let owners = change(owners.map(std::mem::take).unwrap_or_default());
        let owners = json!({"ownerReferences": owners});
        frame::patch_metadata(&self.registry, ACCOUNT, target, object, owners).await
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
            frame::patch_metadata(&self.registry, ACCOUNT, target, object, finalizers).await;
        match patched {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Next::Done),
        }
    }

    /// Takes an object that is being deleted from the owners of its dependents, then lets it go.
    pub(super) async fn orphan(&self, uid: &Uid) -> Result<Next, ApiError> {
        let view = self.graph.lock().view(uid);
        let Some(place) = view
            .filter(|view| view.orphans_dependents)
            .and_then(|view| view.place)
        else {
            return Ok(Next::Done);
        };
        let Some((target, object)) = self.live(uid, &place).await? else {
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
        let Some(place) = &dependent.place else {
            return Ok(());
        };
        let mut tries = 0;
        loop {
            let Some((target, object)) = self.live(&dependent.uid, place).await? else {
                return Ok(());
            };
            let owned = Metadata::of(&object).owners;
            if owned.iter().all(|o| *o.uid != **owner) {
                return Ok(());
            }
            match self
                .keep_owners(&target, &object, |uid| *uid != **owner)
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

//! Allocation of values that only one object can have: the interface to the code that allocates them, and when a write
//! reserves and releases them.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

use super::guaranteed_update::{Current, Place};
use super::{ApiError, Registry, Resource, Target};
use crate::api::ResourceVersion;

/// Allocates values that only one object can have, such as cluster IPs.
#[async_trait]
pub(crate) trait Allocator: Send + Sync {
    /// Reserves the values that `object` names, and sets those that it needs besides. `old` is the stored object
    /// and its version.
    ///
    /// # Errors
    /// 422 if a value is taken or out of range; storage's. Nothing is reserved then.
    async fn reserve(
        &self,
        registry: &Registry,
        target: &Target,
        write: WriteId,
        old: Option<(&Value, ResourceVersion)>,
        object: &mut Value,
        dry_run: bool,
    ) -> Result<(), ApiError>;

    /// Releases what `write` reserved for `object`, which was to replace `current` and was not stored because of
    /// `error`.
    async fn withdraw(
        &self,
        registry: &Registry,
        identity: ObjectIdentity<'_>,
        write: Option<WriteId>,
        current: Option<&Current>,
        object: &Value,
        error: Option<&ApiError>,
    );

    /// Releases what `before` had and `after` does not have, which replaced it at version `at`.
    async fn release_replaced(
        &self,
        registry: &Registry,
        place: &Place,
        before: &Value,
        after: &Value,
        at: ResourceVersion,
    );

    /// Releases all that a deleted object had: `states` are its last state and the one before.
    async fn release_deleted(&self, registry: &Registry, place: &Place, states: [&Value; 2]);
}

/// Identifies one write in all its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteId(pub(crate) Uuid);

impl WriteId {
    pub(crate) fn new() -> Self {
        // It has to differ from others and need not be secret: no system call for it at each write.
        Self(Uuid::from_u128(fastrand::u128(..)))
    }
}

/// The resource, namespace and name of an object.
#[derive(Clone, Copy)]
pub(crate) struct ObjectIdentity<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> From<&'a Target> for ObjectIdentity<'a> {
    fn from(target: &'a Target) -> Self {
        Self {
            resource: &target.resource,
            namespace: target.namespace.as_deref().unwrap_or_default(),
            name: &target.name,
        }
    }
}

impl<'a> From<&'a Place> for ObjectIdentity<'a> {
    fn from(place: &'a Place) -> Self {
        Self {
            resource: &place.resource,
            namespace: place.key.namespace(),
            name: &place.name,
        }
    }
}

impl Registry {
    /// Waits until a write at version `at` has taken effect in this server.
    pub(crate) async fn after_store(&self, resource: &Resource, at: ResourceVersion) {
        if let Some(effect) = resource.strategy.after_store(self, at) {
            effect.await;
        }
    }

    /// Releases what was reserved for `object`, which was not stored at `place`.
    pub(super) async fn withdraw(
        &self,
        place: &Place,
        write: Option<WriteId>,
        current: Option<&Current>,
        object: &Value,
        error: Option<&ApiError>,
    ) {
        if let Some(allocator) = place.resource.strategy.allocator() {
            let identity = place.into();
            allocator
                .withdraw(self, identity, write, current, object, error)
                .await;
        }
    }

    /// Releases what `current` had and `object` has not, which replaced it at `place`.
    pub(super) async fn release_replaced(
        &self,
        place: &Place,
        current: Option<&Current>,
        object: &Value,
        at: ResourceVersion,
    ) {
        if let (Some(current), Some(allocator)) = (current, place.resource.strategy.allocator()) {
            let before = &current.value;
            allocator
                .release_replaced(self, place, before, object, at)
                .await;
        }
    }

    /// Releases what the object deleted at `place` had.
    pub(super) async fn release_deleted(&self, place: &Place, states: [&Value; 2]) {
        if let Some(allocator) = place.resource.strategy.allocator() {
            allocator.release_deleted(self, place, states).await;
        }
    }
}

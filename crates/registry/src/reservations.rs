//! Releases the values that an allocator reserved for an object, and waits until a write has taken effect.

use serde_json::Value;

use super::allocator::WriteId;
use super::error::ApiError;
use super::location::ObjectLocation;
use super::registry::Registry;
use super::resource::Resource;
use super::stored_form::Current;
use watchet_api::ResourceVersion;

impl Registry {
    /// Waits until a write at version `at` has taken effect in this server.
    pub(crate) async fn after_store(&self, resource: &Resource, at: ResourceVersion) {
        if let Some(kind) = resource.strategy.admission_configuration() {
            self.dynamic_admission.wait_until_applied(kind, at).await;
        }
    }

    /// Releases the values that `write` reserved for `object`, which the write has not stored in place of `current`.
    pub(crate) async fn release_unstored(
        &self,
        location: &ObjectLocation,
        write: Option<WriteId>,
        current: Option<&Current>,
        object: &Value,
        error: Option<&ApiError>,
    ) {
        if let Some(allocator) = location.resource.strategy.allocator() {
            let (owner, old) = (location.identity(), current.map(Current::versioned));
            allocator
                .release_unstored(&*self.storage, owner, write, old, object, error)
                .await;
        }
    }

    /// Releases the values that `current` has and `object` does not have. `object` has replaced `current`.
    pub(crate) async fn release_replaced(
        &self,
        location: &ObjectLocation,
        current: Option<&Current>,
        object: &Value,
        at: ResourceVersion,
    ) {
        let allocator = location.resource.strategy.allocator();
        if let (Some(current), Some(allocator)) = (current, allocator) {
            let (owner, before) = (location.identity(), &current.value);
            allocator
                .release_replaced(&*self.storage, owner, before, object, at)
                .await;
        }
    }

    /// Releases the values of a deleted object.
    pub(crate) async fn release_deleted(&self, location: &ObjectLocation, states: [&Value; 2]) {
        if let Some(allocator) = location.resource.strategy.allocator() {
            let owner = location.identity();
            allocator
                .release_deleted(&*self.storage, owner, states)
                .await;
        }
    }
}

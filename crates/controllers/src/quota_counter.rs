//! Counting the usage of ResourceQuotas, for the controller that updates their status.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use watchet_api::{Object, ObjectKey, WriteOptions};
use watchet_registry::{ApiError, Resource};

/// Counts the usage of ResourceQuotas. The server implements it: how much an object uses depends on its resource.
#[async_trait]
pub trait QuotaCounter: Debug + Send + Sync {
    /// Returns the resources that the limits of `quota` refer to.
    fn resources(&self, quota: &Value) -> Vec<Arc<Resource>>;

    /// Returns true if the status of `quota` is of another spec, or lacks the usage of a limit.
    fn is_uncounted(&self, quota: &Value) -> bool;

    /// Returns a hash of the usage of an object. An update that does not change it changes the usage of no quota.
    /// Returns `None` if the usage of the resource's objects never changes.
    fn footprint(&self, resource: &Resource, object: &Object) -> Option<u64>;

    /// Counts the usage of the quota `key` and writes it to its status. Returns the time after which it must be
    /// counted again, if it must.
    ///
    /// # Errors
    /// An object cannot be read, or the status cannot be written.
    async fn count(
        &self,
        key: &ObjectKey,
        options: &WriteOptions,
    ) -> Result<Option<Duration>, ApiError>;
}

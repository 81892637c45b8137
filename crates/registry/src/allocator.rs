//! The interface to the code that allocates values that only one object can have.

use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

use super::error::ApiError;
use watchet_api::ResourceVersion;
use watchet_storage::Storage;

/// Allocates values that only one object can have, such as cluster IPs.
#[async_trait]
pub trait Allocator: Send + Sync {
    /// Reserves the values that `object` has, and sets those that it still needs. `old` is the stored object and its
    /// version.
    ///
    /// # Errors
    /// 422 if a value belongs to another object or is out of range; the errors of storage. After an error nothing is
    /// reserved.
    async fn reserve(
        &self,
        storage: &dyn Storage,
        owner: ObjectIdentity<'_>,
        write: WriteId,
        old: Option<(&Value, ResourceVersion)>,
        object: &mut Value,
        dry_run: bool,
    ) -> Result<(), ApiError>;

    /// Releases the values that `write` reserved for `object`, and that `old` does not have. The write has not stored
    /// `object`, because of `error`, or because of a conflict if that is `None`.
    async fn release_unstored(
        &self,
        storage: &dyn Storage,
        owner: ObjectIdentity<'_>,
        write: Option<WriteId>,
        old: Option<(&Value, ResourceVersion)>,
        object: &Value,
        error: Option<&ApiError>,
    );

    /// Releases the values that `before` has and `after` does not have. `after` has replaced `before` at version `at`.
    async fn release_replaced(
        &self,
        storage: &dyn Storage,
        owner: ObjectIdentity<'_>,
        before: &Value,
        after: &Value,
        at: ResourceVersion,
    );

    /// Releases all values of a deleted object. `states` are its last state and the state before.
    async fn release_deleted(
        &self,
        storage: &dyn Storage,
        owner: ObjectIdentity<'_>,
        states: [&Value; 2],
    );
}

/// Identifies one write and its retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteId(pub Uuid);

impl WriteId {
    pub(crate) fn new() -> Self {
        // The id must be unique and need not be secret, so a write needs no system call for it.
        Self(Uuid::from_u128(fastrand::u128(..)))
    }
}

/// The resource, namespace and name of an object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectIdentity<'a> {
    /// The storage prefix of the resource.
    pub storage_prefix: &'a str,
    /// Empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

//! The interface to the code that converts objects between the versions of a resource.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::error::ApiError;
use watchet_api::{ColumnSet, EventType, Object};
use watchet_cacher::{ReadError, StoredTransform};
use watchet_schema::KindType;

/// An object cannot be converted to another version. The text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConversionError(pub String);

impl ConversionError {
    /// Returns the error of a conversion that was pending when the server stopped.
    pub fn shutting_down() -> Self {
        Self("the server is shutting down".to_owned())
    }
}

impl From<ConversionError> for ReadError {
    fn from(error: ConversionError) -> Self {
        Self::Unconvertible(error.to_string())
    }
}

impl From<ConversionError> for ApiError {
    fn from(error: ConversionError) -> Self {
        Self::Read(error.into())
    }
}

/// Converts the objects of a resource between the versions of its definition.
#[async_trait]
pub trait VersionConverter: Send + Sync {
    /// Returns true if a webhook converts. Otherwise versions differ in their names only.
    fn uses_webhook(&self) -> bool;

    /// Returns true if storage may have objects of another version.
    fn may_differ_in_storage(&self) -> bool;

    /// Returns true if objects are stored in the version of this resource.
    fn is_storage_version(&self) -> bool;

    /// Returns the `apiVersion` in which objects are stored.
    fn storage_version(&self) -> &str;

    /// Returns the token that is cancelled when the definition changes.
    fn outdated(&self) -> &CancellationToken;

    /// Returns the type of the version with this `apiVersion`, served or not.
    fn kind(&self, api_version: &str) -> Option<&KindType>;

    /// Returns the transformation that applies today's schema to stored objects. Its identity is that of the definition.
    fn stored_transform(&self) -> Arc<dyn StoredTransform>;

    /// Applies today's schema to a stored object.
    fn complete(&self, object: &mut Value);

    /// Returns `object` under another `apiVersion`, without fields that this version does not have.
    fn renamed(&self, object: Value, api_version: &str) -> Value;

    /// Returns `objects` in the version `api_version`.
    ///
    /// # Errors
    /// One of them cannot be converted.
    async fn convert(
        &self,
        objects: Vec<Value>,
        api_version: &str,
    ) -> Result<Vec<Value>, ConversionError>;

    /// Returns cached objects, each about to be sent as an event of its type, in the version of this resource, with the
    /// columns `columns`. Cancel safe.
    ///
    /// # Errors
    /// One of them cannot be converted.
    async fn convert_cached(
        &self,
        columns: &Arc<ColumnSet>,
        objects: Vec<(EventType, Arc<Object>)>,
    ) -> Result<Vec<Arc<Object>>, ConversionError>;
}

/// Returns true if stored bytes are of this version. May return false for bytes that another program wrote.
pub fn has_api_version(body: &[u8], api_version: &str) -> bool {
    let beginning = format!(r#"{{"apiVersion":"{api_version}","#);
    body.starts_with(beginning.as_bytes())
}

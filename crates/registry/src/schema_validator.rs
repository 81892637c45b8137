//! The interface to the validation of objects by a schema.

use async_trait::async_trait;
use serde_json::Value;

use super::causes::Causes;
use super::error::ApiError;
use watchet_tasks::Tasks;

/// Validates objects by a schema. Validation may take long and can run in a task of `tasks`.
#[async_trait]
pub trait SchemaValidator: Send + Sync {
    /// Returns true if an update tolerates the problems of the stored object by rules of the schema.
    fn has_ratcheting(&self) -> bool;

    /// Adds the problems of `object`, which replaces `old`.
    ///
    /// # Errors
    /// The server is shutting down.
    async fn validate(
        &self,
        tasks: &Tasks,
        old: Option<&Value>,
        object: &Value,
        causes: &mut Causes,
    ) -> Result<(), ApiError>;
}

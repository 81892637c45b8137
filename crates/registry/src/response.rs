//! Objects that are sent to clients and not stored.

use std::sync::Arc;

use serde_json::Value;

use super::error::ApiError;
use super::stored_form::encode;
use super::target::Target;
use watchet_api::{ColumnSet, EventType, Object, ObjectKey, ResourceVersion};

/// Returns `value`, which is not stored, as the response to a request for `target`.
///
/// # Errors
/// `value` is not an object with metadata.
pub fn unstored(target: &Target, value: &Value) -> Result<Arc<Object>, ApiError> {
    at_version(target, value, ResourceVersion::ZERO)
}

/// Returns `value`, a part of an object that is stored at version `at`, as the response to a request for `target`.
///
/// # Errors
/// `value` is not an object with metadata.
pub(crate) fn at_version(
    target: &Target,
    value: &Value,
    at: ResourceVersion,
) -> Result<Arc<Object>, ApiError> {
    let key = match target.name.as_str() {
        "" => ObjectKey::new(target.namespace.as_deref(), "-"),
        name => ObjectKey::new(target.namespace.as_deref(), name),
    };
    let columns = ColumnSet::default();
    let object = Object::decode(key, at, EventType::Modified, &encode(value), &columns)?;
    Ok(Arc::new(object))
}

//! What the crate `watchet-fuzz` calls: patches without a registry.

use serde_json::Value;
use watchet_schema::TypeRef;

use crate::{json_patch, strategic};

/// Applies a JSON patch to `object`, which must not be used after an error.
///
/// # Errors
/// The patch cannot be applied.
pub fn apply_json_patch(object: &mut Value, patch: &::json_patch::Patch) -> Result<(), String> {
    json_patch::apply(object, &patch.0).map_err(|error| error.to_string())
}

/// Applies a strategic merge patch to `object` of the type `of`.
///
/// # Errors
/// The patch cannot be applied; `object` may be changed in part.
pub fn apply_strategic_merge_patch(
    object: &mut Value,
    patch: &Value,
    of: Option<TypeRef<'_>>,
) -> Result<(), String> {
    strategic::merge(object, patch, of).map_err(|error| error.to_string())
}

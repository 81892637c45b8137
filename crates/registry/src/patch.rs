//! Patch: JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch, applied to the object in the client's
//! version and then written by the rules of an update. After a conflict the patch is applied to the newer state; it fails
//! with a 409 only if it has a resourceVersion.

use std::sync::Arc;

use serde_json::Value;

use super::allocator::WriteId;
use super::error::ApiError;
use super::guaranteed_update::{Change, Decide};
use super::location::ObjectLocation;
use super::pipeline::Pipeline;
use super::registry::Registry;
use super::stored_form::Current;
use super::strategic::{self, StrategicError};
use super::target::{Patch, Target};
use super::{conversion, json_patch, patched, preconditions, scale};
use watchet_api::{Object, WriteOptions};
use watchet_schema::Types;

/// Maximum number of operations of a JSON patch, as in kube-apiserver.
const JSON_PATCH_OPERATIONS_MAX: usize = 10_000;

/// Patches an object.
pub(crate) async fn patch(
    registry: &Registry,
    target: &Target,
    patch: &Patch,
    options: &WriteOptions,
) -> Result<Arc<Object>, ApiError> {
    preconditions::check_subresource(target, "patch")?;
    let location = ObjectLocation::of(target)?;
    check(patch)?;
    let mut write = Patching {
        pipeline: Pipeline::new(registry, target, options),
        patch,
    };
    let written = registry
        .guaranteed_write(&location, options.dry_run, &mut write)
        .await?;
    scale::object_or_scale(target, written.into_object())
}

/// A PATCH.
struct Patching<'a> {
    pipeline: Pipeline<'a>,
    patch: &'a Patch,
}

impl Decide for Patching<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let target = self.pipeline.target;
        let current = current.ok_or_else(|| ApiError::not_found(&target.resource, &target.name))?;
        let types = self.pipeline.registry.types();
        let object = apply(target, types, self.patch, current)?;
        let (registry, options) = (self.pipeline.registry, self.pipeline.options);
        let object = patched::conform(registry, target, self.patch, object, options)?;
        self.pipeline.replace_with_body(current, object).await
    }

    fn write_id(&self) -> Option<WriteId> {
        Some(self.pipeline.id)
    }
}

/// Checks a patch without the object.
///
/// # Errors
/// 413 for a JSON patch with too many operations; 400 for a merge patch that is not an object.
fn check(patch: &Patch) -> Result<(), ApiError> {
    match patch {
        Patch::Json(operations) if operations.len() > JSON_PATCH_OPERATIONS_MAX => {
            Err(ApiError::TooLarge(format!(
                "The allowed maximum operations in a JSON patch is {JSON_PATCH_OPERATIONS_MAX}, \
                 got {}",
                operations.len()
            )))
        }
        Patch::Merge(patch) | Patch::Strategic(patch) if !patch.is_object() => Err(
            ApiError::BadRequest(format!("a merge patch must be a JSON object, not {patch}")),
        ),
        _ => Ok(()),
    }
}

/// Applies a patch to the present object, in the version of the client.
fn apply(
    target: &Target,
    types: &Types,
    patch: &Patch,
    current: &Current,
) -> Result<Value, ApiError> {
    let mut object = match scale::is_of(target) {
        true => scale::of(&target.resource, &current.value, current.at)?,
        false => conversion::from_storage(&target.resource, current.value.clone()),
    };
    object["metadata"]["resourceVersion"] = current.at.to_string().into();
    match patch {
        Patch::Json(operations) => json_patch::apply(&mut object, operations)?,
        Patch::Merge(patch) => ::json_patch::merge(&mut object, patch),
        Patch::Strategic(patch) => {
            let resource = target.of_bodies();
            let root = types.root(&resource.api_version(), &resource.kind);
            strategic::merge(&mut object, patch, root).map_err(|error| match error {
                StrategicError::Malformed(_) => ApiError::BadRequest(error.to_string()),
                StrategicError::Inapplicable(_) => ApiError::Unprocessable(error.to_string()),
            })?;
        }
    }
    Ok(object)
}

//! Applies the mutations of mutating admission policies to an object, by the type of its kind.

use serde_json::Value;

use crate::error::ApiError;
use crate::registry::Registry;
use crate::{json_patch, metadata};
use watchet_admission::cluster::{Mutation, MutationError};
use watchet_admission::request::{AdmissionRequest, GroupVersionKind};
use watchet_schema::KindType;
use watchet_schema::managed;

/// Returns `object`, which is of `kind`, after a mutation, with its defaults.
///
/// # Errors
/// See [`MutationError`].
pub(super) fn mutated(
    registry: &Registry,
    write: &AdmissionRequest<'_>,
    kind: &GroupVersionKind,
    object: &Value,
    mutation: Mutation,
) -> Result<Value, MutationError> {
    let resource = registry.resource_of_kind(kind);
    let api_version = match &*kind.group {
        "" => kind.version.clone(),
        group => format!("{group}/{}", kind.version),
    };
    // No resource has the kinds of subresources.
    let kind_type = match &resource {
        Some(resource) => registry.kind_type(resource),
        None => KindType::builtin(registry.types(), &api_version, &kind.kind),
    };
    let kind_type = kind_type.ok_or_else(|| MutationError::NoType(kind.to_string()))?;
    let mut mutated = match mutation {
        Mutation::Apply(configuration) => {
            merged(&kind_type, object, configuration).map_err(MutationError::Failed)?
        }
        Mutation::Patch(patch) => {
            let mut patched = object.clone();
            match json_patch::try_apply(&mut patched, &patch.0) {
                Ok(()) => {}
                // A patch whose test fails is not applied.
                Err(failure) if failure.is_of_test() => return Ok(object.clone()),
                Err(failure) => {
                    return Err(MutationError::Failed(format!("JSON Patch: {failure}")));
                }
            }
            patched
        }
    };
    let internal = |error: ApiError| MutationError::Internal(error.to_string());
    let is = GroupVersionKind::of(&mutated);
    if is != *kind {
        return Err(MutationError::Internal(format!(
            "unable to decode {is} into {kind}"
        )));
    }
    let is_builtin = resource.as_ref().is_none_or(|r| r.strategy.is_builtin());
    if is_builtin {
        let decoded = kind_type.conform(&mutated);
        if let Some(error) = decoded.type_error {
            return Err(MutationError::Internal(error));
        }
        if !decoded.mistakes.is_empty() {
            let mistakes = decoded.mistakes.join(", ");
            return Err(MutationError::Internal(format!(
                "strict decoding error: {mistakes}"
            )));
        }
        mutated = decoded.value;
    }
    if let Some(resource) = resource {
        metadata::check_shape(&resource, &mut mutated).map_err(internal)?;
        let namespace = Some(write.namespace).filter(|_| resource.namespaced);
        metadata::check_namespace(namespace, &mut mutated).map_err(internal)?;
        let strategy = &resource.strategy;
        strategy.set_defaults(&resource, &mut mutated);
        strategy.apply_schema(&mut mutated).map_err(internal)?;
    }
    Ok(mutated)
}

fn merged(kind: &KindType, object: &Value, mut configuration: Value) -> Result<Value, String> {
    for member in ["apiVersion", "kind"] {
        configuration[member] = object[member].clone();
    }
    managed::mutated(object, &configuration, kind.root())
        .map_err(|why| format!("error applying patch: {why}"))
}

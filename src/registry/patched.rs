//! Reads what a patch made of an object as an object of its kind. What does not fit the kind is a 422 with
//! one cause on the field `patch`, in upstream's words for each type of patch.

use serde_json::Value;

use super::strategic::GoFormat;
use super::{ApiError, Patch, Registry, Resource, Target, field_validation, metadata};
use crate::api::{StatusCause, WriteOptions};
use crate::schema::KindType;

/// How upstream's messages name the scheme of the built-in types.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// Returns `object`, which `patch` was applied to, without members that its kind does not have, and with
/// its metadata checked against the URL.
///
/// # Errors
/// 422 when it is no object of its kind any more, or when the client wants unknown fields refused; 400 when
/// it has another name or namespace than the URL.
pub(crate) fn conform(
    registry: &Registry,
    target: &Target,
    patch: &Patch,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    for member in object
        .as_object()
        .into_iter()
        .flat_map(|members| members.values())
    {
        metadata::check_depth(member, 1)?;
    }
    let mut mistakes = options.body_mistakes.clone();
    match typed(registry, target, patch, &mut object) {
        Ok(unknown) => mistakes.extend(unknown),
        Err(detail) => return Err(invalid(patch, &object, &detail)),
    }
    if let Err(mistakes) = field_validation::judge(options, mistakes) {
        return Err(invalid(patch, &object, &mistakes.to_string()));
    }
    // What is left are nulls in lists, which Go reads as empty values and then refuses as invalid.
    metadata::check_shape(&target.of_bodies(), &mut object).map_err(|error| match error {
        ApiError::BadRequest(detail) => invalid(patch, &object, &detail),
        error => error,
    })?;
    metadata::check_name(&target.name, &object)?;
    let namespace = target.namespace.as_deref();
    metadata::check_namespace(
        namespace.filter(|_| target.resource.namespaced),
        &mut object,
    )?;
    Ok(object)
}

/// Reads the object by its type and returns the fields that the type does not have.
///
/// # Errors
/// Why it does not fit the type.
fn typed(
    registry: &Registry,
    target: &Target,
    patch: &Patch,
    object: &mut Value,
) -> Result<Vec<String>, String> {
    let resource = target.of_bodies();
    if matches!(patch, Patch::Strategic(_)) {
        // It patches a typed object, whose kind is not read from its members.
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.as_str().into();
    } else {
        check_type(registry, &resource, object)?;
    }
    if !resource.strategy.is_builtin() {
        let metadata = KindType::metadata(registry.types());
        let type_error = |value| metadata.conform(value).type_error;
        object
            .get("metadata")
            .and_then(type_error)
            .map_or(Ok(()), Err)?;
    }
    let Some(kind) = registry.kind_type(&resource) else {
        return Ok(Vec::new());
    };
    if let (Patch::Strategic(_), Some(problem)) = (patch, kind.restore_problem(object)) {
        return Err(problem);
    }
    let decoded = kind.conform(object);
    if let Some(type_error) = decoded.type_error {
        return Err(type_error);
    }
    *object = decoded.value;
    Ok(decoded.mistakes)
}

/// Checks that the object is still of its kind, if it says of which one it is.
///
/// # Errors
/// What upstream says of a kind that it does not know, or that it cannot convert to this one.
fn check_type(registry: &Registry, resource: &Resource, object: &Value) -> Result<(), String> {
    let text = |member: &str| object[member].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let is_version = api_version.is_empty() || api_version == resource.api_version();
    let is_kind = kind.is_empty() || kind == resource.kind;
    if is_version && is_kind {
        return Ok(());
    }
    if !resource.strategy.is_builtin() {
        return Err(match is_version {
            true => format!("must be {}", resource.kind),
            false => {
                format!("request to convert CR from an invalid group/version: {api_version}")
            }
        });
    }
    let api_version = match api_version.is_empty() {
        true => resource.api_version(),
        false => api_version.to_owned(),
    };
    let kind = if kind.is_empty() {
        resource.kind.as_str()
    } else {
        kind
    };
    if registry.types().root(&api_version, kind).is_none() {
        return Err(format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme {SCHEME:?}"
        ));
    }
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let group = resource.group.split('.').next().unwrap_or_default();
    let group = if group.is_empty() { "core" } else { group };
    Err(format!(
        "converting ({version}.{kind}) to ({group}.{}): unknown conversion",
        resource.kind
    ))
}

/// The refusal of a patch. Upstream names neither the kind nor the object here; it shows a strategic patch
/// itself, and of the others the patched object.
fn invalid(patch: &Patch, object: &Value, detail: &str) -> ApiError {
    let value = match patch {
        Patch::Strategic(patch) => GoFormat(patch).to_string(),
        Patch::Json(_) | Patch::Merge(_) => object.to_string(),
    };
    ApiError::Invalid {
        group: String::new(),
        kind: String::new(),
        name: String::new(),
        causes: vec![StatusCause::invalid("patch", &value, detail)],
    }
}

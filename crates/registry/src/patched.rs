//! Decodes a patched object by its kind. An object that does not fit the kind is a 422 with one cause for the field
//! `patch`, with upstream's text for each type of patch.

use serde_json::Value;

use super::error::ApiError;
use super::registry::Registry;
use super::resource::Resource;
use super::strategic::GoFormat;
use super::target::{Patch, Target};
use super::{field_validation, metadata};
use watchet_api::{StatusCause, WriteOptions};
use watchet_schema::KindType;

/// The name of the scheme of the built-in types in upstream's messages.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// Returns the patched `object` without members that its kind does not have, and with its metadata checked against the
/// URL.
///
/// # Errors
/// 422 if it is not an object of its kind, or has unknown fields and the client requests strict validation; 400 if
/// its name or namespace differs from the URL.
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
    // Only nulls in lists can fail here. Go decodes them as empty values, which validation then rejects.
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

/// Decodes the object by its type and returns the fields that the type does not have.
///
/// # Errors
/// The type error.
fn typed(
    registry: &Registry,
    target: &Target,
    patch: &Patch,
    object: &mut Value,
) -> Result<Vec<String>, String> {
    let resource = target.of_bodies();
    if matches!(patch, Patch::Strategic(_)) {
        // A strategic patch is applied to a typed object, whose kind does not come from its members.
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

/// Checks that `apiVersion` and `kind`, if present, are those of the resource.
///
/// # Errors
/// Upstream's text for a kind that it does not know, or that it cannot convert to this one.
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

/// Returns the error for an invalid patched object. As upstream, it names neither the kind nor the object, and its value is
/// the patch if that is a strategic patch, otherwise the patched object.
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

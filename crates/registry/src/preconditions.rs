//! The checks of a write before it changes anything: its subresource and its body against the URL, and the uid and the
//! resourceVersion in the body against the present object.

use serde_json::Value;

use super::error::ApiError;
use super::metadata;
use super::resource::Resource;
use super::stored_form::Current;
use super::target::Target;
use watchet_api::{ResourceVersion, StatusCause};

/// Checks that the resource has the subresource, with this verb.
///
/// # Errors
/// 405 if it has not.
pub(crate) fn check_subresource(target: &Target, verb: &str) -> Result<(), ApiError> {
    let Some(name) = &target.subresource else {
        return Ok(());
    };
    let found = target.resource.subresource(name);
    if found.is_some_and(|found| found.verbs.contains(&verb)) {
        return Ok(());
    }
    Err(ApiError::MethodNotAllowed(format!(
        "{} has no subresource {name:?} with the verb {verb}",
        target.resource.qualified()
    )))
}

/// Checks the body of a write against the URL.
///
/// # Errors
/// 400 if it is not an object of the kind, the name and the namespace of the URL.
pub(crate) fn check_body(target: &Target, body: &mut Value) -> Result<(), ApiError> {
    metadata::check_shape(&target.of_bodies(), body)?;
    metadata::check_name(&target.name, body)?;
    let namespace = target.namespace.as_deref();
    metadata::check_namespace(namespace.filter(|_| target.resource.namespaced), body)
}

/// Checks the uid in a body, if it has one, against that of the present object; an object that does not exist has the
/// uid "".
///
/// # Errors
/// 409 if they differ.
pub(crate) fn check_uid(
    resource: &Resource,
    name: &str,
    current: Option<&Current>,
    body: &Value,
) -> Result<(), ApiError> {
    let uid = current.map_or("", |current| metadata::text(&current.value, "uid"));
    let given = metadata::text(body, "uid");
    if !given.is_empty() && given != uid {
        let detail =
            format!("Precondition failed: UID in precondition: {given}, UID in object meta: {uid}");
        return Err(ApiError::conflict(resource, name, detail));
    }
    Ok(())
}

/// Checks the resourceVersion in a body, if it has one, against that of the present object.
///
/// # Errors
/// 409 if they differ; 422 if it is not a number.
pub(crate) fn check_version(
    resource: &Resource,
    name: &str,
    current: &Current,
    body: &Value,
) -> Result<(), ApiError> {
    let version = version(resource, name, body)?;
    if !version.is_zero() && version != current.at {
        return Err(ApiError::modified(resource, name));
    }
    Ok(())
}

/// Checks that the body has a resourceVersion, if the resource requires one for an update. As upstream, the error has the
/// plural as the kind.
///
/// # Errors
/// 422 if it has none.
pub(crate) fn check_version_present(
    resource: &Resource,
    name: &str,
    body: &Value,
) -> Result<(), ApiError> {
    if resource.strategy.rules().allows_unconditional_update
        || !version(resource, name, body)?.is_zero()
    {
        return Ok(());
    }
    Err(ApiError::Invalid {
        group: resource.group.clone(),
        kind: resource.plural.clone(),
        name: name.to_owned(),
        causes: vec![StatusCause::invalid_number(
            "metadata.resourceVersion",
            0,
            "must be specified for an update",
        )],
    })
}

/// Returns `metadata.resourceVersion` of the body; zero if it has none.
fn version(resource: &Resource, name: &str, body: &Value) -> Result<ResourceVersion, ApiError> {
    let version = metadata::text(body, "resourceVersion");
    version.parse().map_err(|_| {
        let detail = "must be a non-negative decimal number";
        let cause = StatusCause::invalid("metadata.resourceVersion", version, detail);
        ApiError::invalid(resource, name, vec![cause])
    })
}

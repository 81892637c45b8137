//! Update (§1.5): PUT, of an object or of its subresource, and the rules that PATCH shares with it.

use std::sync::Arc;

use serde_json::Value;

use super::write::{Change, Current, Place, Written};
use super::{ApiError, Registry, Resource, Target, create, events, metadata, strategy};
use crate::api::{Object, ResourceVersion, WriteOptions};

pub(super) async fn update(
    registry: &Registry,
    target: &Target,
    mut body: Value,
    options: &WriteOptions,
) -> Result<(Arc<Object>, bool), ApiError> {
    let resource = &target.resource;
    check_subresource(target)?;
    let place = Place::of(target)?;
    check_body(target, &mut body)?;
    let written = registry
        .guaranteed_update(&place, options.dry_run, |current| {
            succeed(target, current, body.clone())
        })
        .await;
    match written {
        Err(error)
            if error.is_not_found()
                && target.subresource.is_none()
                && strategy::creates_on_update(resource) =>
        {
            if !metadata::text(&body, "resourceVersion").is_empty()
                || !metadata::text(&body, "uid").is_empty()
            {
                return Err(error);
            }
            let namespace = target.namespace.as_deref();
            let created = create::create(registry, resource, namespace, body, options).await?;
            Ok((created, true))
        }
        written => Ok((written.map(Written::into_object)?, false)),
    }
}

/// Refuses a subresource that the resource does not have.
pub(super) fn check_subresource(target: &Target) -> Result<(), ApiError> {
    match &target.subresource {
        Some(sub) if !target.resource.subresources.contains(sub) => {
            Err(ApiError::MethodNotAllowed(format!(
                "{} has no subresource {sub:?} that can be written",
                target.resource.qualified()
            )))
        }
        _ => Ok(()),
    }
}

/// Checks what a client wants stored against the URL.
pub(super) fn check_body(target: &Target, body: &mut Value) -> Result<(), ApiError> {
    metadata::check_shape(&target.resource, body)?;
    metadata::check_name(&target.name, body)?;
    let namespace = target.namespace.as_deref();
    metadata::check_namespace(namespace.filter(|_| target.resource.namespaced), body)
}

/// The successor of `current` that a client asks for with `body`, which was checked against the
/// URL and is in the form that the client sees.
///
/// # Errors
/// 409 when the body is about another version or another object of that name; 422.
pub(super) fn succeed(target: &Target, current: &Current, body: Value) -> Result<Change, ApiError> {
    let resource = &target.resource;
    check_preconditions(resource, &target.name, current, &body)?;
    let mut object = events::to_storage(resource, body);
    let subresource = target.subresource.as_deref();
    strategy::keep_from_stored(resource, subresource, &current.value, &mut object);
    metadata::keep_from_stored(&current.value, &mut object);
    strategy::prepare(resource, &mut object);
    let causes = metadata::problems_of_update(&current.value, &object);
    if !causes.is_empty() {
        return Err(ApiError::invalid(resource, &target.name, causes));
    }
    if subresource.is_none() && strategy::desired_state_differs(&current.value, &object) {
        metadata::bump_generation(&mut object);
    }
    // An object that nothing holds any longer goes with the write that let go of it.
    if strategy::is_finished(resource, &object) && object != current.value {
        return Ok(Change::Delete(object));
    }
    Ok(Change::Put(object))
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    current: &Current,
    body: &Value,
) -> Result<(), ApiError> {
    let (uid, given) = (
        metadata::text(&current.value, "uid"),
        metadata::text(body, "uid"),
    );
    if !given.is_empty() && given != uid {
        let detail =
            format!("Precondition failed: UID in precondition: {given}, UID in object meta: {uid}");
        return Err(ApiError::conflict(resource, name, detail));
    }
    let version = metadata::text(body, "resourceVersion");
    let version: ResourceVersion = version.parse().map_err(|_| {
        let detail = "must be a non-negative decimal number";
        let cause = super::error::invalid_value("metadata.resourceVersion", version, detail);
        ApiError::invalid(resource, name, vec![cause])
    })?;
    if !version.is_zero() && version != current.at {
        return Err(modified(resource, name));
    }
    Ok(())
}

/// The conflict that clients look for before they try again.
pub(super) fn modified(resource: &Resource, name: &str) -> ApiError {
    ApiError::conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try \
         again",
    )
}

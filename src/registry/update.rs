//! Update (§1.5): PUT, of an object or of its subresource, and the rules that PATCH shares with it.

use std::sync::Arc;

use serde_json::Value;

use super::write::{Change, Current, Place, Written};
use super::{ApiError, Registry, Resource, Target, create, events, metadata, namespaces, strategy};
use crate::api::{Object, ResourceVersion, StatusCause, WriteOptions};

pub(super) async fn update(
    registry: &Registry,
    target: &Target,
    mut body: Value,
    options: &WriteOptions,
) -> Result<(Arc<Object>, bool), ApiError> {
    let resource = &target.resource;
    check_subresource(target, "update")?;
    let place = Place::of(target)?;
    check_body(target, &mut body)?;
    let creates = target.subresource.is_none() && strategy::creates_on_update(resource);
    // Asked for now, because it takes a look at the namespace, and refused only when it is created.
    let admitted = match &target.namespace {
        Some(namespace) if creates && resource.namespaced => {
            namespaces::require_active(registry, namespace, resource, &target.name).await
        }
        _ => Ok(()),
    };
    let mut created = false;
    let written = registry
        .guaranteed_write(&place, options.dry_run, |current| {
            created = current.is_none();
            check_uid(resource, &target.name, current, &body)?;
            match current {
                Some(current) => {
                    check_version_given(resource, &target.name, &body)?;
                    succeed(target, current, body.clone(), options)
                }
                None if creates => {
                    admitted.clone()?;
                    create::complete(resource, body.clone(), options).map(Change::Put)
                }
                None => Err(place.not_found()),
            }
        })
        .await;
    Ok((written.map(Written::into_object)?, created))
}

/// Refuses a subresource that the resource does not have, or that is not written by `verb`.
pub(super) fn check_subresource(target: &Target, verb: &str) -> Result<(), ApiError> {
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
pub(super) fn succeed(
    target: &Target,
    current: &Current,
    body: Value,
    options: &WriteOptions,
) -> Result<Change, ApiError> {
    let resource = &target.resource;
    check_uid(resource, &target.name, Some(current), &body)?;
    check_version(resource, &target.name, current, &body)?;
    let mut object = events::to_storage(resource, body);
    let subresource = target.subresource.as_deref();
    strategy::keep_from_stored(resource, subresource, &current.value, &mut object);
    metadata::keep_from_stored(&current.value, &mut object);
    metadata::dedupe_owners(&mut object, &options.warnings);
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

/// A uid in the body says which object of that name is meant; none has the uid "".
fn check_uid(
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

fn check_version(
    resource: &Resource,
    name: &str,
    current: &Current,
    body: &Value,
) -> Result<(), ApiError> {
    let version = version(resource, name, body)?;
    if !version.is_zero() && version != current.at {
        return Err(modified(resource, name));
    }
    Ok(())
}

/// Some resources are not overwritten blindly. Upstream names the plural as the kind here.
fn check_version_given(resource: &Resource, name: &str, body: &Value) -> Result<(), ApiError> {
    if strategy::allows_unconditional_update(resource) || !version(resource, name, body)?.is_zero()
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

/// `metadata.resourceVersion` of the body, zero when it says none.
fn version(resource: &Resource, name: &str, body: &Value) -> Result<ResourceVersion, ApiError> {
    let version = metadata::text(body, "resourceVersion");
    version.parse().map_err(|_| {
        let detail = "must be a non-negative decimal number";
        let cause = StatusCause::invalid("metadata.resourceVersion", version, detail);
        ApiError::invalid(resource, name, vec![cause])
    })
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

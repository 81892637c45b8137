//! Update: PUT of an object or of a subresource, and the rules that PATCH shares with it.

use std::sync::Arc;

use serde_json::Value;

use super::allocator::WriteId;
use super::create_authorization::authorize_create;
use super::guaranteed_update::{Change, Current, Decide, Place};
use super::pipeline::Writing;
use super::scale;
use super::subresource;
use super::{ApiError, Registry, Resource, Target, metadata};
use crate::api::{Object, ResourceVersion, StatusCause, WriteOptions};

pub(crate) async fn update(
    registry: &Registry,
    target: &Target,
    mut body: Value,
    options: &WriteOptions,
) -> Result<(Arc<Object>, bool), ApiError> {
    let resource = &target.resource;
    check_subresource(target, "update")?;
    let place = Place::of(target)?;
    check_body(target, &mut body)?;
    let creates = target.subresource.is_none() && resource.strategy.rules().allows_create_on_update;
    let mut update = Update {
        writing: Writing::new(registry, target, options),
        body,
        creates,
        created: false,
    };
    let written = registry
        .guaranteed_write(&place, options.dry_run, &mut update)
        .await;
    let object = subresource::shown(target, written?.into_object())?;
    Ok((object, update.created))
}

/// A PUT.
struct Update<'a> {
    writing: Writing<'a>,
    body: Value,
    /// Whether it makes an object where there is none.
    creates: bool,
    /// Whether it did so.
    created: bool,
}

impl Decide for Update<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let Target { resource, name, .. } = self.writing.target;
        self.created = current.is_none();
        check_uid(resource, name, current, &self.body)?;
        match (current, self.creates) {
            (Some(current), _) => {
                if !scale::is_of(self.writing.target) {
                    check_version_given(resource, name, &self.body)?;
                }
                self.writing.succeed(current, self.body.clone()).await
            }
            (None, true) => {
                let Writing {
                    registry,
                    target,
                    options,
                    ..
                } = &self.writing;
                authorize_create(registry, target, options).await?;
                let draft = self.writing.draft(self.body.clone()).await?;
                self.writing.complete(draft).await.map(Change::Put)
            }
            (None, false) => Err(ApiError::not_found(resource, name)),
        }
    }

    fn write_id(&self) -> Option<WriteId> {
        Some(self.writing.id)
    }
}

/// Refuses a subresource that the resource does not have, or that is not written by `verb`.
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

/// Checks what a client wants stored against the URL.
pub(crate) fn check_body(target: &Target, body: &mut Value) -> Result<(), ApiError> {
    metadata::check_shape(&target.of_bodies(), body)?;
    metadata::check_name(&target.name, body)?;
    let namespace = target.namespace.as_deref();
    metadata::check_namespace(namespace.filter(|_| target.resource.namespaced), body)
}

/// A uid in the body says which object of that name is meant; none has the uid "".
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

pub(crate) fn check_version(
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
pub(crate) fn modified(resource: &Resource, name: &str) -> ApiError {
    ApiError::conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try \
         again",
    )
}

//! Create: identity, names, validation, and the write that expects the key to be absent.

use std::sync::Arc;

use serde_json::Value;

use super::error::ApiError;
use super::location::ObjectLocation;
use super::pipeline::Pipeline;
use super::registry::Registry;
use super::resource::Resource;
use super::stored_form::Current;
use super::target::Target;
use super::{conversion, metadata};
use watchet_api::names::generate;
use watchet_api::{Object, ResourceVersion, WriteOptions};
use watchet_storage::{Expect, Outcome, Storage as _};

/// The number of names that are generated from `generateName` before the client gets a 409, as in kube-apiserver (KEP-4420).
const GENERATE_NAME_TRIES_MAX: usize = 8;

/// Creates an object.
pub(crate) async fn create(
    registry: &Registry,
    resource: &Arc<Resource>,
    namespace: Option<&str>,
    mut body: Value,
    options: &WriteOptions,
) -> Result<Arc<Object>, ApiError> {
    metadata::check_shape(resource, &mut body)?;
    resource.strategy.check_creatable()?;
    let namespace = namespace.filter(|_| resource.namespaced);
    metadata::check_namespace(namespace, &mut body)?;
    let version = metadata::take_version(&mut body);
    if is_nameless(&body)
        && let Some(name) = resource.strategy.default_name()
    {
        body["metadata"]["name"] = name.into();
    }
    let mut target = Target {
        resource: resource.clone(),
        namespace: namespace.map(str::to_owned),
        name: metadata::text(&body, "name").to_owned(),
        subresource: None,
    };
    let draft = Pipeline::new(registry, &target, options)
        .draft(body)
        .await?;
    // A webhook may have set the name of an object that has only a `generateName`.
    metadata::text(&draft, "name").clone_into(&mut target.name);
    let base = metadata::text(&draft, "generateName").to_owned();
    if !target.name.is_empty() || base.is_empty() {
        return store(&Pipeline::new(registry, &target, options), draft, version).await;
    }
    for _ in 0..GENERATE_NAME_TRIES_MAX {
        target.name = generate(&base);
        let mut named = draft.clone();
        named["metadata"]["name"] = target.name.clone().into();
        match store(&Pipeline::new(registry, &target, options), named, version).await {
            Err(ApiError::AlreadyExists { .. }) => {}
            other => return other,
        }
    }
    Err(ApiError::NamesExhausted {
        resource: resource.qualified(),
        base: target.name,
    })
}

fn is_nameless(body: &Value) -> bool {
    metadata::text(body, "name").is_empty() && metadata::text(body, "generateName").is_empty()
}

/// Completes an object that has its name, and stores it unless one exists. `version` is the resourceVersion in the
/// client's body.
async fn store(
    pipeline: &Pipeline<'_>,
    draft: Value,
    version: ResourceVersion,
) -> Result<Arc<Object>, ApiError> {
    let mut object = pipeline.complete(draft).await?;
    let created = store_complete(pipeline, &mut object, version).await;
    if let Err(error) = &created {
        pipeline.release_unstored(None, &object, error).await;
    }
    created
}

/// Stores a complete object unless one exists.
async fn store_complete(
    pipeline: &Pipeline<'_>,
    object: &mut Value,
    version: ResourceVersion,
) -> Result<Arc<Object>, ApiError> {
    let (registry, options) = (pipeline.registry, pipeline.options);
    let resource = &pipeline.target.resource;
    let location = ObjectLocation::of(pipeline.target)?;
    if !options.dry_run {
        // As upstream, storage checks this last: an invalid object is a 422, and a dry run is not checked.
        if !version.is_zero() {
            return Err(ApiError::Internal(
                "resourceVersion should not be set on objects to be created".to_owned(),
            ));
        }
        if let Some(converted) = conversion::stored_form(resource, object).await? {
            *object = converted;
        }
        let (stored, outcome) = registry
            .put_within_limit(&location, object, Expect::Absent, false)
            .await?;
        if let Outcome::Done(at) = outcome {
            registry.after_store(resource, at).await;
            return registry
                .write_response(&location, &stored, object, at)
                .await;
        }
    }
    match registry.store(resource).get(&location.storage_key).await? {
        (None, _) if options.dry_run => registry.unstored_response(&location, object, version),
        (existing, _) => {
            // The object may have been deleted since; the response is still that it exists.
            let current = existing.map(|e| Current::stored(&e)).transpose()?;
            Err(ApiError::AlreadyExists {
                resource: resource.qualified(),
                name: location.name,
                being_deleted: current.is_some_and(|c| metadata::is_terminating(&c.value)),
            })
        }
    }
}

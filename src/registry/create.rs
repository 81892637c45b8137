//! Create (§1.5): identity, names, validation, and the write that finds the key absent.

use std::sync::Arc;

use serde_json::Value;

use super::write::{Current, Place, encode};
use super::{ApiError, Registry, Resource, events, metadata, names, namespaces, strategy};
use crate::api::{Object, ResourceVersion, WriteOptions};
use crate::storage::{Expect, Outcome, Storage as _};

/// How often a name is made from `generateName` before the collisions are the client's (§1.4).
const GENERATE_NAME_TRIES_MAX: usize = 8;

pub(super) async fn create(
    registry: &Registry,
    resource: &Arc<Resource>,
    namespace: Option<&str>,
    mut body: Value,
    options: &WriteOptions,
) -> Result<Arc<Object>, ApiError> {
    metadata::check_shape(resource, &mut body)?;
    let namespace = namespace.filter(|_| resource.namespaced);
    metadata::check_namespace(namespace, &mut body)?;
    if !metadata::text(&body, "resourceVersion").is_empty() {
        return Err(ApiError::BadRequest(
            "resourceVersion should not be set on objects to be created".to_owned(),
        ));
    }
    if resource.is("", "limitranges") && is_nameless(&body) {
        body["metadata"]["name"] = uuid::Uuid::new_v4().to_string().into();
    }
    let generated = metadata::text(&body, "name").is_empty();
    let mut object = complete(resource, body, options)?;
    if let Some(namespace) = namespace {
        let name = metadata::text(&object, "name");
        namespaces::require_active(registry, namespace, resource, name).await?;
    }
    if !generated {
        return store(registry, resource, namespace, object, options).await;
    }
    let base = metadata::text(&object, "generateName").to_owned();
    for _ in 0..GENERATE_NAME_TRIES_MAX {
        object["metadata"]["name"] = names::generate(&base).into();
        strategy::prepare(resource, &mut object);
        match store(registry, resource, namespace, object.clone(), options).await {
            Err(ApiError::AlreadyExists { .. }) => {}
            other => return other,
        }
    }
    Err(ApiError::NamesExhausted {
        resource: resource.qualified(),
        base: metadata::text(&object, "name").to_owned(),
    })
}

/// The stored form of a new object, which is all there but for a generated name.
pub(super) fn complete(
    resource: &Resource,
    mut body: Value,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    metadata::wipe_system_fields(&mut body);
    metadata::dedupe_owners(&mut body, &options.warnings);
    let causes = metadata::problems_of_new(resource, &body);
    if !causes.is_empty() {
        let name = metadata::text(&body, "name");
        return Err(ApiError::invalid(resource, name, causes));
    }
    let mut object = events::to_storage(resource, body);
    strategy::prepare_create(resource, &mut object);
    metadata::fill_created(resource, &mut object);
    Ok(object)
}

fn is_nameless(body: &Value) -> bool {
    metadata::text(body, "name").is_empty() && metadata::text(body, "generateName").is_empty()
}

/// Writes a complete object where there is none.
async fn store(
    registry: &Registry,
    resource: &Arc<Resource>,
    namespace: Option<&str>,
    object: Value,
    options: &WriteOptions,
) -> Result<Arc<Object>, ApiError> {
    let place = Place::new(resource, namespace, metadata::text(&object, "name"))?;
    let stored = encode(&object);
    if !options.dry_run {
        let outcome = registry.put(&place, stored.clone(), Expect::Absent).await?;
        if let Outcome::Done(at) = outcome {
            return registry.answer(&place, &stored, at);
        }
    }
    match registry.store(resource).get(&place.storage_key).await? {
        (None, _) if options.dry_run => registry.answer(&place, &stored, ResourceVersion::ZERO),
        (existing, _) => {
            // It may be gone again by now; that it was there is still the answer.
            let current = existing.map(|e| Current::stored(&e)).transpose()?;
            Err(ApiError::AlreadyExists {
                resource: resource.qualified(),
                name: place.name,
                being_deleted: current.is_some_and(|c| metadata::is_terminating(&c.value)),
            })
        }
    }
}

//! Reads: checks names and selectors, and calls the cache.

use std::sync::Arc;

use super::error::ApiError;
use super::location::ObjectLocation;
use super::registry::Registry;
use super::resource::Resource;
use super::target::Target;
use super::watch::Watch;
use super::{conversion, scale};
use watchet_api::{
    GetOptions, ListOptions, Object, ResolvedFieldSelector, SelectionPredicate, UnknownField,
};
use watchet_cacher::{CacheWatcher, ObjectList};
use watchet_storage::{KeyValue, ListRequest, Storage as _};

pub(crate) async fn get(
    registry: &Registry,
    target: &Target,
    options: GetOptions,
) -> Result<Arc<Object>, ApiError> {
    if let Some(objects) = target.resource.strategy.virtual_objects() {
        let (resource, name) = (&target.resource, &target.name);
        return objects.get(&*registry.storage, resource, name).await;
    }
    let object = get_stored(registry, target, options).await?;
    let object = conversion::convert_cached_one(&target.resource, object).await?;
    scale::object_or_scale(target, object)
}

/// Returns an object in stored form.
async fn get_stored(
    registry: &Registry,
    target: &Target,
    options: GetOptions,
) -> Result<Arc<Object>, ApiError> {
    let namespace = target.namespace.as_deref();
    let key = ObjectLocation::key_of(&target.resource, namespace, &target.name)?;
    let cache = registry.cache(&target.resource)?;
    let found = cache.get(&key, options).await?;
    found.ok_or_else(|| ApiError::not_found(&target.resource, &target.name))
}

pub(crate) async fn list(
    registry: &Registry,
    resource: &Arc<Resource>,
    namespace: Option<&str>,
    options: &ListOptions,
) -> Result<ObjectList, ApiError> {
    if let Some(objects) = resource.strategy.virtual_objects() {
        return objects.list(&*registry.storage, resource, options).await;
    }
    let predicate = predicate(resource, namespace, options)?;
    let (cached, converted) = before_conversion(resource, predicate);
    let mut list = registry.cache(resource)?.list(&cached, options).await?;
    list.items = conversion::convert_cached(resource, list.items).await?;
    if let Some(predicate) = converted {
        // A page may have fewer objects than its limit, or none: the continue token shows whether there are more.
        list.items.retain(|object| predicate.matches(object));
        list.remaining = None;
    }
    Ok(list)
}

pub(crate) async fn watch(
    registry: &Registry,
    resource: &Arc<Resource>,
    namespace: Option<&str>,
    options: &ListOptions,
) -> Result<Watch, ApiError> {
    let predicate = predicate(resource, namespace, options)?;
    let (cached, converted) = before_conversion(resource, predicate);
    let watcher = registry.cache(resource)?.watch(cached, options).await?;
    Ok(Watch::new(watcher, resource, converted))
}

/// Watches the objects of all namespaces in stored form.
async fn watch_stored(
    registry: &Registry,
    resource: &Arc<Resource>,
    options: &ListOptions,
) -> Result<CacheWatcher, ApiError> {
    let predicate = predicate(resource, None, options)?;
    Ok(registry.cache(resource)?.watch(predicate, options).await?)
}

/// Returns the part of `predicate` that the cache evaluates, and the whole predicate if it must be evaluated after the
/// conversion: only the webhook can compute the fields of an object in another version.
fn before_conversion(
    resource: &Resource,
    predicate: SelectionPredicate,
) -> (SelectionPredicate, Option<SelectionPredicate>) {
    let uses_webhook = conversion::webhook_converter(resource).is_some();
    match uses_webhook && predicate.fields.has_columns() {
        true => {
            let cached = SelectionPredicate {
                fields: predicate.fields.without_columns(),
                ..predicate.clone()
            };
            (cached, Some(predicate))
        }
        false => (predicate, None),
    }
}

/// The name and uid of an object in storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredName {
    /// The name, from its key.
    pub name: String,
    /// The uid; `None` if the object cannot be decoded.
    pub uid: Option<String>,
}

/// Returns the uid of an object in stored form.
fn uid_of(stored: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Stored {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        uid: String,
    }
    let stored: Stored = serde_json::from_slice(stored).ok()?;
    Some(stored.metadata.uid)
}

async fn stored_names(
    registry: &Registry,
    resource: &Resource,
    namespace: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<StoredName>, bool), ApiError> {
    let inside = format!("{namespace}/");
    let request = ListRequest {
        prefix: resource.prefix()?,
        start: after.map_or_else(|| inside.clone(), |after| format!("{inside}{after}\0")),
        at: None,
        limit,
        count: false,
    };
    let page = registry.store(resource).list(request.clone()).await?;
    let name_of = |stored: &KeyValue| {
        let rest = request.prefix.strip(stored.key.as_str())?;
        Some(rest.strip_prefix(&inside)?.to_owned())
    };
    let names: Vec<StoredName> = page
        .items
        .iter()
        .map_while(|stored| {
            let name = name_of(stored)?;
            let uid = uid_of(&stored.value);
            Some(StoredName { name, uid })
        })
        .collect();
    let more = page.more && names.len() == page.items.len();
    Ok((names, more))
}

/// Returns the predicate of `options`, with its fields resolved for `resource`.
///
/// # Errors
/// 400 for a field that the resource does not have.
pub fn predicate(
    resource: &Resource,
    namespace: Option<&str>,
    options: &ListOptions,
) -> Result<SelectionPredicate, ApiError> {
    let unknown = |UnknownField(label): UnknownField| {
        ApiError::BadRequest(resource.strategy.unknown_field_label(resource, &label))
    };
    let fields =
        ResolvedFieldSelector::resolve(&options.fields, &resource.columns).map_err(unknown)?;
    let predicate = SelectionPredicate::new(namespace, options.labels.clone(), fields);
    Ok(predicate.sharded(options.shard.clone()))
}

impl Registry {
    /// Returns one object in stored form, for callers that use its metadata only, which no conversion changes. Calls no
    /// conversion webhook.
    ///
    /// # Errors
    /// The errors of [`Self::get`] except those of a conversion.
    pub async fn get_stored(&self, target: &Target) -> Result<Arc<Object>, ApiError> {
        get_stored(self, target, GetOptions::default()).await
    }

    /// Watches the objects of all namespaces in stored form; see [`Self::get_stored`].
    ///
    /// # Errors
    /// The errors of [`Self::watch`] except those of a conversion.
    pub async fn watch_stored(
        &self,
        resource: &Arc<Resource>,
        options: &ListOptions,
    ) -> Result<CacheWatcher, ApiError> {
        watch_stored(self, resource, options).await
    }

    /// Returns the names of the objects of `resource` in a namespace of storage, in order: at most `limit` names
    /// after `after`, and whether there are more. Objects that cannot be decoded are included.
    ///
    /// # Errors
    /// Storage's; 400 for an invalid namespace.
    pub async fn stored_names(
        &self,
        resource: &Resource,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<StoredName>, bool), ApiError> {
        stored_names(self, resource, namespace, after, limit).await
    }
}

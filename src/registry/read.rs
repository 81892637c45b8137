//! Reads: names and selectors are checked here, everything else is the cache's.

use std::sync::Arc;

use super::guaranteed_update::Place;
use super::subresource;
use super::{ApiError, Registry, Resource, Target, Watch, conversion};
use crate::api::{
    GetOptions, ListOptions, Object, ResolvedFieldSelector, SelectionPredicate, UnknownField,
};
use crate::cacher::{CacheWatcher, ObjectList};
use crate::storage::{KeyValue, ListRequest, Storage as _};

pub(crate) async fn get(
    registry: &Registry,
    target: &Target,
    options: GetOptions,
) -> Result<Arc<Object>, ApiError> {
    if let Some(objects) = target.resource.strategy.virtual_objects() {
        return objects.get(registry, target).await;
    }
    let object = get_stored(registry, target, options).await?;
    let object = conversion::presented_one(&target.resource, object).await?;
    subresource::shown(target, object)
}

/// The same in the stored form.
async fn get_stored(
    registry: &Registry,
    target: &Target,
    options: GetOptions,
) -> Result<Arc<Object>, ApiError> {
    let namespace = target.namespace.as_deref();
    let key = Place::key_of(&target.resource, namespace, &target.name)?;
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
        return objects.list(registry, resource, options).await;
    }
    let predicate = predicate(resource, namespace, options)?;
    let (asked, selects) = before_conversion(resource, predicate);
    let mut list = registry.cache(resource)?.list(&asked, options).await?;
    list.items = conversion::presented(resource, list.items).await?;
    if let Some(selects) = selects {
        // A page may have less than its limit, or nothing: its token tells whether there is more.
        list.items.retain(|object| selects.matches(object));
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
    let (asked, selects) = before_conversion(resource, predicate);
    let watcher = registry.cache(resource)?.watch(asked, options).await?;
    Ok(Watch::new(watcher, resource, selects))
}

/// The same in the stored form, of all namespaces.
async fn watch_stored(
    registry: &Registry,
    resource: &Arc<Resource>,
    options: &ListOptions,
) -> Result<CacheWatcher, ApiError> {
    let predicate = predicate(resource, None, options)?;
    Ok(registry.cache(resource)?.watch(predicate, options).await?)
}

/// What of `predicate` the cache can decide, and the whole if that is not all: which fields an object has in
/// another version only its webhook knows.
fn before_conversion(
    resource: &Resource,
    predicate: SelectionPredicate,
) -> (SelectionPredicate, Option<SelectionPredicate>) {
    let uses_webhook = conversion::webhook_converter(resource).is_some();
    match uses_webhook && predicate.fields.has_columns() {
        true => {
            let asked = SelectionPredicate {
                fields: predicate.fields.without_columns(),
                ..predicate.clone()
            };
            (asked, Some(predicate))
        }
        false => (predicate, None),
    }
}

/// One object as storage lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredName {
    pub(crate) name: String,
    /// None of what cannot be read.
    pub(crate) uid: Option<String>,
}

/// The uid of an object in stored form.
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
pub(crate) fn predicate(
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
    /// One object in the stored form: for who looks at metadata only, which is that of every version, and must
    /// not depend on webhooks.
    ///
    /// # Errors
    /// As of other gets, but for those of a conversion.
    pub(crate) async fn get_stored(&self, target: &Target) -> Result<Arc<Object>, ApiError> {
        get_stored(self, target, GetOptions::default()).await
    }

    /// A watch in the stored form, for the same.
    pub(crate) async fn watch_stored(
        &self,
        resource: &Arc<Resource>,
        options: &ListOptions,
    ) -> Result<CacheWatcher, ApiError> {
        watch_stored(self, resource, options).await
    }

    /// At most so many names of what storage holds of `resource` in a namespace, in their order, those
    /// after `after`; and whether there are more. What cannot be read is among them.
    ///
    /// # Errors
    /// Storage's; 400 for what is no namespace.
    pub(crate) async fn stored_names(
        &self,
        resource: &Resource,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<StoredName>, bool), ApiError> {
        stored_names(self, resource, namespace, after, limit).await
    }
}

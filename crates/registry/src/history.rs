//! The history of a resource that storage has, in the version of the client.

use std::sync::Arc;

use futures_util::StreamExt as _;

use super::conversion;
use super::error::ApiError;
use super::read::predicate;
use super::registry::Registry;
use super::resource::Resource;
use watchet_api::{ListOptions, WatchEvent};
use watchet_cacher::{StorageHistory, WatchItem};

impl Registry {
    /// Returns the events after the version of `options`, or all that storage has, up to the present. The
    /// selectors apply to the object of each event alone; other options have no effect.
    ///
    /// # Errors
    /// 400 for a resource whose objects are not stored, and for a field that the resource does not have; 410 if storage
    /// has compacted some of the events.
    pub async fn history(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<StorageHistory, ApiError> {
        if resource.strategy.virtual_objects().is_some() {
            let name = resource.qualified();
            return Err(ApiError::BadRequest(format!(
                "{name} has no history: its objects are not stored"
            )));
        }
        let predicate = predicate(resource, namespace, options)?;
        let after = options.resource_version.filter(|after| !after.is_zero());
        let events = self.cache(resource)?.history(predicate, after).await?;
        let resource = resource.clone();
        Ok(Box::pin(events.then(move |items| {
            let resource = resource.clone();
            async move { converted(&resource, items).await }
        })))
    }
}

/// Returns the items in the version of `resource`. An error replaces all of them.
async fn converted(resource: &Resource, items: Vec<WatchItem>) -> Vec<WatchItem> {
    let mut converted = Vec::with_capacity(items.len());
    for item in items {
        let WatchItem::Event(event) = item else {
            converted.push(item);
            continue;
        };
        let object = event.object().clone();
        match conversion::convert_cached_one(resource, object.clone()).await {
            Ok(same) if Arc::ptr_eq(&same, &object) => converted.push(WatchItem::Event(event)),
            Ok(object) => {
                let event = WatchEvent::new(event.event_type(), object);
                converted.push(WatchItem::Event(Arc::new(event)));
            }
            Err(error) => {
                let error = watchet_cacher::ReadError::Unconvertible(error.to_string());
                return vec![WatchItem::Error(error)];
            }
        }
    }
    converted
}

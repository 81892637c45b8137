//! Watches the admission configurations and passes each new state of them to the admission chain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::error::ApiError;
use crate::read;
use crate::registry::Registry;
use crate::resource::Resource;
use watchet_admission::ConfigurationKind;
use watchet_api::{EventType, ListOptions, ResourceVersion, SelectionPredicate};
use watchet_cacher::WatchItem;

/// The group of the configurations.
const GROUP: &str = "admissionregistration.k8s.io";

/// The pause before a watch of the configurations that has ended is started again.
const PAUSE: Duration = Duration::from_millis(100);

/// Passes every change of the configurations to the admission chain, until the registry's tasks are cancelled.
pub(crate) async fn follow(registry: Arc<Registry>) {
    let token = registry.tasks.token();
    let all = ConfigurationKind::ALL.map(|kind| follow_kind(&registry, kind));
    tokio::select! {
        biased;
        () = token.cancelled() => {}
        _ = futures_util::future::join_all(all) => {}
    }
}

async fn follow_kind(registry: &Registry, kind: ConfigurationKind) {
    let resource = registry.resource(GROUP, "v1", kind.plural());
    let resource = resource.expect("the table has the configurations");
    loop {
        if let Err(error) = follow_once(registry, kind, &resource).await {
            tracing::debug!(%error, kind = kind.plural(), "cannot watch the configurations yet");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Lists the configurations of a kind, and watches them until the watch ends.
async fn follow_once(
    registry: &Registry,
    kind: ConfigurationKind,
    resource: &Arc<Resource>,
) -> Result<(), ApiError> {
    let any = ListOptions {
        resource_version: Some(ResourceVersion::ZERO),
        ..ListOptions::default()
    };
    let list = read::list(registry, resource, None, &any).await?;
    let mut configurations: BTreeMap<String, Value> = BTreeMap::new();
    let decode =
        |object: &watchet_api::Object| serde_json::from_slice::<Value>(object.body_slice());
    for object in &list.items {
        match decode(object) {
            Ok(value) => drop(configurations.insert(object.key().name().to_owned(), value)),
            Err(error) => {
                tracing::error!(%error, key = %object.key(), "a configuration is not JSON")
            }
        }
    }
    let mut at = list.resource_version;
    let replace = |configurations: &BTreeMap<String, Value>, at| {
        let all = configurations.values().cloned().collect();
        registry.dynamic_admission.replace(kind, all, at);
    };
    replace(&configurations, at);
    let from = ListOptions {
        resource_version: Some(at),
        ..ListOptions::default()
    };
    let cache = registry.cache(resource)?;
    let mut watcher = cache.watch(SelectionPredicate::default(), &from).await?;
    while let Some(items) = watcher.next().await {
        for item in items {
            let (object, deleted) = match &item {
                WatchItem::Initial(object) => (&**object, false),
                WatchItem::Event(event) => {
                    at = event.resource_version();
                    let deleted = event.event_type() == EventType::Deleted;
                    (&**event.object(), deleted)
                }
                WatchItem::Bookmark {
                    resource_version, ..
                } => {
                    at = *resource_version;
                    continue;
                }
                WatchItem::Error(error) => {
                    tracing::debug!(%error, "the watch of the configurations ended");
                    return Ok(());
                }
            };
            let name = object.key().name().to_owned();
            match decode(object) {
                _ if deleted => drop(configurations.remove(&name)),
                Ok(value) => drop(configurations.insert(name, value)),
                Err(error) => tracing::error!(%error, name, "a configuration is not JSON"),
            }
        }
        replace(&configurations, at);
    }
    Ok(())
}

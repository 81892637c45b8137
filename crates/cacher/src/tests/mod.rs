//! Tests of the Cacher over a scripted storage: restarts, relists, compaction, slow readers and
//! lost storage. Units are tested beside their code.

mod compaction;
mod consistency;
mod corrupt;
mod crowds;
mod fake;
mod gaps;
mod history;
mod lifecycle;
mod metrics;
mod model;
mod reads;
mod revisions;
mod scripts;
mod silent;
mod slow;
mod unreadable;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

pub(super) use self::fake::FakeStorage;
pub(super) use self::silent::Silent;
pub(super) use self::unreadable::garbage;
use super::*;
use tokio_util::sync::CancellationToken;
use watchet_api::{
    ColumnSet, ContinueToken, EventType, FieldColumn, FieldRef, FieldSelector, GetOptions,
    ListOptions, ObjectKey, ResolvedFieldSelector, ResourceVersion, ResourceVersionMatch,
    SelectionPredicate, StorageKey,
};
use watchet_metrics::Metrics;
use watchet_tasks::Tasks;

pub(super) fn rv(n: u64) -> ResourceVersion {
    ResourceVersion::new(n)
}

pub(super) fn resource() -> CachedResource {
    CachedResource {
        name: "pods".into(),
        namespaced: true,
        prefix: StorageKey::new("/pods/").unwrap(),
        columns: Arc::new(ColumnSet::new(vec![FieldColumn::new("spec.nodeName")])),
        triggers: vec![FieldRef::Column(0)],
        metrics: Metrics::new().resource("", "pods"),
        transform: None,
    }
}

/// Returns the JSON of a pod. `n` distinguishes versions.
pub(super) fn pod(key: &str, app: &str, node: &str, n: u64) -> String {
    let (namespace, name) = key.split_once('/').unwrap();
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}, "uid": key},
        "spec": {"nodeName": node, "n": n},
    })
    .to_string()
}

fn predicate(namespace: Option<&str>, labels: &str, fields: &str) -> SelectionPredicate {
    let fields: FieldSelector = fields.parse().unwrap();
    let fields = ResolvedFieldSelector::resolve(&fields, &resource().columns).unwrap();
    SelectionPredicate::new(namespace, labels.parse().unwrap(), fields)
}

fn everything() -> SelectionPredicate {
    SelectionPredicate::default()
}

/// A Cacher and its dependencies.
struct Fixture {
    storage: Arc<FakeStorage>,
    tasks: Tasks,
    metrics: Arc<Metrics>,
    cacher: Arc<Cacher>,
    /// The expected number of failed consistency checks.
    failures: u64,
}

impl Fixture {
    fn start() -> Self {
        Self::over(FakeStorage::new(), CacherConfig::default())
    }

    fn over(storage: Arc<FakeStorage>, config: CacherConfig) -> Self {
        Self::of(resource(), storage, config)
    }

    /// Starts a Cacher of `resource` with its own metrics.
    fn of(resource: CachedResource, storage: Arc<FakeStorage>, mut config: CacherConfig) -> Self {
        // Rare enough that tests which count reads of storage are not affected.
        let period = Duration::from_secs(20);
        config.consistency_check_period.get_or_insert(period);
        let tasks = Tasks::new();
        let metrics = Metrics::new();
        let resource = CachedResource {
            metrics: metrics.resource("", "pods"),
            ..resource
        };
        let cacher = Cacher::start(resource, storage.clone(), &tasks, config);
        Self {
            storage,
            tasks,
            metrics,
            cacher,
            failures: 0,
        }
    }

    /// Writes a pod and returns its version.
    fn put(&self, key: &str, app: &str, node: &str) -> ResourceVersion {
        let n = self.storage.revision().get();
        self.storage
            .write(&format!("/pods/{key}"), Some(pod(key, app, node, n)))
    }

    fn delete(&self, key: &str) -> ResourceVersion {
        self.storage.write(&format!("/pods/{key}"), None)
    }

    async fn watch(&self, predicate: SelectionPredicate, options: ListOptions) -> CacheWatcher {
        self.cacher.watch(predicate, &options).await.unwrap()
    }

    async fn list(&self, options: ListOptions) -> Result<ObjectList, ReadError> {
        self.cacher.list(&everything(), &options).await
    }

    async fn keys(&self, options: ListOptions) -> Vec<String> {
        keys(&self.list(options).await.unwrap())
    }

    /// Waits until the cache has all writes, and asserts that it is consistent.
    async fn wait_until_synced(&self) {
        self.list(ListOptions::default()).await.unwrap();
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.tasks.cancel();
        if !std::thread::panicking() {
            let failures = self.cacher.consistency_checks().failure;
            assert_eq!(failures, self.failures, "the cache differed from storage");
        }
    }
}

fn keys(list: &ObjectList) -> Vec<String> {
    list.items
        .iter()
        .map(|object| object.key().to_string())
        .collect()
}

fn from(version: ResourceVersion) -> ListOptions {
    ListOptions {
        resource_version: Some(version),
        ..ListOptions::default()
    }
}

fn watch_list() -> ListOptions {
    ListOptions {
        send_initial_events: Some(true),
        resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
        allow_watch_bookmarks: true,
        ..ListOptions::default()
    }
}

/// Formats an item: `ADDED ns/a@5`, `BOOKMARK @7 end`, `ERROR …`.
fn describe(item: &WatchItem) -> String {
    match item {
        WatchItem::Initial(object) => {
            format!("ADDED {}@{}", object.key(), object.resource_version())
        }
        WatchItem::Event(event) => format!(
            "{} {}@{}",
            event.event_type().as_str(),
            event.object().key(),
            event.resource_version()
        ),
        WatchItem::Bookmark {
            resource_version,
            initial_events_end,
        } => {
            format!(
                "BOOKMARK @{resource_version}{}",
                if *initial_events_end { " end" } else { "" }
            )
        }
        WatchItem::Error(error) => format!("ERROR {error}"),
    }
}

/// Reads the watch until it has no item for a second.
async fn drain(watcher: &mut CacheWatcher) -> Vec<String> {
    let mut words = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_secs(1), watcher.next()).await {
            Ok(Some(items)) => words.extend(items.iter().map(describe)),
            Ok(None) => {
                words.push("END".into());
                return words;
            }
            Err(_) => return words,
        }
    }
}

//! The resource `watchcaches`: one object for each watch cache that has been started.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::{Clock, rfc3339};
use crate::resource::{Definition, cell, count, object, resource as live_resource, schema, size};
use crate::resource::{GROUP, VERSION, text, time as date};
use crate::storage::{LiveObjects, LiveStorage};
use watchet_api::EncodingsSize;
use watchet_cacher::{CacheSize, WatchPhase};
use watchet_registry::age::{age, time};
use watchet_registry::table_columns::{AGE, NAME};
use watchet_registry::{Registry, Resource, StartedCache, TableColumn};

/// Returns the resource and the storage of its objects.
pub(crate) fn resource() -> (Arc<Resource>, Arc<LiveStorage>) {
    let definition = Definition {
        kind: "WatchCache",
        plural: "watchcaches",
        singular: "watchcache",
        short_name: "wc",
        verbs: &["get", "list", "watch"],
        selectable: &["spec.group", "spec.resource", "status.ready"],
        schema: schema(
            "WatchCache is the watch cache of a resource: its objects and its recent events in the memory of the server.",
            &[
                (
                    "group",
                    text(),
                    "The group of the resource; empty for core.",
                ),
                (
                    "version",
                    text(),
                    "The version in which the objects are stored.",
                ),
                ("resource", text(), "The plural name of the resource."),
            ],
            &status_members(),
        ),
        columns: COLUMNS,
        cells,
    };
    live_resource(definition, Caches(Clock::new()))
}

fn status_members() -> Vec<(&'static str, Value, &'static str)> {
    let history = [
        ("events", count(), "The number of events."),
        ("bytes", count(), "The memory of the events in bytes."),
        (
            "oldestResourceVersion",
            text(),
            "The oldest resourceVersion at which a watch can start.",
        ),
        (
            "since",
            date(),
            "When the oldest event happened; absent if there are none.",
        ),
    ];
    let encodings = [
        (
            "objects",
            count(),
            "The number of objects that have an encoding.",
        ),
        ("bytes", count(), "The memory of the encodings in bytes."),
    ];
    vec![
        (
            "ready",
            json!({"type": "boolean"}),
            "Whether the cache has its first list and follows storage.",
        ),
        ("message", text(), "Why the cache is not ready."),
        ("objects", count(), "The number of objects."),
        (
            "objectBytes",
            count(),
            "The size of the objects' JSON in bytes.",
        ),
        (
            "encodings",
            object(
                "The protobuf encodings of objects that the server retains for its clients.",
                &encodings,
            ),
            "The protobuf encodings of objects that the server retains for its clients.",
        ),
        ("resourceVersion", text(), "The version of the state."),
        (
            "storageResourceVersion",
            text(),
            "The revision of storage, which changes of other resources increase too; empty if reading it takes a request, as with etcd.",
        ),
        (
            "watchers",
            count(),
            "The number of open watches, those of controllers in the server included.",
        ),
        (
            "parkedWatchers",
            count(),
            "The number of watches of clients that read too slowly.",
        ),
        (
            "relists",
            count(),
            "How often the cache had to list storage again.",
        ),
        (
            "history",
            object("The retained events.", &history),
            "The retained events.",
        ),
    ]
}

const COLUMNS: &[TableColumn] = &[
    NAME,
    TableColumn::boolean(
        "Ready",
        "Whether the cache has its first list and follows storage.",
    ),
    TableColumn::integer("Objects", "The number of objects."),
    TableColumn::text("Size", "The size of the objects' JSON."),
    TableColumn::integer("Watchers", "The number of open watches."),
    TableColumn::integer(
        "Parked",
        "The number of watches whose clients read too slowly.",
    ),
    TableColumn::integer("Events", "The number of retained events."),
    TableColumn::text("History", "The age of the oldest retained event."),
    TableColumn::text("Version", "The version of the state."),
    AGE,
    TableColumn::wide("History-Size", "The memory of the retained events."),
    TableColumn::wide(
        "Oldest-Version",
        "The oldest version at which a watch can start.",
    ),
    TableColumn::wide(
        "Encodings",
        "The number of objects whose protobuf encoding the server retains.",
    ),
    TableColumn::wide("Encodings-Size", "The memory of these encodings."),
    TableColumn::wide("Relists", "How often the cache had to list storage again."),
    TableColumn::wide("Message", "Why the cache is not ready."),
];

fn cells(cache: &Value, now: Timestamp) -> Vec<Value> {
    let status = &cache["status"];
    let since = time(&status["history"]["since"]);
    vec![
        cell(cache, "/metadata/name"),
        status["ready"].clone(),
        status["objects"].clone(),
        size(cache, "/status/objectBytes"),
        status["watchers"].clone(),
        status["parkedWatchers"].clone(),
        status["history"]["events"].clone(),
        match since {
            Some(_) => age(since, now).into(),
            None => "".into(),
        },
        cell(cache, "/status/resourceVersion"),
        age(time(&cache["metadata"]["creationTimestamp"]), now).into(),
        size(cache, "/status/history/bytes"),
        cell(cache, "/status/history/oldestResourceVersion"),
        status["encodings"]["objects"].to_string().into(),
        size(cache, "/status/encodings/bytes"),
        status["relists"].to_string().into(),
        cell(cache, "/status/message"),
    ]
}

/// Shows the watch caches.
#[derive(Debug)]
struct Caches(Clock);

impl LiveObjects for Caches {
    fn objects(&self, registry: &Registry) -> BTreeMap<String, Value> {
        let parked = parked_watches(registry);
        // Showing the caches of these objects would change them.
        let caches = registry.started_caches().into_iter();
        let caches = caches.filter(|cache| cache.resource.group != GROUP);
        let shown = caches.map(|cache| {
            let name = cache.resource.qualified();
            let parked = parked.get(&name).copied().unwrap_or_default();
            let encodings = encodings(registry, &cache.resource);
            let shown = self.cache(&cache, parked, encodings);
            (name, shown)
        });
        shown.collect()
    }
}

/// Returns the number of parked watches of each resource that has any.
fn parked_watches(registry: &Registry) -> HashMap<String, usize> {
    let mut parked = HashMap::new();
    for watch in registry.open_watches().all() {
        let phase = watch.status().phase;
        if matches!(phase, WatchPhase::Parked | WatchPhase::Expired) {
            let resource = &watch.origin().resource;
            *parked.entry(resource.qualified()).or_default() += 1;
        }
    }
    parked
}

/// Returns the memory of the encodings of the objects of a resource.
fn encodings(registry: &Registry, resource: &Resource) -> EncodingsSize {
    let api_version = resource.api_version();
    registry
        .encodings()
        .size_of_kind(&api_version, &resource.kind)
}

impl Caches {
    fn cache(&self, cache: &StartedCache, parked: usize, encodings: EncodingsSize) -> Value {
        let (resource, status) = (&cache.resource, &cache.status);
        let size = status.size.unwrap_or(CacheSize {
            objects: 0,
            objects_bytes: 0,
            watchers: 0,
        });
        let history = &status.history;
        let storage_at = status.storage_at.map(|at| at.to_string());
        let mut shown = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "WatchCache",
            "metadata": {
                "name": resource.qualified(),
                "uid": cache.uid.to_string(),
                "creationTimestamp": rfc3339(cache.since),
            },
            "spec": {
                "group": resource.group,
                "version": resource.version,
                "resource": resource.plural,
            },
            "status": {
                "ready": status.readiness.is_ok(),
                "objects": size.objects,
                "objectBytes": size.objects_bytes,
                "encodings": {"objects": encodings.objects, "bytes": encodings.bytes},
                "resourceVersion": status.at.to_string(),
                "storageResourceVersion": storage_at.unwrap_or_default(),
                "watchers": size.watchers,
                "parkedWatchers": parked,
                "relists": status.relists,
                "history": {
                    "events": history.events,
                    "bytes": history.bytes,
                    "oldestResourceVersion": history.reaches_back_to.to_string(),
                },
            },
        });
        if let Err(why) = &status.readiness {
            shown["status"]["message"] = why.as_str().into();
        }
        if let Some(since) = history.since {
            shown["status"]["history"]["since"] = self.0.date(since).into();
        }
        shown
    }
}

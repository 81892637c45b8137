//! The resource `watchers`: one object for each open watch.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::{Clock, rfc3339};
use crate::resource::{Definition, cell, count, object, resource as live_resource, schema, size};
use crate::resource::{GROUP, VERSION, text, time as date};
use crate::storage::{LiveObjects, LiveStorage};
use watchet_cacher::WatchLag;
use watchet_registry::age::{age, time};
use watchet_registry::table_columns::{AGE, NAME};
use watchet_registry::{Registry, Resource, TableColumn, WatchRecord};

/// Returns the resource and the storage of its objects.
pub(crate) fn resource() -> (Arc<Resource>, Arc<LiveStorage>) {
    let definition = Definition {
        kind: "Watcher",
        plural: "watchers",
        singular: "watcher",
        short_name: "wr",
        verbs: &["delete", "get", "list", "watch"],
        selectable: &[
            "spec.user",
            "spec.group",
            "spec.resource",
            "spec.namespace",
            "status.phase",
        ],
        schema: schema(
            "Watcher is an open watch of a client. Deleting it ends the watch.",
            &spec_members(),
            &status_members(),
        ),
        columns: COLUMNS,
        cells,
    };
    live_resource(definition, Watchers(Clock::new()))
}

fn spec_members() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("user", text(), "The name of the authenticated user."),
        ("userAgent", text(), "The header User-Agent of the request."),
        (
            "address",
            text(),
            "The address of the client, or of the last proxy.",
        ),
        (
            "group",
            text(),
            "The group of the watched resource; empty for core.",
        ),
        ("version", text(), "The version of the watched resource."),
        (
            "resource",
            text(),
            "The plural name of the watched resource.",
        ),
        ("namespace", text(), "The watched namespace; empty for all."),
        (
            "labelSelector",
            text(),
            "The label selector of the request.",
        ),
        (
            "fieldSelector",
            text(),
            "The field selector of the request.",
        ),
        (
            "encoding",
            text(),
            "The encoding of the events: json or protobuf.",
        ),
        (
            "form",
            text(),
            "What the events contain: Object, Metadata or Table.",
        ),
    ]
}

fn status_members() -> Vec<(&'static str, Value, &'static str)> {
    let lag = [
        (
            "events",
            count(),
            "The number of events that the client has yet to read. Unless the phase is Live, events that the selectors exclude count too.",
        ),
        (
            "bytes",
            count(),
            "The memory of these events in bytes; an estimate unless the phase is Live.",
        ),
        (
            "since",
            date(),
            "When the oldest of these events happened; absent if there are none.",
        ),
    ];
    vec![
        (
            "phase",
            text(),
            "Initial: the server sends the initial state. CatchingUp: it sends events of the history. Live: it sends each event when it happens. Parked: the client reads too slowly, and the watch continues from the event history when the client reads again. Expired: the event history no longer has the position of the watch, so that the client will receive a 410.",
        ),
        (
            "resourceVersion",
            text(),
            "The version up to which events were passed to the connection.",
        ),
        (
            "sentEvents",
            count(),
            "The number of events that were passed to the connection, bookmarks included.",
        ),
        (
            "sentBytes",
            count(),
            "The bytes of these events, before compression.",
        ),
        (
            "lag",
            object("How far the client is behind.", &lag),
            "How far the client is behind.",
        ),
    ]
}

const COLUMNS: &[TableColumn] = &[
    NAME,
    TableColumn::text("User", "The authenticated user."),
    TableColumn::text("Resource", "The watched resource."),
    TableColumn::text("Namespace", "The watched namespace."),
    TableColumn::text(
        "Phase",
        "Whether the client reads each event when it happens.",
    ),
    TableColumn::integer(
        "Lag",
        "The number of events that the client has yet to read.",
    ),
    TableColumn::text("Behind", "The time since the oldest of these events."),
    TableColumn::integer("Sent", "The number of events that were sent."),
    AGE,
    TableColumn::wide("Size", "The bytes that were sent."),
    TableColumn::wide("Version", "The version up to which events were sent."),
    TableColumn::wide("Selector", "The label and field selectors."),
    TableColumn::wide("Encoding", "The encoding and the form of the events."),
    TableColumn::wide("Address", "The address of the client."),
    TableColumn::wide("User-Agent", "The User-Agent of the client."),
];

fn cells(watcher: &Value, now: Timestamp) -> Vec<Value> {
    let spec = |member: &str| watcher["spec"][member].as_str().unwrap_or_default();
    let or = |text: &str, other: &str| Value::from(if text.is_empty() { other } else { text });
    let resource = qualified(spec("resource"), spec("group"));
    let selectors = [spec("labelSelector"), spec("fieldSelector")];
    let selectors: Vec<&str> = selectors.into_iter().filter(|s| !s.is_empty()).collect();
    let since = time(&watcher["status"]["lag"]["since"]);
    vec![
        cell(watcher, "/metadata/name"),
        cell(watcher, "/spec/user"),
        resource.into(),
        or(spec("namespace"), "<all>"),
        cell(watcher, "/status/phase"),
        watcher["status"]["lag"]["events"].clone(),
        match since {
            Some(_) => age(since, now).into(),
            None => "".into(),
        },
        watcher["status"]["sentEvents"].clone(),
        age(time(&watcher["metadata"]["creationTimestamp"]), now).into(),
        size(watcher, "/status/sentBytes"),
        cell(watcher, "/status/resourceVersion"),
        or(&selectors.join(" "), "<none>"),
        format!("{}/{}", spec("encoding"), spec("form")).into(),
        cell(watcher, "/spec/address"),
        cell(watcher, "/spec/userAgent"),
    ]
}

/// Returns the name of a resource with its group: `deployments.apps`.
pub(crate) fn qualified(plural: &str, group: &str) -> String {
    match group.is_empty() {
        true => plural.to_owned(),
        false => format!("{plural}.{group}"),
    }
}

/// Shows the open watches.
#[derive(Debug)]
struct Watchers(Clock);

impl LiveObjects for Watchers {
    fn objects(&self, registry: &Registry) -> BTreeMap<String, Value> {
        let open = registry.open_watches();
        let watchers = open.all().into_iter().map(|watch| {
            let uid = open.uid(&watch).to_string();
            (watch.name(), self.watcher(&watch, &uid))
        });
        watchers.collect()
    }

    fn deleted(&self, registry: &Registry, name: &str) {
        // The watch reports its end itself. It may have ended by itself meanwhile.
        registry.open_watches().end(name);
    }
}

impl Watchers {
    fn watcher(&self, watch: &WatchRecord, uid: &str) -> Value {
        let (origin, status) = (watch.origin(), watch.status());
        let resource = &origin.resource;
        let address = origin.address.map(|address| address.to_string());
        let mut watcher = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "Watcher",
            "metadata": {
                "name": watch.name(),
                "uid": uid,
                "creationTimestamp": rfc3339(watch.started()),
            },
            "spec": {
                "user": origin.user.name,
                "userAgent": origin.user_agent,
                "address": address.unwrap_or_default(),
                "group": resource.group,
                "version": resource.version,
                "resource": resource.plural,
                "namespace": origin.namespace.as_deref().unwrap_or_default(),
                "labelSelector": origin.label_selector,
                "fieldSelector": origin.field_selector,
                "encoding": origin.encoding,
                "form": origin.form,
            },
            "status": {"phase": status.phase.as_str()},
        });
        // Omitted for watches of these objects: each change of these fields would cause another event.
        if resource.group != GROUP {
            let shown = &mut watcher["status"];
            shown["resourceVersion"] = status.position.to_string().into();
            shown["sentEvents"] = watch.sent_frames().into();
            shown["sentBytes"] = watch.sent_bytes().into();
            shown["lag"] = self.lag(&status.lag);
        }
        watcher
    }

    fn lag(&self, lag: &WatchLag) -> Value {
        let mut shown = json!({"events": lag.events, "bytes": lag.bytes});
        if let Some(since) = lag.since {
            shown["since"] = self.0.date(since).into();
        }
        shown
    }
}

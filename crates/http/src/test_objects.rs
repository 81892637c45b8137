//! Objects and resources for the tests of this module.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use watchet_api::{ColumnSet, EventType, Object, ObjectKey, ResourceVersion, WatchEvent};
use watchet_registry::{Plain, Resource, Strategy, TableColumn};

use crate::request::accept::Form;
use crate::response::render::Renderer;

/// Returns the resource of core pods.
pub(crate) fn pods() -> Arc<Resource> {
    Arc::new(Resource {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        plural: "pods".to_owned(),
        singular: "pod".to_owned(),
        short_names: vec![],
        categories: vec![],
        namespaced: true,
        subresources: vec![],
        verbs: vec![],
        storage_prefix: "pods".to_owned(),
        columns: Arc::default(),
        triggers: vec![],
        strategy: Arc::new(Plain),
    })
}

static COLUMNS: [TableColumn; 1] = [TableColumn {
    name: Cow::Borrowed("Name"),
    r#type: Cow::Borrowed("string"),
    format: Cow::Borrowed("name"),
    description: Cow::Borrowed("The name of the object."),
    priority: 0,
}];

/// The strategy of objects whose Table has one column, the name.
#[derive(Debug)]
struct NameColumn;

impl Strategy for NameColumn {
    fn table_columns(&self) -> &[TableColumn] {
        &COLUMNS
    }

    fn table_cells(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        vec![object["metadata"]["name"].clone()]
    }
}

/// Returns the resource of config maps, whose Table has one column.
pub(crate) fn config_maps() -> Arc<Resource> {
    Arc::new(Resource {
        kind: "ConfigMap".to_owned(),
        plural: "configmaps".to_owned(),
        singular: "configmap".to_owned(),
        strategy: Arc::new(NameColumn),
        ..(*pods()).clone()
    })
}

/// Returns the renderer of pods in a form.
pub(crate) fn pods_as(form: Form) -> Renderer {
    Renderer::unconverted(pods(), form)
}

/// Returns an object with this name, version and padding.
pub(crate) fn object(name: &str, at: u64, event_type: EventType, padding: usize) -> Arc<Object> {
    let stored = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}"}},"data":{{"x":"{}"}}}}"#,
        "p".repeat(padding)
    );
    let object = Object::decode(
        ObjectKey::new(Some("ns"), name),
        ResourceVersion::new(at),
        event_type,
        stored.as_bytes(),
        &ColumnSet::default(),
    );
    Arc::new(object.unwrap())
}

/// Returns an event about such an object.
pub(crate) fn event(name: &str, at: u64, event_type: EventType, padding: usize) -> Arc<WatchEvent> {
    let object = object(name, at, event_type, padding);
    Arc::new(WatchEvent::new(event_type, object))
}

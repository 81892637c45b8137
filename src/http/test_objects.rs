//! Objects and resources for the tests of this module.

use std::sync::Arc;

use crate::api::{ColumnSet, EventType, Object, ObjectKey, ResourceVersion, WatchEvent};
use crate::builtin::tests::builtin_strategy;
use crate::registry::Resource;

use crate::http::request::accept::Form;
use crate::http::response::render::Renderer;

/// Returns the resource of core pods, without columns.
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
        strategy: builtin_strategy("pods"),
    })
}

/// Returns the resource of config maps, whose Table has three columns that depend only on the
/// object's age.
pub(crate) fn config_maps() -> Arc<Resource> {
    Arc::new(Resource {
        kind: "ConfigMap".to_owned(),
        plural: "configmaps".to_owned(),
        singular: "configmap".to_owned(),
        strategy: builtin_strategy("configmaps"),
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

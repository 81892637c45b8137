//! JSON of objects for tests.

use serde_json::{Value, json};
use watchet_api::Object;

/// Returns an object as JSON, as a client receives it.
pub fn value(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap()
}

/// Returns an object that has only a name.
pub fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Returns a valid pod with one container.
pub fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "i"}]}})
}

/// Returns a valid deployment whose pods have the label `app` with its name.
pub fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod(name)["spec"]},
    }})
}

/// Returns a CustomResourceDefinition of `plural` in `example.com`, in the versions `v1` (stored) and `v1alpha1`.
pub fn definition(plural: &str, kind: &str) -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"spec": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true, "properties": {
                        "color": {"type": "string"}, "size": {"type": "integer"},
                    }}},
            }},
            "subresources": {"status": {}},
            "selectableFields": [{"jsonPath": ".spec.color"}],
        })
    };
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version("v1", true), version("v1alpha1", false)],
        },
    })
}

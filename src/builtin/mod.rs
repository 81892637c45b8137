//! The rules of the built-in types: defaults, the fields that the server sets, and validation. Values are JSON; the
//! functions of this file do not read storage. The rules that all objects share are in `metadata`.
//!
//! # Invariants
//!
//! 1. Defaulting is idempotent: a second pass does not change the object, so that writing an object back unchanged
//!    stores nothing.
//! 2. Nothing here panics on a value of the wrong type: it counts as absent.

pub(crate) mod autoscalers;
pub(crate) mod component_statuses;
mod defaults;
pub(crate) mod dependencies;
pub(crate) mod events;
mod kubernetes_service;
mod prepare;
mod printers;
pub(crate) mod quotas;
mod registry;
mod service_account_tokens;
mod strategies;
pub(crate) mod subresources;
pub(crate) mod table;
mod validation;
pub(crate) mod webhook_endpoints;

#[cfg(test)]
pub(crate) mod tests;

pub use kubernetes_service::KubernetesService;
pub(crate) use prepare::service_class;
pub use registry::{RegistryConfig, new_registry, new_registry_with_config};
pub use service_account_tokens::{TokenObjects, start_token_tracking};

use serde_json::Value;

use crate::registry::Resource;

/// Sets the defaults of an object of a built-in resource, as upstream's decoding does: on each write, and again after
/// mutating admission.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        prepare::drop_nulls(fields, opaque(resource));
        defaults::fill(resource, fields);
    }
}

/// Returns the members whose content is opaque data of clients.
fn opaque(resource: &Resource) -> &'static [&'static str] {
    match (&*resource.group, &*resource.plural) {
        ("", "configmaps" | "secrets") => &["metadata", "data", "stringData", "binaryData"],
        ("apps", "controllerrevisions") => &["metadata", "data"],
        ("apiextensions.k8s.io", _) | ("resource.k8s.io", _) => &["metadata", "spec"],
        _ => &["metadata"],
    }
}

/// Sets the fields of a new object that the server controls, after its metadata are set. `has_status`: whether the
/// resource has a status subresource.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value, has_status: bool) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    if has_status {
        prepare::status(resource, fields);
    }
    prepare::spec(resource, fields);
}

//! What the built-in types are beyond their names: the defaults that a client may leave out, what the
//! server sets, and what it refuses. Values come as JSON; nothing here reads storage, and the rules that
//! all objects share are in `metadata`.
//!
//! # Invariants
//!
//! 1. Defaults are idempotent: an object that came from here is not changed by going through again, so
//!    that a write of what was read writes nothing.
//! 2. Nothing here panics on a value of the wrong type: it counts as one that is not given.

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

/// Fills in what a client left out of an object of a built-in resource, as decoding does upstream: on
/// each write, and again on what admission made of it.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        prepare::drop_nulls(fields, opaque(resource));
        defaults::fill(resource, fields);
    }
}

/// Returns the members that contain data of clients, or data that only clients read.
fn opaque(resource: &Resource) -> &'static [&'static str] {
    match (&*resource.group, &*resource.plural) {
        ("", "configmaps" | "secrets") => &["metadata", "data", "stringData", "binaryData"],
        ("apps", "controllerrevisions") => &["metadata", "data"],
        ("apiextensions.k8s.io", _) | ("resource.k8s.io", _) => &["metadata", "spec"],
        _ => &["metadata"],
    }
}

/// What a new object gets from the server, which knows its identity by now. `has_status`: its resource
/// has a status of its own.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value, has_status: bool) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    if has_status {
        prepare::status(resource, fields);
    }
    prepare::spec(resource, fields);
}

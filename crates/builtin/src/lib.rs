//! The built-in resources of a Kubernetes API server: which there are, their defaults and validation, the fields that the
//! server sets, subresources, and the columns of Tables. [`new_registry`] makes the registry of a server from them and from
//! the custom resources.
//!
//! # Example
//!
//! A registry over memory storage creates a pod and sets the defaults of its fields.
//!
//! ```
//! use std::time::Duration;
//!
//! use serde_json::{Value, json};
//! use watchet_api::WriteOptions;
//! use watchet_builtin::new_registry;
//! use watchet_metrics::Metrics;
//! use watchet_registry::CacherConfig;
//! use watchet_storage::memory::Memory;
//! use watchet_tasks::Tasks;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tasks = Tasks::new();
//! let storage = Memory::new(Duration::from_secs(300))?;
//! let registry = new_registry(storage, &tasks, CacherConfig::default(), Metrics::new());
//! registry.bootstrap().await?;
//!
//! let pods = registry.resource("", "v1", "pods").expect("a built-in resource");
//! let web = json!({
//!     "metadata": {"name": "web"},
//!     "spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]},
//! });
//! let created = registry.create(&pods, Some("default"), web, &WriteOptions::default()).await?;
//! let created: Value = serde_json::from_slice(created.body_slice())?;
//! assert_eq!(created["spec"]["restartPolicy"], "Always");
//! assert_eq!(created["status"]["phase"], "Pending");
//! # tasks.drain(Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! 1. Defaulting is idempotent: a second pass does not change the object, so that writing an object back unchanged
//!    stores nothing.
//! 2. Defaulting and validation do not panic on a value of the wrong type: it counts as absent. They do not read storage.

mod autoscalers;
mod component_statuses;
mod defaults;
mod dependencies;
mod events;
mod kubernetes_service;
mod prepare;
mod printers;
pub mod quotas;
mod registry;
mod service_account_tokens;
mod strategies;
mod subresources;
mod table;
mod validation;
mod webhook_endpoints;

#[cfg(test)]
mod tests;

pub use kubernetes_service::KubernetesService;
pub(crate) use prepare::service_class;
pub use registry::{RegistryConfig, new_registry, new_registry_with_config};
pub use service_account_tokens::{TokenObjects, start_token_tracking};

use serde_json::Value;

use watchet_registry::Resource;

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

//! The admission chain: in-process plugins, policies in CEL and webhooks, which can change or deny a write before it is
//! stored. The caller builds the [`AdmissionRequest`](request::AdmissionRequest), provides the configurations, and implements [`Cluster`](cluster::Cluster).
//! The crate does not read storage.
//!
//! # Example
//!
//! A policy is checked when it is written: its expressions must compile. The chain of plugins says which requests it can change.
//!
//! ```
//! use serde_json::json;
//! use watchet_admission::request::{Operation, Request};
//! use watchet_admission::{AdmissionChain, ConfigurationKind, EnabledPlugins, problems};
//!
//! let policy = |expression: &str| {
//!     json!({
//!         "apiVersion": "admissionregistration.k8s.io/v1",
//!         "kind": "ValidatingAdmissionPolicy",
//!         "metadata": {"name": "few-replicas"},
//!         "spec": {
//!             "matchConstraints": {"resourceRules": [{
//!                 "apiGroups": ["apps"], "apiVersions": ["v1"],
//!                 "operations": ["CREATE", "UPDATE"], "resources": ["deployments"],
//!             }]},
//!             "validations": [{"expression": expression}],
//!         },
//!     })
//! };
//! let kind = ConfigurationKind::Policy;
//! assert_eq!(problems(kind, &policy("object.spec.replicas <= 5")), []);
//! let found = problems(kind, &policy("object.spec.replicas <="));
//! assert_eq!(found[0].field, "spec.validations[0].expression");
//!
//! let plugins = EnabledPlugins::default().without("NamespaceLifecycle");
//! let chain = AdmissionChain::new(&plugins, &Default::default());
//! let create_pod = Request {
//!     operation: Operation::Create,
//!     group: "",
//!     resource: "pods",
//!     subresource: "",
//! };
//! assert!(chain.mutates(create_pod));
//! assert!(!chain.mutates(Request { resource: "configmaps", ..create_pod }));
//! ```

mod check;
pub mod client;
pub mod cluster;
mod dynamic_admission;
mod error;
mod expressions;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod matching;
pub mod plugins;
mod policy;
mod reinvocation;
pub mod request;
mod rules;
mod selector;
mod webhook;

#[cfg(test)]
mod testing;

pub use check::{client_problems, problems, types};
pub use dynamic_admission::{ConfigurationKind, DynamicAdmission, Mutators};
pub use error::AdmissionError;
pub use plugins::{AdmissionChain, EnabledPlugins, InvalidConfiguration, PluginConfigurations};
pub use plugins::{QuotaUsage, ResourceList, parse_resources};

//! The in-process admission plugins, in upstream's order, and the chain that runs them.
//!
//! The write pipeline calls the chain twice, before and after policies and webhooks:
//!
//! ```text
//! mutation:   plugins ─▶ MutatingAdmissionPolicy ─▶ MutatingAdmissionWebhook
//! validation: plugins ─▶ ValidatingAdmissionPolicy ─▶ ValidatingAdmissionWebhook ─▶ ResourceQuota
//! ```
//!
//! If a policy or a webhook changes the object, mutation runs a second time: all plugins, and of the policies and
//! webhooks those whose reinvocation policy is `IfNeeded`.
//!
//! Plugins get objects in the stored form. A plugin decides by operation and resource whether it handles a
//! request, so the `AdmissionRequest` of a request that no plugin handles is never built.

mod certificates;
mod chain;
mod claim_resize;
mod config;
mod configuration;
mod default_classes;
mod limit_ranger;
mod namespace_lifecycle;
mod node_restriction;
mod node_taint;
mod object;
mod owner_references;
mod plugin;
mod pod_resize;
mod pod_security;
mod priority;
mod resource_quota;
mod resources;
mod role_escalation;
mod runtime_class;
mod service_account;
mod storage_protection;
#[cfg(test)]
pub(crate) mod testing;
mod toleration_seconds;
mod topology_labels;

pub use super::request::Request;
pub use chain::{AdmissionChain, Step};
pub use config::{EnabledPlugins, InvalidPlugins};
pub use configuration::{InvalidConfiguration, PluginConfigurations};
pub use plugin::AdmissionPlugin;
pub use resource_quota::QuotaUsage;
pub use resources::{ResourceList, parse as parse_resources};
pub use storage_protection::protection_finalizer;

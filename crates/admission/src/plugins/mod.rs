//! The in-process admission plugins, in upstream's order, and the chain that runs them.
//!
//! The write pipeline calls the chain twice, around the webhooks and policies of the gate:
//!
//! ```text
//! mutation:   plugins ─▶ MutatingAdmissionPolicy ─▶ MutatingAdmissionWebhook
//! validation: plugins ─▶ ValidatingAdmissionPolicy ─▶ ValidatingAdmissionWebhook ─▶ ResourceQuota
//! ```
//!
//! If a policy or a webhook changes the object, mutation runs a second time: all plugins, and of the policies and
//! webhooks those whose reinvocation policy is `IfNeeded`.
//!
//! A plugin sees objects in the stored form. It says which requests it handles by their operation and
//! resource alone, so the attributes of a request that no plugin handles are never built.

mod certificates;
mod claim_resize;
mod config;
mod configuration;
mod default_classes;
mod limit_ranger;
mod namespace_lifecycle;
mod node_taint;
mod owner_references;
mod pod_resize;
mod pod_security;
mod priority;
mod resource_quota;
mod resources;
mod runtime_class;
mod service_account;
mod storage_protection;
#[cfg(test)]
pub(crate) mod testing;
mod toleration_seconds;
mod topology_labels;

use std::fmt;

use async_trait::async_trait;

pub use config::{EnabledPlugins, InvalidPlugins};
pub use configuration::{InvalidConfiguration, PluginConfigurations};
pub use resource_quota::QuotaUsage;
pub use resources::{ResourceList, parse as parse_resources};
use serde_json::Value;
pub use storage_protection::protection_finalizer;

use super::cluster::Cluster;
use super::error::AdmissionError;
use super::request::{AdmissionRequest, Operation};

/// What a plugin decides by whether it handles a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// What the request does.
    pub operation: Operation,
    /// The API group of the resource; empty for the core group.
    pub group: &'a str,
    /// The plural name of the resource.
    pub resource: &'a str,
    /// Empty for the resource itself.
    pub subresource: &'a str,
}

impl Request<'_> {
    /// Returns true if the request is for objects of this resource, and not for a subresource.
    pub fn is_of(&self, group: &str, resource: &str) -> bool {
        self.is_of_subresource(group, resource, "")
    }

    /// Returns true if the request is for this subresource.
    pub fn is_of_subresource(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.group == group && self.resource == resource && self.subresource == subresource
    }

    /// Returns true if the request creates an object of this resource.
    pub fn creates(&self, group: &str, resource: &str) -> bool {
        self.operation == Operation::Create && self.is_of(group, resource)
    }

    /// Returns true if the request updates an object of this resource.
    pub fn updates(&self, group: &str, resource: &str) -> bool {
        self.operation == Operation::Update && self.is_of(group, resource)
    }
}

/// An in-process admission plugin.
#[async_trait]
pub trait AdmissionPlugin: Send + Sync + fmt::Debug {
    /// Returns upstream's name of the plugin.
    fn name(&self) -> &'static str;

    /// Returns true if [`mutate`](Self::mutate) has to be called for such a request.
    fn mutates(&self, _request: Request<'_>) -> bool {
        false
    }

    /// Returns true if [`validate`](Self::validate) has to be called for such a request.
    fn validates(&self, _request: Request<'_>) -> bool {
        false
    }

    /// Changes the object of a request, or refuses the request.
    ///
    /// # Errors
    /// The plugin refuses the request, or cannot read what it needs.
    async fn mutate(
        &self,
        _cluster: &dyn Cluster,
        _attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        Ok(())
    }

    /// Refuses a request whose object must not be stored. The object is complete and valid.
    ///
    /// # Errors
    /// The plugin refuses the request, or cannot read what it needs.
    async fn validate(
        &self,
        _cluster: &dyn Cluster,
        _attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        Ok(())
    }
}

/// A step of validation, relative to the policies and webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Before ValidatingAdmissionPolicy.
    BeforeWebhooks,
    /// After ValidatingAdmissionWebhook.
    AfterWebhooks,
}

/// The enabled plugins, in upstream's order.
#[derive(Debug)]
pub struct AdmissionChain {
    plugins: Vec<Box<dyn AdmissionPlugin>>,
    /// Those that validate after the webhooks.
    last: Vec<Box<dyn AdmissionPlugin>>,
}

impl AdmissionChain {
    /// Builds the chain of the plugins that are `enabled`, as `configurations` configure them.
    pub fn new(enabled: &EnabledPlugins, configurations: &PluginConfigurations) -> Self {
        let only_enabled = |mut plugins: Vec<Box<dyn AdmissionPlugin>>| {
            plugins.retain(|plugin| enabled.has(plugin.name()));
            plugins
        };
        Self {
            plugins: only_enabled(vec![
                Box::new(namespace_lifecycle::NamespaceLifecycle),
                Box::new(limit_ranger::LimitRanger),
                Box::new(service_account::ServiceAccount),
                Box::new(node_taint::TaintNodesByCondition),
                Box::new(pod_security::PodSecurity::new(
                    configurations.pod_security.clone(),
                )),
                Box::new(priority::Priority),
                Box::new(toleration_seconds::DefaultTolerationSeconds),
                Box::new(default_classes::STORAGE),
                Box::new(storage_protection::StorageObjectInUseProtection),
                Box::new(owner_references::OwnerReferencesPermissionEnforcement),
                Box::new(claim_resize::PersistentVolumeClaimResize),
                Box::new(runtime_class::RuntimeClass),
                Box::new(certificates::CertificateApproval),
                Box::new(certificates::CertificateSigning),
                Box::new(certificates::CertificateSubjectRestriction),
                Box::new(default_classes::INGRESS),
                Box::new(topology_labels::PodTopologyLabels),
                Box::new(pod_resize::PodResizeValidator),
            ]),
            last: only_enabled(vec![Box::new(resource_quota::ResourceQuota::new(
                configurations.limited_resources.clone(),
            ))]),
        }
    }

    /// Returns true if a plugin mutates such requests.
    pub fn mutates(&self, request: Request<'_>) -> bool {
        let mut plugins = self.plugins.iter();
        plugins.any(|plugin| plugin.mutates(request))
    }

    /// Returns true if a plugin validates such requests in `step`.
    pub fn validates(&self, request: Request<'_>, step: Step) -> bool {
        let mut plugins = self.of_step(step).iter();
        plugins.any(|plugin| plugin.validates(request))
    }

    /// Lets every plugin that handles the request change its object.
    ///
    /// # Errors
    /// Those of the first plugin that fails.
    pub async fn mutate(
        &self,
        cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        for plugin in &self.plugins {
            if plugin.mutates(attributes.request()) {
                plugin.mutate(cluster, attributes).await?;
            }
        }
        Ok(())
    }

    /// Lets every plugin of `step` that handles the request validate it.
    ///
    /// # Errors
    /// Those of the first plugin that fails.
    pub async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
        step: Step,
    ) -> Result<(), AdmissionError> {
        for plugin in self.of_step(step) {
            if plugin.validates(attributes.request()) {
                plugin.validate(cluster, attributes).await?;
            }
        }
        Ok(())
    }

    fn of_step(&self, step: Step) -> &[Box<dyn AdmissionPlugin>] {
        match step {
            Step::BeforeWebhooks => &self.plugins,
            Step::AfterWebhooks => &self.last,
        }
    }
}

/// The name of an object; empty before it is generated.
fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

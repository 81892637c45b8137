//! The chain of the enabled plugins, in upstream's order.

use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Request};
use super::config::EnabledPlugins;
use super::configuration::PluginConfigurations;
use super::plugin::AdmissionPlugin;
use super::{
    certificates, claim_resize, default_classes, limit_ranger, namespace_lifecycle,
    node_restriction, node_taint, owner_references, pod_resize, pod_security, priority,
    resource_quota, role_escalation, runtime_class, service_account, storage_protection,
    toleration_seconds, topology_labels,
};

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
    /// The plugins that validate after the webhooks.
    last: Vec<Box<dyn AdmissionPlugin>>,
}

impl AdmissionChain {
    /// Builds the chain of the plugins that are `enabled`, with their `configurations`.
    pub fn new(enabled: &EnabledPlugins, configurations: &PluginConfigurations) -> Self {
        let only_enabled = |mut plugins: Vec<Box<dyn AdmissionPlugin>>| {
            plugins.retain(|plugin| enabled.has(plugin.name()));
            plugins
        };
        let mut plugins: Vec<Box<dyn AdmissionPlugin>> =
            vec![Box::new(role_escalation::RoleEscalation)];
        plugins.extend(only_enabled(vec![
            Box::new(namespace_lifecycle::NamespaceLifecycle),
            Box::new(limit_ranger::LimitRanger),
            Box::new(service_account::ServiceAccount),
            Box::new(node_restriction::NodeRestriction),
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
        ]));
        Self {
            plugins,
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

    /// Calls every plugin that handles the request, and lets it change the object.
    ///
    /// # Errors
    /// The error of the first plugin that fails.
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

    /// Calls every plugin of `step` that handles the request to validate it.
    ///
    /// # Errors
    /// The error of the first plugin that fails.
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

//! PodSecurity: refuses pods that violate the level of the Pod Security Standards that their namespace enforces,
//! and warns about pods and workloads that violate the level that it warns about.
//!
//! See <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.

mod checks;
mod level;
mod namespaces;

use async_trait::async_trait;
use serde_json::Value;

use self::checks::{Pod, details, violations};
use self::level::{Level, LevelVersion, Policy};
use super::super::attributes::{Attributes, Operation};
use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::{AdmissionPlugin, Request};

/// Resources whose objects contain a pod template, and where in them it is.
const TEMPLATES: [(&str, &str, &str); 8] = [
    ("", "podtemplates", "/template"),
    ("", "replicationcontrollers", "/spec/template"),
    ("apps", "daemonsets", "/spec/template"),
    ("apps", "deployments", "/spec/template"),
    ("apps", "replicasets", "/spec/template"),
    ("apps", "statefulsets", "/spec/template"),
    ("batch", "cronjobs", "/spec/jobTemplate/spec/template"),
    ("batch", "jobs", "/spec/template"),
];

/// Subresources of pods through which no container of another kind can come.
const IGNORED_SUBRESOURCES: [&str; 8] = [
    "attach",
    "binding",
    "eviction",
    "exec",
    "log",
    "portforward",
    "proxy",
    "status",
];

/// See the module.
#[derive(Debug)]
pub(super) struct PodSecurity;

fn template(group: &str, resource: &str) -> Option<&'static str> {
    let mut templates = TEMPLATES.iter();
    let found = templates.find(|(g, r, _)| (*g, *r) == (group, resource));
    found.map(|(_, _, pointer)| *pointer)
}

#[async_trait]
impl AdmissionPlugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn validates(&self, request: Request<'_>) -> bool {
        let Request {
            operation,
            group,
            resource,
            subresource,
        } = request;
        if !matches!(operation, Operation::Create | Operation::Update) {
            return false;
        }
        match (group, resource) {
            ("", "pods") => !IGNORED_SUBRESOURCES.contains(&subresource),
            ("", "namespaces") => subresource.is_empty(),
            _ => subresource.is_empty() && template(group, resource).is_some(),
        }
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &Attributes<'_>,
    ) -> Result<(), AdmissionError> {
        let request = attributes.request();
        match (request.group, request.resource) {
            ("", "namespaces") => self.validate_namespace(cluster, attributes).await,
            ("", "pods") => self.validate_pod(cluster, attributes).await,
            (group, resource) => {
                let template = template(group, resource);
                let template = template.and_then(|pointer| attributes.object.pointer(pointer));
                match template {
                    Some(template) => self.validate_template(cluster, attributes, template).await,
                    None => Ok(()),
                }
            }
        }
    }
}

impl PodSecurity {
    async fn validate_pod(
        &self,
        cluster: &dyn Cluster,
        attributes: &Attributes<'_>,
    ) -> Result<(), AdmissionError> {
        let namespace = attributes.namespace;
        let found = cluster.namespace(namespace).await;
        let found = found.ok().flatten().ok_or_else(|| {
            AdmissionError::Internal(format!("failed to lookup namespace {namespace:?}"))
        })?;
        let (policy, _) = Policy::of(&found["metadata"]["labels"]);
        if policy.is_fully_privileged() {
            return Ok(());
        }
        let pod = &*attributes.object;
        let is_update = attributes.operation == Operation::Update;
        if is_update && !is_significant(&attributes.old_object["spec"], &pod["spec"]) {
            return Ok(());
        }
        let pod = pod_of(pod);
        let violated = violations(policy.enforce, pod);
        if !violated.is_empty() {
            let (level, details) = (policy.enforce, details(&violated));
            let why = format!("violates PodSecurity \"{level}\": {details}");
            return Err(attributes.forbidden(why));
        }
        warn(attributes, policy.warn, pod);
        Ok(())
    }

    async fn validate_template(
        &self,
        cluster: &dyn Cluster,
        attributes: &Attributes<'_>,
        template: &Value,
    ) -> Result<(), AdmissionError> {
        // A workload is never refused, so it is not refused for a namespace that cannot be read, either.
        match cluster.namespace(attributes.namespace).await {
            Ok(Some(found)) => {
                let (policy, _) = Policy::of(&found["metadata"]["labels"]);
                warn(attributes, policy.warn, pod_of(template));
            }
            Ok(None) => {}
            Err(error) => {
                let namespace = attributes.namespace;
                tracing::warn!(
                    namespace,
                    error,
                    "cannot read a namespace to check a pod template"
                );
            }
        }
        Ok(())
    }

    async fn validate_namespace(
        &self,
        cluster: &dyn Cluster,
        attributes: &Attributes<'_>,
    ) -> Result<(), AdmissionError> {
        let labels = &attributes.object["metadata"]["labels"];
        let (new, problems) = Policy::of(labels);
        let old_labels = &attributes.old_object["metadata"]["labels"];
        let (old, old_problems) = Policy::of(old_labels);
        // Labels that are wrong already do not keep others from being changed.
        if !problems.is_empty() && problems != old_problems {
            return Err(AdmissionError::Invalid {
                group: String::new(),
                kind: "Namespace".to_owned(),
                name: attributes.name.to_owned(),
                causes: problems,
            });
        }
        let is_stricter =
            new.enforce.level > old.enforce.level || new.enforce.version != old.enforce.version;
        if attributes.operation == Operation::Create
            || new.enforce.level == Level::Privileged
            || !is_stricter
        {
            return Ok(());
        }
        let name = attributes.name;
        for warning in namespaces::warnings(cluster, name, new.enforce).await {
            attributes.warnings.add(warning);
        }
        Ok(())
    }
}

fn pod_of(template: &Value) -> Pod<'_> {
    Pod {
        metadata: &template["metadata"],
        spec: &template["spec"],
    }
}

fn warn(attributes: &Attributes<'_>, level: LevelVersion, pod: Pod<'_>) {
    let violated = violations(level, pod);
    if !violated.is_empty() {
        let details = details(&violated);
        let text = format!("would violate PodSecurity \"{level}\": {details}");
        attributes.warnings.add(text);
    }
}

/// Returns true if an update changes an image or adds a container. Nothing else that can be changed of a pod
/// makes it less secure.
fn is_significant(old: &Value, new: &Value) -> bool {
    let list = |spec: &'_ Value, member: &str| spec[member].as_array().cloned().unwrap_or_default();
    let changed = ["initContainers", "containers"].into_iter().any(|member| {
        let (old, new) = (list(old, member), list(new, member));
        let mut pairs = old.iter().zip(&new);
        old.len() != new.len() || pairs.any(|(old, new)| old["image"] != new["image"])
    });
    let debuggers = list(old, "ephemeralContainers");
    changed
        || list(new, "ephemeralContainers").iter().any(|new| {
            let mut others = debuggers.iter();
            let old = others.find(|old| old["name"] == new["name"]);
            old.is_none_or(|old| old["image"] != new["image"])
        })
}

#[cfg(test)]
mod tests;

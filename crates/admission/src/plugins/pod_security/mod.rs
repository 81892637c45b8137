//! PodSecurity: rejects pods that violate the level of the Pod Security Standards that their namespace enforces, and
//! warns about pods and workloads that violate the namespace's warning level.
//!
//! See <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.

mod checks;
mod configuration;
mod level;
mod namespaces;

use async_trait::async_trait;
use serde_json::Value;

use self::checks::{Pod, details, violations};
pub(super) use self::configuration::PodSecurityConfiguration;
use self::level::{Level, LevelVersion, Policy};
use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::plugin::AdmissionPlugin;
use watchet_api::StatusCause;

/// The resources whose objects contain a pod template, and the JSON pointer to the template.
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

/// The subresources of pods that the plugin ignores: requests to them cannot add or change containers.
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

/// The prefix of the keys of this plugin's audit annotations.
const ANNOTATION_PREFIX: &str = "pod-security.kubernetes.io/";

/// The PodSecurity admission plugin; see the module.
#[derive(Debug, Default)]
pub(super) struct PodSecurity {
    configuration: PodSecurityConfiguration,
}

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
        attributes: &AdmissionRequest<'_>,
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
    /// Creates the plugin with this configuration.
    pub(super) fn new(configuration: PodSecurityConfiguration) -> Self {
        Self { configuration }
    }

    /// Returns the policy of a namespace with the labels of `namespace`, and the problems of these labels.
    fn policy(&self, namespace: &Value) -> (Policy, Vec<StatusCause>) {
        let labels = &namespace["metadata"]["labels"];
        Policy::of(labels, self.configuration.defaults)
    }

    async fn validate_pod(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        if self.is_exempt(attributes) {
            return Ok(());
        }
        let namespace = attributes.namespace;
        let found = cluster.namespace(namespace).await;
        let failed = |_: String| {
            let why = format!("failed to lookup namespace {namespace:?}");
            annotate(attributes, "error", &why);
            AdmissionError::Internal(why)
        };
        let found = found.map_err(|error| error.or_failed(failed))?;
        let found = found.ok_or_else(|| failed(String::new()))?;
        let (policy, problems) = self.policy(&found);
        if problems.is_empty() && policy.is_fully_privileged() {
            let privileged = LevelVersion::PRIVILEGED.to_string();
            annotate(attributes, "enforce-policy", privileged);
            return Ok(());
        }
        let pod = &*attributes.object;
        let is_update = attributes.operation == Operation::Update;
        if is_update && !is_significant(&attributes.old_object["spec"], &pod["spec"]) {
            return Ok(());
        }
        self.evaluate(attributes, policy, &problems, Pod::of(pod), Enforce::Yes)
    }

    async fn validate_template(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
        template: &Value,
    ) -> Result<(), AdmissionError> {
        if self.is_exempt(attributes) {
            return Ok(());
        }
        // The plugin never rejects a workload, not even if its namespace cannot be read.
        let namespace = attributes.namespace;
        let found = match cluster.namespace(namespace).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                let why = format!(
                    "failed to lookup namespace {namespace:?}: namespaces {namespace:?} not found"
                );
                annotate(attributes, "error", why);
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(
                    namespace,
                    %error,
                    "cannot read a namespace to check a pod template"
                );
                let why = format!("failed to lookup namespace {namespace:?}: {error}");
                annotate(attributes, "error", why);
                return Ok(());
            }
        };
        let (policy, problems) = self.policy(&found);
        let levels = [policy.warn.level, policy.audit.level];
        if problems.is_empty() && levels == [Level::Privileged; 2] {
            return Ok(());
        }
        self.evaluate(
            attributes,
            policy,
            &problems,
            Pod::of(template),
            Enforce::No,
        )
    }

    /// Rejects a pod that violates the enforced level of `policy`, records violations of the audit level, and warns
    /// about violations of the warning level.
    fn evaluate(
        &self,
        attributes: &AdmissionRequest<'_>,
        policy: Policy,
        problems: &[StatusCause],
        pod: Pod<'_>,
        enforce: Enforce,
    ) -> Result<(), AdmissionError> {
        if self.configuration.exempts_runtime_class_of(pod.spec) {
            annotate(attributes, "exempt", "runtimeClass");
            return Ok(());
        }
        if !problems.is_empty() {
            let problems = aggregate(problems);
            let why = format!("Failed to parse policy: {problems}");
            annotate(attributes, "error", why);
        }
        let mut refusal = None;
        if enforce == Enforce::Yes {
            let level = policy.enforce;
            annotate(attributes, "enforce-policy", level.to_string());
            let violated = violations(level, pod);
            if !violated.is_empty() {
                let details = details(&violated);
                refusal = Some(format!("violates PodSecurity \"{level}\": {details}"));
            }
        }
        if let Some(violation) = would_violate(policy.audit, pod) {
            annotate(attributes, "audit-violations", violation);
        }
        if let Some(why) = refusal {
            return Err(attributes.forbidden(why));
        }
        if let Some(violation) = would_violate(policy.warn, pod) {
            attributes.warnings.add(violation);
        }
        Ok(())
    }

    /// Returns true if the configuration exempts the namespace or the user of a request.
    fn is_exempt(&self, attributes: &AdmissionRequest<'_>) -> bool {
        let configuration = &self.configuration;
        let reason = if configuration.exempts_namespace(attributes.namespace) {
            "namespace"
        } else if configuration.exempts_user(&attributes.user.name) {
            "user"
        } else {
            return false;
        };
        annotate(attributes, "exempt", reason);
        true
    }

    async fn validate_namespace(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let is_create = attributes.operation == Operation::Create;
        let (new, problems) = self.policy(&attributes.object);
        let (old, old_problems) = self.policy(&attributes.old_object);
        // Labels that are already invalid do not prevent changes of other labels.
        if !problems.is_empty() && (is_create || problems != old_problems) {
            return Err(AdmissionError::Invalid {
                group: String::new(),
                kind: "Namespace".to_owned(),
                name: attributes.name.to_owned(),
                causes: problems,
            });
        }
        let name = attributes.name;
        let is_exempt = self.configuration.exempts_namespace(name);
        let is_stricter =
            new.enforce.level > old.enforce.level || new.enforce.version != old.enforce.version;
        let checks_pods = !is_create && new.enforce.level != Level::Privileged && is_stricter;
        if is_exempt && (is_create || checks_pods) {
            let labels = &attributes.object["metadata"]["labels"];
            let warning =
                namespaces::exempt_warning(name, new, self.configuration.defaults, labels);
            warning
                .into_iter()
                .for_each(|text| attributes.warnings.add(text));
        } else if checks_pods {
            let is_checked =
                |pod: &Value| !self.configuration.exempts_runtime_class_of(&pod["spec"]);
            for warning in namespaces::warnings(cluster, name, new.enforce, is_checked).await {
                attributes.warnings.add(warning);
            }
        }
        Ok(())
    }
}

/// Specifies whether a pod that violates the enforced level is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enforce {
    Yes,
    No,
}

fn annotate(attributes: &AdmissionRequest<'_>, key: &str, value: impl Into<String>) {
    let key = format!("{ANNOTATION_PREFIX}{key}");
    attributes.audit_annotations.add(key, value);
}

/// Formats problems as Go prints a list of errors.
fn aggregate(problems: &[StatusCause]) -> String {
    let texts = problems
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message));
    let texts: Vec<String> = texts.collect();
    match texts.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

/// Returns how a pod violates a level that is not enforced.
fn would_violate(level: LevelVersion, pod: Pod<'_>) -> Option<String> {
    let violated = violations(level, pod);
    (!violated.is_empty()).then(|| {
        let details = details(&violated);
        format!("would violate PodSecurity \"{level}\": {details}")
    })
}

/// Returns true if an update changes an image or adds a container. No other change that the API server accepts makes a
/// pod less secure.
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

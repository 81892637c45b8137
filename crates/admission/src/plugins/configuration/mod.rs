//! The file of `--admission-control-config-file`: an AdmissionConfiguration, which has a configuration for each
//! of some admission plugins, inline or in a file of its own. The file is read once, at start.
//!
//! See <https://kubernetes.io/docs/reference/config-api/apiserver-config.v1/>.

mod document;

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use self::document::{Document, Kind, read};
use super::super::client::WebhookCredentials;
use super::config::EnabledPlugins;
use super::pod_security::PodSecurityConfiguration;
use super::resource_quota::LimitedResources;

const FILE: &[Kind] = &[
    Kind("apiserver.config.k8s.io/v1", "AdmissionConfiguration"),
    Kind("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"),
];
const POD_SECURITY: &[Kind] = &[
    Kind(
        "pod-security.admission.config.k8s.io/v1",
        "PodSecurityConfiguration",
    ),
    Kind(
        "pod-security.admission.config.k8s.io/v1beta1",
        "PodSecurityConfiguration",
    ),
    Kind(
        "pod-security.admission.config.k8s.io/v1alpha1",
        "PodSecurityConfiguration",
    ),
];
const RESOURCE_QUOTA: &[Kind] = &[
    Kind("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
    Kind("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
    Kind("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
];
const WEBHOOKS: &[Kind] = &[
    Kind(
        "apiserver.config.k8s.io/v1",
        "WebhookAdmissionConfiguration",
    ),
    Kind("apiserver.config.k8s.io/v1alpha1", "WebhookAdmission"),
];

/// The configurations of the admission plugins that have one. The default is upstream's without a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PluginConfigurations {
    pub(super) pod_security: PodSecurityConfiguration,
    pub(super) limited_resources: LimitedResources,
    pub(crate) mutating_webhooks: WebhookCredentials,
    pub(crate) validating_webhooks: WebhookCredentials,
}

/// The configuration of admission plugins cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfiguration(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmissionConfiguration {
    plugins: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    path: Option<String>,
    configuration: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookAdmission {
    #[serde(rename = "kubeConfigFile", default)]
    kubeconfig_file: String,
}

impl PluginConfigurations {
    /// Reads the file at `path`, and the files of plugins that it refers to, by paths relative to its directory.
    ///
    /// # Errors
    /// A file cannot be read, is not valid YAML or JSON, or has a member, a kind or a value that is not
    /// supported; or it configures a plugin that this server does not have.
    pub fn load(path: &Path) -> Result<Self, InvalidConfiguration> {
        let text = read(path).map_err(InvalidConfiguration)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, directory).map_err(InvalidConfiguration)
    }

    fn parse(text: &str, directory: &Path) -> Result<Self, String> {
        let file: AdmissionConfiguration = Document::parse(text)?.decode(FILE)?;
        let mut configurations = Self::default();
        let mut names: Vec<String> = Vec::new();
        for (index, entry) in file.plugins.into_iter().flatten().enumerate() {
            let name = entry.name.clone();
            let problem = match names.contains(&name) {
                true => Err("is configured twice: merge the two entries".to_owned()),
                false => configurations.add(entry, directory),
            };
            problem.map_err(|problem| format!("plugins[{index}]: {name:?} {problem}"))?;
            names.push(name);
        }
        Ok(configurations)
    }

    fn add(&mut self, entry: Entry, directory: &Path) -> Result<(), String> {
        if !EnabledPlugins::known().contains(&&*entry.name) {
            let supported = EnabledPlugins::supported().join(", ");
            return Err(format!("is no admission plugin: choose among {supported}"));
        }
        if !EnabledPlugins::is_supported(&entry.name) {
            return Err("is not part of this server: remove the entry".to_owned());
        }
        let path = entry.path.filter(|path| !path.is_empty());
        let document = match (entry.configuration, path) {
            (Some(configuration), _) if !configuration.is_null() => Document::of(configuration),
            (_, Some(path)) => {
                let path = directory.join(path);
                let parsed = read(&path).and_then(|text| {
                    let parsed = Document::parse(&text);
                    parsed.map_err(|problem| format!("{}: {problem}", path.display()))
                });
                parsed.map_err(|problem| format!("names a file that cannot be used: {problem}"))?
            }
            _ => return Ok(()),
        };
        let invalid = |problem: String| format!("has an invalid configuration: {problem}");
        match &*entry.name {
            "PodSecurity" => {
                let written = document.decode(POD_SECURITY).map_err(invalid)?;
                self.pod_security = PodSecurityConfiguration::check(written).map_err(invalid)?;
            }
            "ResourceQuota" => {
                let written = document.decode(RESOURCE_QUOTA).map_err(invalid)?;
                self.limited_resources = LimitedResources::check(written).map_err(invalid)?;
            }
            "MutatingAdmissionWebhook" => {
                self.mutating_webhooks = credentials(document).map_err(invalid)?;
            }
            "ValidatingAdmissionWebhook" => {
                self.validating_webhooks = credentials(document).map_err(invalid)?;
            }
            _ => return Err("has no configuration: remove the entry".to_owned()),
        }
        Ok(())
    }
}

fn credentials(document: Document) -> Result<WebhookCredentials, String> {
    let written: WebhookAdmission = document.decode(WEBHOOKS)?;
    let path = Path::new(&written.kubeconfig_file);
    let invalid = |problem: String| {
        let path = path.display().to_string();
        format!("kubeConfigFile: Invalid value: {path:?}: {problem}")
    };
    if !path.is_absolute() {
        return Err(invalid("must be an absolute file path".to_owned()));
    }
    let text = read(path).map_err(invalid)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    WebhookCredentials::parse(&text, directory).map_err(invalid)
}

#[cfg(test)]
mod tests;

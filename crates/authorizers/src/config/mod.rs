//! `AuthorizationConfiguration` of `apiserver.config.k8s.io`: the authorizers, in the order in which they are consulted.
//! Unknown fields are errors, as upstream. The versions have the same fields.

#[cfg(test)]
mod tests;
mod validation;

use std::str::FromStr;

use serde::{Deserialize, Deserializer};

pub use validation::{ValidAuthorizer, ValidConfiguration, ValidWebhook};

const KIND: &str = "AuthorizationConfiguration";
const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];

/// The error of an invalid configuration. The message names the fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfiguration(pub(crate) String);

/// A type of authorizer, with the name that kube-apiserver has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuthorizerType {
    /// Every authenticated user may do everything.
    AlwaysAllow,
    /// No request is allowed.
    AlwaysDeny,
    /// Nodes may read what their pods need, and their own objects.
    Node,
    /// Roles and bindings decide.
    Rbac,
    /// A webhook decides.
    Webhook,
}

impl AuthorizerType {
    pub(crate) const ALL: [Self; 5] = [
        Self::AlwaysAllow,
        Self::AlwaysDeny,
        Self::Node,
        Self::Rbac,
        Self::Webhook,
    ];

    /// Returns the type with kube-apiserver's name `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Returns kube-apiserver's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Node => "Node",
            Self::Rbac => "RBAC",
            Self::Webhook => "Webhook",
        }
    }

    /// Returns the name of an authorizer of this type; webhooks have names of their own.
    pub fn authorizer_name(self) -> String {
        self.name().to_lowercase()
    }
}

/// The configuration of authorization.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthorizationConfiguration {
    /// One of the versions of `apiserver.config.k8s.io`; not validated.
    #[serde(default)]
    pub api_version: String,
    /// Not validated.
    #[serde(default)]
    pub kind: String,
    /// The authorizers, in the order in which they are consulted.
    #[serde(default, deserialize_with = "or_default")]
    pub authorizers: Vec<AuthorizerConfiguration>,
}

/// An authorizer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthorizerConfiguration {
    /// `Webhook`, `RBAC`, `Node`, `AlwaysAllow` or `AlwaysDeny`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub authorizer_type: String,
    /// The name, for metrics: the type in lower case, or a DNS subdomain for a webhook.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The webhook; only and always present with type `Webhook`.
    pub webhook: Option<WebhookConfiguration>,
}

/// A webhook. Durations have the format of Go, such as `1m30s`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct WebhookConfiguration {
    /// The time for which a response that allows a request is cached; empty for five minutes.
    #[serde(rename = "authorizedTTL", deserialize_with = "or_default")]
    pub authorized_ttl: String,
    /// Whether such responses are cached; the default is true.
    pub cache_authorized_requests: Option<bool>,
    /// The time for which any other response is cached; empty for 30 seconds.
    #[serde(rename = "unauthorizedTTL", deserialize_with = "or_default")]
    pub unauthorized_ttl: String,
    /// Whether such responses are cached; the default is true.
    pub cache_unauthorized_requests: Option<bool>,
    /// The time limit of a request, at most 30 seconds.
    #[serde(deserialize_with = "or_default")]
    pub timeout: String,
    /// `v1` or `v1beta1`
    #[serde(deserialize_with = "or_default")]
    pub subject_access_review_version: String,
    /// `v1`; may be empty without match conditions.
    #[serde(deserialize_with = "or_default")]
    pub match_condition_subject_access_review_version: String,
    /// `NoOpinion` or `Deny`
    #[serde(deserialize_with = "or_default")]
    pub failure_policy: String,
    /// The kubeconfig with the address of the webhook.
    #[serde(deserialize_with = "or_default")]
    pub connection_info: ConnectionInfo,
    /// Conditions that a request must meet; the webhook is not called for other requests.
    #[serde(deserialize_with = "or_default")]
    pub match_conditions: Vec<MatchCondition>,
}

/// The source of the address and the credentials of a webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ConnectionInfo {
    /// `KubeConfigFile`
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub connection_type: String,
    /// The absolute path of a kubeconfig with the URL, the CA and the credentials of the webhook.
    pub kube_config_file: Option<String>,
}

/// A condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MatchCondition {
    /// An expression in CEL that returns a bool; `request` is the `spec` of a `SubjectAccessReview`.
    #[serde(deserialize_with = "or_default")]
    pub expression: String,
}

/// Reads `null` as the default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    value: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl FromStr for AuthorizationConfiguration {
    type Err = InvalidConfiguration;

    /// Reads YAML or JSON. The fields are not validated.
    fn from_str(text: &str) -> Result<Self, InvalidConfiguration> {
        let options = serde_saphyr::options! { with_snippet: false };
        let config: Self = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| InvalidConfiguration(format!("is no {KIND}: {error}")))?;
        if config.kind != KIND || !VERSIONS.contains(&&*config.api_version) {
            return Err(InvalidConfiguration(format!(
                "has the kind {:?} of {:?}: write kind {KIND} and apiVersion {}",
                config.kind, config.api_version, VERSIONS[0]
            )));
        }
        Ok(config)
    }
}

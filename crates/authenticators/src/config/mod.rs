//! `AuthenticationConfiguration` of `apiserver.config.k8s.io`: the issuers of JSON Web Tokens, the mapping from claims
//! to users, and the requests that may be anonymous. Unknown fields are errors, as upstream. All versions have the same
//! fields.

#[cfg(test)]
mod tests;
mod validation;

use std::str::FromStr;

use serde::{Deserialize, Deserializer};

pub use validation::ValidConfiguration;
pub(crate) use validation::ValidJwt;

const KIND: &str = "AuthenticationConfiguration";
const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];

/// The error of an invalid configuration. The message names the fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfiguration(pub(crate) String);

/// The configuration of authentication.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthenticationConfiguration {
    /// One of the versions of `apiserver.config.k8s.io`; not validated.
    #[serde(default)]
    pub api_version: String,
    /// Not validated.
    #[serde(default)]
    pub kind: String,
    /// The issuers of tokens.
    #[serde(default, deserialize_with = "or_default")]
    pub jwt: Vec<JwtConfiguration>,
    /// The requests that may be anonymous; `None` if the field is absent.
    #[serde(default)]
    pub anonymous: Option<Anonymous>,
}

/// The requests that may be anonymous.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anonymous {
    /// Whether requests may be anonymous.
    #[serde(default)]
    pub enabled: bool,
    /// The paths whose requests may be anonymous; empty for all paths.
    #[serde(default, deserialize_with = "or_default")]
    pub conditions: Vec<AnonymousCondition>,
}

/// A path whose requests may be anonymous.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnonymousCondition {
    /// The exact path.
    #[serde(default)]
    pub path: String,
}

/// An issuer, and the mapping from the claims of its tokens to users.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JwtConfiguration {
    /// The issuer.
    #[serde(default, deserialize_with = "or_default")]
    pub issuer: Issuer,
    /// Rules that the claims must satisfy.
    #[serde(default, deserialize_with = "or_default")]
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    /// The mapping from claims to the user.
    #[serde(default, deserialize_with = "or_default")]
    pub claim_mappings: ClaimMappings,
    /// Rules that the user must satisfy.
    #[serde(default, deserialize_with = "or_default")]
    pub user_validation_rules: Vec<UserValidationRule>,
}

/// An issuer of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Issuer {
    /// The value of the claim `iss`.
    #[serde(deserialize_with = "or_default")]
    pub url: String,
    /// The URL of the discovery document; empty for the path `.well-known/openid-configuration` below `url`.
    #[serde(rename = "discoveryURL", deserialize_with = "or_default")]
    pub discovery_url: String,
    /// The CA certificates of the issuer in PEM; empty for those that the system trusts.
    #[serde(deserialize_with = "or_default")]
    pub certificate_authority: String,
    /// The accepted audiences; a token must have one of them.
    #[serde(deserialize_with = "or_default")]
    pub audiences: Vec<String>,
    /// `MatchAny`; may be empty for a single audience.
    #[serde(deserialize_with = "or_default")]
    pub audience_match_policy: String,
    /// Not supported.
    #[serde(deserialize_with = "or_default")]
    pub egress_selector_type: String,
}

/// A rule that claims must satisfy: either `claim` and `required_value`, or `expression` and `message`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClaimValidationRule {
    /// The name of a claim.
    pub claim: String,
    /// The value of the claim, which is a string.
    pub required_value: String,
    /// An expression in CEL that must be true; `claims` are the claims.
    pub expression: String,
    /// The error if it is not.
    pub message: String,
}

/// The mapping from claims to a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimMappings {
    /// The name.
    #[serde(deserialize_with = "or_default")]
    pub username: PrefixedClaimOrExpression,
    /// The groups.
    #[serde(deserialize_with = "or_default")]
    pub groups: PrefixedClaimOrExpression,
    /// The unique ID.
    #[serde(deserialize_with = "or_default")]
    pub uid: ClaimOrExpression,
    /// Further attributes.
    #[serde(deserialize_with = "or_default")]
    pub extra: Vec<ExtraMapping>,
}

/// Either `claim` and `prefix`, or `expression`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrefixedClaimOrExpression {
    /// The name of a claim.
    pub claim: String,
    /// The prefix of the value of the claim.
    pub prefix: Option<String>,
    /// An expression in CEL; `claims` are the claims.
    pub expression: String,
}

/// Either `claim` or `expression`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimOrExpression {
    /// The name of a claim.
    pub claim: String,
    /// An expression in CEL; `claims` are the claims.
    pub expression: String,
}

/// An attribute of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ExtraMapping {
    /// The key: a domain with a path, in lower case.
    pub key: String,
    /// An expression in CEL for the values; `claims` are the claims.
    pub value_expression: String,
}

/// A rule that the user must satisfy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserValidationRule {
    /// An expression in CEL that must be true; `user` is the user.
    pub expression: String,
    /// The error if it is not.
    pub message: String,
}

/// Reads `null` as the default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    value: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl FromStr for AuthenticationConfiguration {
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

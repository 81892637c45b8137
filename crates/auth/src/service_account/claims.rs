//! The claims of service account tokens.

use serde::{Deserialize, Serialize};

/// The claims of a token, named as in JSON Web Tokens (RFC 7519).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The audiences.
    pub aud: Vec<String>,
    /// The end of the validity in Unix seconds.
    pub exp: i64,
    /// The time of issue in Unix seconds.
    pub iat: i64,
    /// The issuer.
    pub iss: String,
    /// The unique ID of the token.
    #[serde(default)]
    pub jti: String,
    /// The service account and the objects that the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaims,
    /// The start of the validity in Unix seconds.
    pub nbf: i64,
    /// The user name.
    pub sub: String,
}

/// The private claim `kubernetes.io`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KubernetesClaims {
    /// The namespace of the service account, of the pod and of the secret.
    pub namespace: String,
    /// The node of the pod; without a pod, the node that the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// The pod that the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// The secret that the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// The service account.
    pub serviceaccount: Reference,
    /// The Unix second after which a use of the token is reported; only of tokens with extended validity, see
    /// [`TokenLifetime`](super::TokenLifetime).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// A reference to one object; another object of the same name has another uid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reference {
    /// The name.
    pub name: String,
    /// Empty if it is unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// Returns the user name of a service account.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Returns the groups of the service accounts of a namespace.
pub fn group_names(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ]
}

/// Splits the user name of a service account into namespace and name.
pub(crate) fn split_user_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

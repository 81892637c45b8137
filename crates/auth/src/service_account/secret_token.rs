//! Tokens without expiry that are stored in Secrets of type `kubernetes.io/service-account-token`: the token
//! controller of kube-controller-manager signs them. A token is valid as long as its Secret contains it.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::claims::{KubernetesClaims, Reference, user_name};
use crate::object_reader::{Freshness, ObjectReadError, ObjectReader};
use crate::token_error::InvalidToken;
use watchet_api::Object;

/// The issuer that upstream's token controller writes into these tokens, independent of the server's.
pub(super) const ISSUER: &str = "kubernetes/serviceaccount";

/// The label by which upstream's cleaner invalidates a token before it deletes the Secret.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// The claims of such a token.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    sub: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    account: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    account_uid: String,
}

impl Claims {
    /// Returns the claims in the form of a bound token, or `None` if the subject is another account.
    pub(super) fn into_bound(self) -> Option<KubernetesClaims> {
        let required = [&self.secret, &self.account, &self.account_uid];
        if required.iter().any(|text| text.is_empty())
            || self.sub != user_name(&self.namespace, &self.account)
        {
            return None;
        }
        Some(KubernetesClaims {
            namespace: self.namespace,
            node: None,
            pod: None,
            secret: Some(Reference {
                name: self.secret,
                uid: String::new(),
            }),
            serviceaccount: Reference {
                name: self.account,
                uid: self.account_uid,
            },
            warnafter: None,
        })
    }
}

/// The text of a token that must be stored in its Secret. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct SecretToken(pub(super) String);

impl fmt::Debug for SecretToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretToken")
    }
}

/// Checks that the Secret exists and has the token, and records this use.
///
/// # Errors
/// [`InvalidToken::Invalidated`] or [`InvalidToken::Unverified`]
pub(super) async fn check(
    objects: &dyn ObjectReader,
    namespace: &str,
    name: &str,
    token: &SecretToken,
) -> Result<(), InvalidToken> {
    // Storage is read before a token is rejected: the cache may be behind.
    let mut last = Err(InvalidToken::invalidated());
    for freshness in [Freshness::Any, Freshness::Latest] {
        let secret = objects
            .read("secrets", Some(namespace), name, freshness)
            .await;
        last = match secret {
            Ok(secret) => check_secret(&secret, token).map(|()| secret),
            Err(ObjectReadError::NotFound(_)) => Err(InvalidToken::invalidated()),
            Err(ObjectReadError::Failed(error)) => Err(InvalidToken::Unverified(error)),
        };
        if last.is_ok() {
            break;
        }
    }
    objects.record_token_use(&*last?).await;
    Ok(())
}

/// Checks that the Secret makes the token valid.
fn check_secret(object: &Object, token: &SecretToken) -> Result<(), InvalidToken> {
    let secret: Value = serde_json::from_slice(object.body_slice())
        .map_err(|error| InvalidToken::Invalidated(error.to_string()))?;
    let metadata = &secret["metadata"];
    if !metadata["deletionTimestamp"].is_null() {
        return Err(InvalidToken::invalidated());
    }
    if secret["data"]["token"] != BASE64_STANDARD.encode(&token.0) {
        let message = "Token does not match server's copy".to_owned();
        return Err(InvalidToken::Invalidated(message));
    }
    let since = metadata["labels"][INVALID_SINCE].as_str();
    if since.is_some_and(|since| !since.is_empty()) {
        return Err(InvalidToken::Invalidated(format!(
            "the token in secret {} has been marked invalid by its label {INVALID_SINCE}",
            object.key()
        )));
    }
    Ok(())
}

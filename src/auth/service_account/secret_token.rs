//! Tokens without expiry that are stored in Secrets of type `kubernetes.io/service-account-token`: the token
//! controller of kube-controller-manager signs them. One is valid as long as its Secret holds it.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use serde::Deserialize;
use serde_json::{Value, json};

use super::issuer::{Kubernetes, Reference};
use super::{INVALIDATED, InvalidToken, user_name};
use crate::api::{GetOptions, ResourceVersion, WriteOptions};
use crate::registry::{ApiError, Patch, Registry, Target, create};

/// The issuer that upstream's token controller writes into these tokens, whatever the server's own is.
pub(super) const ISSUER: &str = "kubernetes/serviceaccount";

/// The label with the day on which a Secret's token was last used.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The label by which upstream's cleaner invalidates a token before it deletes the Secret.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The ConfigMap in kube-system with the day since which [`LAST_USED`] is written. Upstream's cleaner reads it.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
const TRACKING_NAMESPACE: &str = "kube-system";

/// What such a token contains.
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
    pub(super) fn into_bound(self) -> Option<Kubernetes> {
        let required = [&self.secret, &self.account, &self.account_uid];
        if required.iter().any(|text| text.is_empty())
            || self.sub != user_name(&self.namespace, &self.account)
        {
            return None;
        }
        Some(Kubernetes {
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
        })
    }
}

/// The text of a token that its Secret must hold. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SecretToken(pub(super) String);

impl fmt::Debug for SecretToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretToken")
    }
}

/// Requires that the Secret exists and holds the token, and labels it with the day of this use.
///
/// # Errors
/// [`InvalidToken::Invalidated`]
pub(super) async fn require(
    registry: &Registry,
    namespace: &str,
    name: &str,
    token: &SecretToken,
) -> Result<(), InvalidToken> {
    let target = target(registry, "secrets", namespace, name);
    let cached = GetOptions {
        resource_version: Some(ResourceVersion::ZERO),
    };
    // Storage is asked before a token is refused: the cache may be behind.
    let mut checked = check(registry, &target, cached, token).await;
    if checked.is_err() {
        checked = check(registry, &target, GetOptions::default(), token).await;
    }
    let secret = checked.map_err(InvalidToken::Invalidated)?;
    record_use(registry, &target, &secret).await;
    Ok(())
}

/// Returns the Secret if it makes the token valid, else the reason why not.
async fn check(
    registry: &Registry,
    target: &Target,
    options: GetOptions,
    token: &SecretToken,
) -> Result<Value, String> {
    let invalidated = |_| INVALIDATED.to_owned();
    let secret = registry.get(target, options).await.map_err(invalidated)?;
    let secret: Value =
        serde_json::from_slice(secret.body_slice()).map_err(|error| error.to_string())?;
    let metadata = &secret["metadata"];
    if !metadata["deletionTimestamp"].is_null() {
        return Err(INVALIDATED.to_owned());
    }
    if secret["data"]["token"] != BASE64_STANDARD.encode(&token.0) {
        return Err("Token does not match server's copy".to_owned());
    }
    let since = metadata["labels"][INVALID_SINCE].as_str();
    if since.is_some_and(|since| !since.is_empty()) {
        return Err(format!(
            "the token in secret {}/{} has been marked invalid by its label {INVALID_SINCE}",
            target.namespace.as_deref().unwrap_or_default(),
            target.name
        ));
    }
    Ok(secret)
}

/// Labels the Secret with today's date. A use at midnight leaves the label of a server whose clock is ahead.
async fn record_use(registry: &Registry, target: &Target, secret: &Value) {
    let now = Timestamp::now();
    let today = day(now);
    let tomorrow = now.checked_add(24.hours()).map(day).unwrap_or_default();
    let metadata = &secret["metadata"];
    let label = &metadata["labels"][LAST_USED];
    if *label == today || *label == tomorrow {
        return;
    }
    let patch = json!({"metadata": {"uid": metadata["uid"], "labels": {LAST_USED: today}}});
    let options = WriteOptions::default();
    if let Err(error) = registry.patch(target, &Patch::Merge(patch), &options).await {
        tracing::warn!(%error, secret = %target.name, "cannot label a secret with the last use of its token");
    }
}

/// Creates the ConfigMap that says since when uses are recorded, unless it exists.
pub(in crate::registry) async fn start_tracking(registry: &Registry) {
    if let Err(error) = try_to_start_tracking(registry).await {
        tracing::warn!(%error, name = TRACKING, "cannot create the config map of token tracking");
    }
}

async fn try_to_start_tracking(registry: &Registry) -> Result<(), ApiError> {
    let target = target(registry, "configmaps", TRACKING_NAMESPACE, TRACKING);
    match registry.get(&target, GetOptions::default()).await {
        Err(error) if error.is_not_found() => {}
        found => return found.map(drop),
    }
    let body = json!({
        "metadata": {"name": TRACKING, "namespace": TRACKING_NAMESPACE},
        "data": {"since": day(Timestamp::now())},
    });
    let namespace = Some(TRACKING_NAMESPACE);
    let options = WriteOptions::default();
    match create::create(registry, &target.resource, namespace, body, &options).await {
        // Another server was faster.
        Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The date of a time in UTC, as upstream's cleaner parses it.
fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d").to_string()
}

fn target(registry: &Registry, plural: &str, namespace: &str, name: &str) -> Target {
    let resource = registry.resource("", "v1", plural);
    Target {
        resource: resource.expect("the table has secrets and config maps"),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
        subresource: None,
    }
}

#[cfg(test)]
#[path = "secret_tokens/tests.rs"]
mod tests;

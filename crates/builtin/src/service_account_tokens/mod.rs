//! Gives authentication access to the objects that service account tokens refer to, and records the use of
//! tokens that are stored in Secrets.

use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use serde_json::{Value, json};

use watchet_api::{GetOptions, Object, ResourceVersion, WriteOptions};
use watchet_auth::{Freshness, ObjectReadError, ObjectReader};
use watchet_registry::{ApiError, Patch, Registry, Target};

/// The label with the day on which a Secret's token was last used.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The ConfigMap in kube-system with the day since which [`LAST_USED`] is written. Upstream's cleaner reads it.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
const TRACKING_NAMESPACE: &str = "kube-system";

/// Reads the objects that service account tokens refer to from a registry.
#[derive(Debug, Clone, Copy)]
pub struct TokenObjects<R>(pub R);

#[async_trait]
impl<R: Deref<Target = Registry> + Send + Sync> ObjectReader for TokenObjects<R> {
    async fn read(
        &self,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
        freshness: Freshness,
    ) -> Result<Arc<Object>, ObjectReadError> {
        let target = target(&self.0, resource, namespace, name);
        let resource_version = match freshness {
            Freshness::Any => Some(ResourceVersion::ZERO),
            Freshness::Latest => None,
        };
        let object = self.0.get(&target, GetOptions { resource_version }).await;
        object.map_err(|error| match error.is_not_found() {
            true => ObjectReadError::NotFound(error.to_string()),
            false => ObjectReadError::Failed(error.to_string()),
        })
    }

    /// Labels the Secret with today's date. Tomorrow's date, from a server whose clock is ahead, is not changed.
    async fn record_token_use(&self, secret: &Object) {
        let key = secret.key();
        let (namespace, name) = (Some(key.namespace()), key.name());
        let secret: Value = match serde_json::from_slice(secret.body_slice()) {
            Ok(secret) => secret,
            Err(error) => return warn_of_unrecorded_use(&error, name),
        };
        let now = Timestamp::now();
        let today = day(now);
        let tomorrow = now.checked_add(24.hours()).map(day).unwrap_or_default();
        let metadata = &secret["metadata"];
        let label = &metadata["labels"][LAST_USED];
        if *label == today || *label == tomorrow {
            return;
        }
        let patch = json!({"metadata": {"uid": metadata["uid"], "labels": {LAST_USED: today}}});
        let target = target(&self.0, "secrets", namespace, name);
        let options = WriteOptions::of_server();
        if let Err(error) = self.0.patch(&target, &Patch::Merge(patch), &options).await {
            warn_of_unrecorded_use(&error, name);
        }
    }
}

fn warn_of_unrecorded_use(error: &dyn std::fmt::Display, secret: &str) {
    tracing::warn!(%error, secret, "cannot label a secret with the last use of its token");
}

/// Creates the ConfigMap with the day since which uses are recorded, unless it exists.
pub async fn start_token_tracking(registry: &Registry) {
    if let Err(error) = try_to_start_tracking(registry).await {
        tracing::warn!(%error, name = TRACKING, "cannot create the config map of token tracking");
    }
}

async fn try_to_start_tracking(registry: &Registry) -> Result<(), ApiError> {
    let namespace = Some(TRACKING_NAMESPACE);
    let target = target(registry, "configmaps", namespace, TRACKING);
    match registry.get(&target, GetOptions::default()).await {
        Err(error) if error.is_not_found() => {}
        found => return found.map(drop),
    }
    let body = json!({
        "metadata": {"name": TRACKING, "namespace": TRACKING_NAMESPACE},
        "data": {"since": day(Timestamp::now())},
    });
    let options = WriteOptions::of_server();
    let created = registry.create(&target.resource, namespace, body, &options);
    match created.await {
        // Another server has created it concurrently.
        Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Formats a time as a date in UTC, as upstream's cleaner parses it.
fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d").to_string()
}

fn target(registry: &Registry, plural: &str, namespace: Option<&str>, name: &str) -> Target {
    let resource = registry.resource("", "v1", plural);
    Target {
        resource: resource.expect("the resource table has the resources that tokens refer to"),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        subresource: None,
    }
}

#[cfg(test)]
mod secret_tests;
#[cfg(test)]
mod tests;

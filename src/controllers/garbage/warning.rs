//! What is told of an owner that cannot be: an event about the dependent, as upstream's. It decides
//! nothing.

use serde_json::json;

use super::metadata::{Metadata, OwnerReference};
use super::{ACCOUNT, GarbageCollector};
use crate::controllers::frame;
use crate::registry::{ApiError, Target};

/// Upstream's name of whoever tells it.
const COMPONENT: &str = "garbage-collector-controller";

const REASON: &str = "OwnerRefInvalidNamespace";

impl GarbageCollector {
    /// Tells that a cluster-scoped object names an owner that lives in a namespace. Once: the event's
    /// name says about whom it is.
    pub(super) async fn warn_misplaced(
        &self,
        target: &Target,
        metadata: &Metadata<'_>,
        owner: &OwnerReference<'_>,
    ) {
        let OwnerReference {
            api_version,
            kind,
            name: owner_name,
            uid,
            ..
        } = owner;
        let message = format!(
            "ownerRef [{api_version}/{kind}, namespace: , name: {owner_name}, uid: {uid}] does not exist in \
             namespace {:?}",
            target.namespace.as_deref().unwrap_or_default()
        );
        let (name, resource) = (&target.name, &target.resource);
        tracing::warn!(name, resource = resource.qualified(), message, "left alone");
        let now = jiff::Timestamp::now();
        let seconds = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now);
        let short = uid.get(..8).unwrap_or("owner");
        let event = json!({
            "metadata": {"name": format!("{name}.{short}"), "namespace": "default"},
            "involvedObject": {
                "apiVersion": resource.api_version(),
                "kind": resource.kind,
                "name": name,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "type": "Warning",
            "reason": REASON,
            "message": message,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": seconds.to_string(),
            "lastTimestamp": seconds.to_string(),
            "count": 1,
        });
        let Some(events) = self.registry.resource("", "v1", "events") else {
            return;
        };
        let options = frame::write_options(ACCOUNT);
        let told = self
            .registry
            .create(&events, Some("default"), event, &options)
            .await;
        match told {
            Ok(_) | Err(ApiError::AlreadyExists { .. }) => {}
            Err(error) => tracing::debug!(%error, name, "cannot record an event"),
        }
    }
}

//! The event about an owner reference that is not possible, as upstream's.

use serde_json::json;

use crate::framework;
use crate::garbage::collector::{ACCOUNT, GarbageCollector};
use crate::garbage::metadata::{Metadata, OwnerReference};
use watchet_registry::{ApiError, Target};

/// The name of the reporting component, as upstream.
const COMPONENT: &str = "garbage-collector-controller";

const REASON: &str = "OwnerRefInvalidNamespace";

impl GarbageCollector {
    /// Creates an event: a cluster-scoped object references a namespaced owner. It is created once,
    /// because its name is derived from the object.
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
        tracing::warn!(
            name,
            resource = resource.qualified(),
            message,
            "garbage collection skipped"
        );
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
        let options = framework::write_options(ACCOUNT);
        let created = self
            .registry
            .create(&events, Some("default"), event, &options)
            .await;
        match created {
            Ok(_) | Err(ApiError::AlreadyExists { .. }) => {}
            Err(error) => tracing::debug!(%error, name, "cannot create an event"),
        }
    }
}

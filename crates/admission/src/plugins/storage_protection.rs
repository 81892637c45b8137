//! StorageObjectInUseProtection: adds the finalizer that delays the deletion of claims, volumes and attributes classes
//! while they are in use. The controllers in `controllers` remove it.

use async_trait::async_trait;
use serde_json::json;

use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::plugin::AdmissionPlugin;

/// Returns the finalizer that protects objects of a resource.
pub fn protection_finalizer(group: &str, plural: &str) -> Option<&'static str> {
    match (group, plural) {
        ("", "persistentvolumeclaims") => Some("kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => Some("kubernetes.io/pv-protection"),
        ("storage.k8s.io", "volumeattributesclasses") => Some("kubernetes.io/vac-protection"),
        _ => None,
    }
}

/// The StorageObjectInUseProtection admission plugin; see the module.
#[derive(Debug)]
pub(super) struct StorageObjectInUseProtection;

#[async_trait]
impl AdmissionPlugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        request.operation == Operation::Create
            && request.subresource.is_empty()
            && protection_finalizer(request.group, request.resource).is_some()
    }

    async fn mutate(
        &self,
        _cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let resource = &attributes.resource;
        let Some(ours) = protection_finalizer(&resource.group, &resource.resource) else {
            return Ok(());
        };
        let finalizers = &mut attributes.object.to_mut()["metadata"]["finalizers"];
        match finalizers.as_array_mut() {
            Some(list) if list.iter().any(|finalizer| finalizer == ours) => {}
            Some(list) => list.push(ours.into()),
            None => *finalizers = json!([ours]),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::testing::FakeCluster;
    use super::*;

    async fn check(plural: &str, finalizers: Value, expected: Value) {
        check_of(("", plural), finalizers, expected).await;
    }

    async fn check_of(resource: (&str, &str), finalizers: Value, expected: Value) {
        let object = json!({"metadata": {"name": "x", "finalizers": finalizers}});
        let cluster = FakeCluster::default();
        let created = cluster.create_of(&StorageObjectInUseProtection, resource, object);
        let created = created.await.unwrap();
        assert_eq!(created["metadata"]["finalizers"], expected);
    }

    #[tokio::test]
    async fn objects_that_may_be_in_use_get_a_finalizer_once() {
        let (claim, volume) = (
            "kubernetes.io/pvc-protection",
            "kubernetes.io/pv-protection",
        );
        check("persistentvolumeclaims", Value::Null, json!([claim])).await;
        check("persistentvolumeclaims", json!([claim]), json!([claim])).await;
        check("persistentvolumes", json!(["a"]), json!(["a", volume])).await;
        let class = json!(["kubernetes.io/vac-protection"]);
        let classes = ("storage.k8s.io", "volumeattributesclasses");
        check_of(classes, Value::Null, class).await;
        check("configmaps", Value::Null, Value::Null).await;
    }
}

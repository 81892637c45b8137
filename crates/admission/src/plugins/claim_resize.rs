//! PersistentVolumeClaimResize: only a bound claim whose StorageClass allows expansion can request more storage.

use async_trait::async_trait;
use serde_json::Value;

use super::super::cluster::{Cluster, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Request};
use super::plugin::AdmissionPlugin;
use watchet_schema::Quantity;

const CLASSES: GroupResource<'static> = GroupResource::new("storage.k8s.io", "storageclasses");

/// The PersistentVolumeClaimResize admission plugin; see the module.
#[derive(Debug)]
pub(super) struct PersistentVolumeClaimResize;

#[async_trait]
impl AdmissionPlugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn validates(&self, request: Request<'_>) -> bool {
        request.updates("", "persistentvolumeclaims")
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let (old, new) = (&attributes.old_object, &attributes.object);
        if size(new) <= size(old) {
            return Ok(());
        }
        if old["status"]["phase"] != "Bound" {
            let why = "Only bound persistent volume claims can be expanded";
            return Err(attributes.forbidden(why));
        }
        let name = class(new);
        if !name.is_empty() && name == class(old) {
            let found = cluster.object_or_latest(CLASSES, "", name).await?;
            let allows = |class: Value| class["allowVolumeExpansion"] == true;
            if found.is_some_and(allows) {
                return Ok(());
            }
        }
        Err(attributes.forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc \
             must support resize",
        ))
    }
}

fn size(claim: &Value) -> Option<Quantity> {
    Quantity::read(&claim["spec"]["resources"]["requests"]["storage"])
}

/// Returns the name of the StorageClass. The annotation, which is older than the field, has precedence.
fn class(claim: &Value) -> &str {
    let annotations = &claim["metadata"]["annotations"];
    let named = annotations["volume.beta.kubernetes.io/storage-class"].as_str();
    let named = named.or_else(|| claim["spec"]["storageClassName"].as_str());
    named.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::request::Operation;
    use super::super::testing::{FakeCluster, attributes, refusal};
    use super::*;

    fn claim(class: &str, size: &str, phase: &str) -> Value {
        json!({
            "metadata": {"name": "c", "namespace": "n"},
            "spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}},
            "status": {"phase": phase},
        })
    }

    async fn check(old: Value, new: Value, expected: Option<&str>) {
        let mut cluster = FakeCluster::default();
        let grows = json!({"metadata": {"name": "grows"}, "allowVolumeExpansion": true});
        cluster.add("storage.k8s.io", "storageclasses", grows);
        let fixed = json!({"metadata": {"name": "fixed"}});
        cluster.add("storage.k8s.io", "storageclasses", fixed);
        let resource = ("", "persistentvolumeclaims");
        let update = attributes(Operation::Update, resource, &new, &old);
        let result = cluster.validate(&PersistentVolumeClaimResize, update).await;
        match expected {
            None => result.unwrap(),
            Some(why) => assert_eq!(
                refusal(result),
                format!("persistentvolumeclaims \"c\" is forbidden: {why}")
            ),
        }
    }

    #[tokio::test]
    async fn claims_grow_where_their_class_allows_it() {
        let bound = |class, size| claim(class, size, "Bound");
        let same = claim("fixed", "1Gi", "Pending");
        check(same, claim("fixed", "1024Mi", "Pending"), None).await;
        check(bound("grows", "1Gi"), bound("grows", "2Gi"), None).await;
        let why = "Only bound persistent volume claims can be expanded";
        let pending = claim("grows", "1Gi", "Pending");
        check(pending, bound("grows", "2Gi"), Some(why)).await;
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions \
                   the pvc must support resize";
        for class in ["fixed", "", "gone"] {
            check(bound(class, "1Gi"), bound(class, "2Gi"), Some(why)).await;
        }
    }
}

//! Pods of a node: it creates and deletes mirror pods, and writes the status of and evicts those that are bound to it.

use serde_json::Value;

use super::super::super::cluster::GroupResource;
use super::super::super::error::AdmissionError;
use super::super::super::request::Operation;
use super::super::object::{list, name_of};
use super::of_node::{OfNode, changed_keys};
use watchet_auth::node::kinds_referenced_by_pod;

/// The annotation of a mirror pod.
const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// The types of volumes that refer to objects of the API, and to what.
const VOLUMES_WITH_REFERENCES: &[(&str, &str)] = &[
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    (
        "ephemeral",
        "persistentvolumeclaims (via ephemeral volumes)",
    ),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// The types of volumes that refer to no object of the API.
const VOLUMES_WITHOUT_REFERENCES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// The sources of projected volumes that refer to objects of the API, and to what.
const SOURCES_WITH_REFERENCES: &[(&str, &str)] = &[
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    (
        "serviceAccountToken",
        "serviceaccounts (via projected volumes)",
    ),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

impl OfNode<'_> {
    pub(super) async fn is_own_pod(&self, why: &str) -> Result<(), AdmissionError> {
        let name = match self.request.name {
            "" => name_of(&self.request.object),
            name => name,
        };
        let pod = self.stored_pod(name).await?;
        match pod["spec"]["nodeName"] == self.node {
            true => Ok(()),
            false => self.refuse(why),
        }
    }

    pub(super) async fn pod(&self) -> Result<(), AdmissionError> {
        let node = self.node;
        match self.request.operation {
            Operation::Create => self.new_pod().await,
            Operation::Delete => {
                let why =
                    format!("node {node:?} can only delete pods with spec.nodeName set to itself");
                match self.request.old_object["spec"]["nodeName"] == node {
                    true => Ok(()),
                    false => self.refuse(why),
                }
            }
            operation => self.refuse(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                operation.as_str()
            )),
        }
    }

    /// A node may create mirror pods, which it owns, and which refer to nothing: the node could read what they refer to.
    async fn new_pod(&self) -> Result<(), AdmissionError> {
        let (node, pod) = (self.node, &self.request.object);
        if pod["metadata"]["annotations"].get(MIRROR_POD).is_none() {
            return self.refuse(format!(
                "pod does not have {MIRROR_POD:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if pod["spec"]["nodeName"] != node {
            return self.refuse(format!(
                "node {node:?} can only create pods with spec.nodeName set to itself"
            ));
        }
        self.owner(list(&pod["metadata"]["ownerReferences"]))
            .await?;
        match api_reference(pod) {
            Ok(None) => Ok(()),
            Ok(Some(resource)) => self.refuse(format!(
                "node {node:?} can not create pods that reference {resource}"
            )),
            Err(why) => self.refuse(format!(
                "error checking mirror pod for API references: {why}"
            )),
        }
    }

    async fn owner(&self, owners: &[Value]) -> Result<(), AdmissionError> {
        const NODES: GroupResource<'static> = GroupResource::new("", "nodes");
        let node = self.node;
        let can_only = |what: &str| {
            self.refuse(format!(
                "node {node:?} can only create pods with {what} owner reference set to itself"
            ))
        };
        let owner = match owners {
            [owner] => owner,
            [] => return can_only("an"),
            _ => return can_only("a single"),
        };
        if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
            return can_only("an");
        }
        if owner["controller"] != true {
            return can_only("a controller");
        }
        if owner["blockOwnerDeletion"] == true {
            return self.refuse(format!(
                "node {node:?} must not set blockOwnerDeletion on an owner reference"
            ));
        }
        let found = self.cluster.object_or_latest(NODES, "", node).await?;
        let Some(found) = found else {
            return Err(AdmissionError::NotFound {
                resource: "nodes",
                name: node.to_owned(),
            });
        };
        let uid = |uid: &Value| uid.as_str().unwrap_or_default().to_owned();
        let (given, actual) = (uid(&owner["uid"]), uid(&found["metadata"]["uid"]));
        match given == actual {
            true => Ok(()),
            false => self.refuse(format!(
                "node {node} UID mismatch: expected {given} got {actual}"
            )),
        }
    }

    pub(super) fn pod_status(&self) -> Result<(), AdmissionError> {
        let (node, request) = (self.node, self.request);
        if request.operation != Operation::Update {
            return self.refuse(format!(
                "unexpected operation {:?}",
                request.operation.as_str()
            ));
        }
        let (old, new) = (&request.old_object, &request.object);
        if old["spec"]["nodeName"] != node {
            return self.refuse(format!(
                "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        if !changed_keys(&old["metadata"]["labels"], &new["metadata"]["labels"]).is_empty() {
            return self.refuse(format!(
                "node {node:?} cannot update labels through pod status"
            ));
        }
        for (member, words) in [
            ("resourceClaimStatuses", "resource claim statues"),
            (
                "extendedResourceClaimStatus",
                "extended resource claim status",
            ),
        ] {
            if old["status"][member] != new["status"][member] {
                return self.refuse(format!("node {node:?} cannot update {words}"));
            }
        }
        Ok(())
    }
}

/// Returns the plural of a resource that a pod refers to, if there is one.
///
/// # Errors
/// A volume has a type that is not known to refer to nothing.
fn api_reference(pod: &Value) -> Result<Option<&'static str>, String> {
    let kinds = kinds_referenced_by_pod(pod);
    let plurals = ["serviceaccounts", "secrets", "configmaps", "resourceclaims"];
    if let Some(plural) = plurals.into_iter().find(|plural| kinds.contains(plural)) {
        return Ok(Some(plural));
    }
    for volume in list(&pod["spec"]["volumes"]) {
        let name = volume["name"].as_str().unwrap_or_default();
        if let Some(resource) = member_of(volume, VOLUMES_WITH_REFERENCES) {
            return Ok(Some(resource));
        }
        let is_projected = !volume["projected"].is_null();
        for source in list(&volume["projected"]["sources"]) {
            if let Some(resource) = member_of(source, SOURCES_WITH_REFERENCES) {
                return Ok(Some(resource));
            }
            if source["downwardAPI"].is_null() {
                return Err(format!("unknown source for projected volume {name:?}"));
            }
        }
        let mut known = VOLUMES_WITHOUT_REFERENCES.iter();
        if !is_projected && !known.any(|member| !volume[*member].is_null()) {
            return Err(format!("unknown volume type for volume {name:?}"));
        }
    }
    Ok(None)
}

/// Returns what belongs to the first member that an object has.
fn member_of(object: &Value, members: &[(&str, &'static str)]) -> Option<&'static str> {
    let mut members = members.iter();
    let found = members.find(|(member, _)| !object[*member].is_null());
    found.map(|(_, resource)| *resource)
}

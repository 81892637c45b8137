//! NodeRestriction: limits what kubelets write. The authorization mode Node decides by the resource and the name; this
//! plugin by the content.

use std::collections::BTreeSet;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::super::cluster::{Cluster, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::certificates::common_name;
use super::object::{list, name_of};
use super::plugin::AdmissionPlugin;
use watchet_auth::node::{kinds_referenced_by_pod, node_of};

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// The annotation of a mirror pod.
const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// The labels of Kubernetes that a kubelet may set on its node.
const KUBELET_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The domains of labels that a kubelet may set on its node, with their subdomains.
const KUBELET_DOMAINS: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

/// The domain of labels that no kubelet may set.
const RESTRICTED_DOMAIN: &str = "node-restriction.kubernetes.io";

/// The signers of kubelets' certificates.
const KUBELET_SIGNERS: &[&str] = &[
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kubelet-serving",
];

/// The NodeRestriction admission plugin; see the module.
#[derive(Debug)]
pub(super) struct NodeRestriction;

#[async_trait]
impl AdmissionPlugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        if request.operation == Operation::Connect {
            return false;
        }
        matches!(
            (request.group, request.resource),
            (
                "",
                "pods" | "nodes" | "persistentvolumeclaims" | "serviceaccounts"
            ) | ("coordination.k8s.io", "leases")
                | ("storage.k8s.io", "csinodes")
                | ("resource.k8s.io", "resourceslices")
                | ("certificates.k8s.io", "certificatesigningrequests")
        )
    }

    /// Changes nothing. As upstream it runs before webhooks, which may change what a kubelet may not.
    async fn mutate(
        &self,
        cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let user = attributes.user;
        match node_of(user) {
            None => Ok(()),
            Some("") => Err(attributes.forbidden(format!(
                "could not determine node from user {:?}",
                user.name
            ))),
            Some(node) => {
                OfNode {
                    node,
                    cluster,
                    request: attributes,
                }
                .check()
                .await
            }
        }
    }
}

/// A write of a node.
struct OfNode<'a> {
    node: &'a str,
    cluster: &'a dyn Cluster,
    request: &'a AdmissionRequest<'a>,
}

impl OfNode<'_> {
    async fn check(&self) -> Result<(), AdmissionError> {
        let request = self.request;
        match (&*request.resource.resource, request.subresource) {
            ("pods", "") => self.pod().await,
            ("pods", "status") => self.pod_status(),
            ("pods", "eviction") => {
                let node = self.node;
                let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
                self.is_own_pod(&why).await
            }
            ("pods", subresource) => self.refuse(format!(
                "unexpected pod subresource {subresource:?}, only 'status' and 'eviction' are allowed"
            )),
            ("nodes", _) => self.node(),
            ("persistentvolumeclaims", "status") => self.claim_status(),
            ("persistentvolumeclaims", _) => self.refuse("may only update PVC status"),
            ("serviceaccounts", "token") if request.operation == Operation::Create => {
                self.token().await
            }
            ("leases", _) => {
                if request.namespace != LEASES {
                    return self.refuse(format!(
                        "can only access leases in the {LEASES:?} system namespace"
                    ));
                }
                self.is_own_name("can only access node lease with the same name as the requesting node")
            }
            ("csinodes", _) => {
                self.is_own_name("can only access CSINode with the same name as the requesting node")
            }
            ("resourceslices", _) => self.resource_slice(),
            ("certificatesigningrequests", "") if request.operation == Operation::Create => {
                self.signing_request()
            }
            _ => Ok(()),
        }
    }

    fn refuse(&self, why: impl Into<String>) -> Result<(), AdmissionError> {
        Err(self.request.forbidden(why))
    }

    fn is_own_name(&self, why: &str) -> Result<(), AdmissionError> {
        let name = match self.request.operation {
            Operation::Create => name_of(&self.request.object),
            _ => self.request.name,
        };
        match name == self.node {
            true => Ok(()),
            false => self.refuse(why),
        }
    }

    /// Returns a pod in the namespace of the request.
    async fn stored_pod(&self, name: &str) -> Result<Value, AdmissionError> {
        const PODS: GroupResource<'static> = GroupResource::new("", "pods");
        let namespace = self.request.namespace;
        let found = self.cluster.object_or_latest(PODS, namespace, name).await?;
        found.ok_or_else(|| self.request.forbidden(format!("pods {name:?} not found")))
    }

    async fn is_own_pod(&self, why: &str) -> Result<(), AdmissionError> {
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

    async fn pod(&self) -> Result<(), AdmissionError> {
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
        let kinds = kinds_referenced_by_pod(pod);
        for (kind, words) in [
            ("serviceaccounts", "a service account"),
            ("secrets", "secrets"),
            ("configmaps", "configmaps"),
            ("clustertrustbundles", "clustertrustbundles"),
            ("persistentvolumeclaims", "persistentvolumeclaims"),
            ("resourceclaims", "resourceclaims"),
        ] {
            if kinds.contains(kind) {
                return self.refuse(format!(
                    "node {node:?} can not create pods that reference {words}"
                ));
            }
        }
        Ok(())
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
            return self.refuse(format!("nodes {node:?} not found"));
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

    fn pod_status(&self) -> Result<(), AdmissionError> {
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
        let claims = |pod: &Value| {
            let names = ["resourceClaimStatuses", "extendedResourceClaimStatus"];
            names.map(|name| pod["status"][name].clone())
        };
        match claims(old) == claims(new) {
            true => Ok(()),
            false => self.refuse(format!(
                "node {node:?} cannot update resource claim statues"
            )),
        }
    }

    fn claim_status(&self) -> Result<(), AdmissionError> {
        const CHANGEABLE: [&str; 4] = [
            "capacity",
            "conditions",
            "allocatedResourceStatuses",
            "allocatedResources",
        ];
        let request = self.request;
        if request.operation != Operation::Update {
            return self.refuse(format!(
                "unexpected operation {:?}",
                request.operation.as_str()
            ));
        }
        let unchangeable = |claim: &Value| {
            let mut claim = claim.clone();
            remove(
                &mut claim["metadata"],
                &["resourceVersion", "managedFields"],
            );
            remove(&mut claim["status"], &CHANGEABLE);
            claim
        };
        match unchangeable(&request.old_object) == unchangeable(&request.object) {
            true => Ok(()),
            false => self.refuse(format!(
                "node {:?} is not allowed to update fields other than status.capacity and status.conditions",
                self.node
            )),
        }
    }

    fn node(&self) -> Result<(), AdmissionError> {
        let (node, request) = (self.node, self.request);
        let name = match (request.operation, request.name) {
            (Operation::Create, "") => name_of(&request.object),
            (_, name) => name,
        };
        if name != node {
            return self.refuse(format!(
                "node {node:?} is not allowed to modify node {name:?}"
            ));
        }
        let (old, new) = (&request.old_object, &request.object);
        let forbidden: Vec<String> =
            changed_keys(&old["metadata"]["labels"], &new["metadata"]["labels"])
                .into_iter()
                .filter(|label| !may_label(label))
                .collect();
        let forbidden = forbidden.join(", ");
        match request.operation {
            Operation::Create if !new["spec"]["configSource"].is_null() => self.refuse(format!(
                "node {node:?} is not allowed to create pods with a non-nil configSource"
            )),
            Operation::Create if !forbidden.is_empty() => self.refuse(format!(
                "node {node:?} is not allowed to set the following labels: {forbidden}"
            )),
            Operation::Update => {
                let (source, taints) = (&new["spec"]["configSource"], &new["spec"]["taints"]);
                if !source.is_null() && *source != old["spec"]["configSource"] {
                    return self.refuse(format!(
                        "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                    ));
                }
                if list(taints) != list(&old["spec"]["taints"]) {
                    return self.refuse(format!("node {node:?} is not allowed to modify taints"));
                }
                match forbidden.is_empty() {
                    true => Ok(()),
                    false => self.refuse(format!("is not allowed to modify labels: {forbidden}")),
                }
            }
            _ => Ok(()),
        }
    }

    /// A node may create tokens for its pods only.
    async fn token(&self) -> Result<(), AdmissionError> {
        let bound = &self.request.object["spec"]["boundObjectRef"];
        let text = |member: &str| bound[member].as_str().unwrap_or_default();
        if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
            return self.refuse("node requested token not bound to a pod");
        }
        let uid = text("uid");
        if uid.is_empty() {
            return self.refuse("node requested token with a pod binding without a uid");
        }
        let pod = self.stored_pod(text("name")).await?;
        if pod["metadata"]["uid"] != uid {
            return self.refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ));
        }
        match pod["spec"]["nodeName"] == self.node {
            true => Ok(()),
            false => {
                self.refuse("node requested token bound to a pod scheduled on a different node")
            }
        }
    }

    fn resource_slice(&self) -> Result<(), AdmissionError> {
        let (object, verb) = match self.request.operation {
            Operation::Create => (&self.request.object, "create"),
            Operation::Delete => (&self.request.old_object, "delete"),
            _ => return Ok(()),
        };
        match object["spec"]["nodeName"] == self.node {
            true => Ok(()),
            false => self.refuse(format!(
                "can only {verb} ResourceSlice with the same NodeName as the requesting node"
            )),
        }
    }

    fn signing_request(&self) -> Result<(), AdmissionError> {
        let (node, spec) = (self.node, &self.request.object["spec"]);
        let signer = spec["signerName"].as_str().unwrap_or_default();
        if !KUBELET_SIGNERS.contains(&signer) {
            return Ok(());
        }
        match common_name(&spec["request"]) {
            Err(why) => self.refuse(format!("unable to parse csr: {why}")),
            Ok(name) if name == format!("system:node:{node}") => Ok(()),
            Ok(_) => self.refuse(format!(
                "can only create a node CSR with CN=system:node:{node}"
            )),
        }
    }
}

fn remove(object: &mut Value, members: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|name, _| !members.contains(&name.as_str()));
    }
}

/// Returns the keys of two maps whose values differ, sorted. Null is an empty map.
fn changed_keys(old: &Value, new: &Value) -> BTreeSet<String> {
    let none = Map::new();
    let map = |value: &'_ Value| value.as_object().cloned().unwrap_or_else(|| none.clone());
    let (old, new) = (map(old), map(new));
    let keys = old.keys().chain(new.keys());
    keys.filter(|key| old.get(*key) != new.get(*key))
        .cloned()
        .collect()
}

/// Returns true if a kubelet may set this label on its node.
fn may_label(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let is_in = |of: &str| {
        domain == of
            || domain
                .strip_suffix(of)
                .is_some_and(|sub| sub.ends_with('.'))
    };
    if is_in(RESTRICTED_DOMAIN) {
        return false;
    }
    let is_of_kubernetes = is_in("kubernetes.io") || is_in("k8s.io");
    !is_of_kubernetes
        || KUBELET_LABELS.contains(&label)
        || KUBELET_DOMAINS.iter().any(|domain| is_in(domain))
}

//! NodeRestriction: limits what kubelets write. The authorization mode Node decides by the resource and the name; this
//! plugin by the content.

mod of_node;
mod pods;
mod tokens;

use async_trait::async_trait;
use serde_json::Value;

use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::certificates::common_name;
use super::object::{list, name_of};
use super::plugin::AdmissionPlugin;
use of_node::{OfNode, changed_keys};
use watchet_auth::node::node_of;

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

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
                // The garbage collector would delete a node with an owner that does not exist, and the kubelet could
                // register it again with other taints and labels.
                let owners = |node: &Value| list(&node["metadata"]["ownerReferences"]).to_vec();
                if owners(new) != owners(old) {
                    return self.refuse(format!(
                        "node {node:?} is not allowed to modify ownerReferences"
                    ));
                }
                match forbidden.is_empty() {
                    true => Ok(()),
                    false => self.refuse(format!("is not allowed to modify labels: {forbidden}")),
                }
            }
            _ => Ok(()),
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

//! `NodeAuthorizer`: authorizes requests of nodes with the current `NodeGraph`.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::graph::{InvalidSource, NodeGraph, SourceChange, SourceKind};
use super::identity::node_of;
use super::references::{Kind, ObjectRef};
use crate::attributes::Attributes;
use crate::authorizer::{Authorizer, Decision, SubjectRules};
use crate::rbac::{PolicyRule, default_policy};
use watchet_api::{FieldOperator, UserInfo};

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// Authorizes nodes, as kube-apiserver with `--authorization-mode=Node` and its feature AuthorizeNodeWithSelectors: a
/// node may read what its pods need, and its own objects. It has no opinion on other users. The caller passes the
/// stored objects with [`replace`](Self::replace) and [`change`](Self::change).
///
/// The admission plugin NodeRestriction checks which objects a node may write, because it has their content.
#[derive(Debug)]
pub struct NodeAuthorizer {
    graph: RwLock<NodeGraph>,
    /// The rules of the cluster role `system:node`, for resources that have no rule of their own here.
    rules: Vec<PolicyRule>,
    /// Notified after each change.
    subscribers: Mutex<Vec<Weak<Notify>>>,
}

impl Default for NodeAuthorizer {
    fn default() -> Self {
        Self::new()
    }
}

impl NodeAuthorizer {
    /// Returns an authorizer without stored objects.
    ///
    /// # Panics
    /// If the default policy has no role `system:node`; a test ensures that it has.
    pub fn new() -> Self {
        let role = default_policy()
            .into_iter()
            .find(|object| object.name == "system:node");
        let rules = role.expect("the default policy has system:node").object["rules"].take();
        Self {
            graph: RwLock::default(),
            rules: serde_json::from_value(rules).expect("the default policy is valid"),
            subscribers: Mutex::default(),
        }
    }

    /// Replaces all objects of a kind. Returns the errors of those that are invalid; the others take effect.
    pub fn replace<'a>(
        &self,
        kind: SourceKind,
        all: impl IntoIterator<Item = SourceChange<'a>>,
    ) -> Vec<InvalidSource> {
        self.update(kind, true, all)
    }

    /// Changes objects of a kind. Returns the errors of those that are invalid; the others take effect.
    pub fn change<'a>(
        &self,
        kind: SourceKind,
        changes: impl IntoIterator<Item = SourceChange<'a>>,
    ) -> Vec<InvalidSource> {
        self.update(kind, false, changes)
    }

    fn update<'a>(
        &self,
        kind: SourceKind,
        replaces: bool,
        changes: impl IntoIterator<Item = SourceChange<'a>>,
    ) -> Vec<InvalidSource> {
        let mut graph = self.graph.write();
        if replaces {
            graph.clear(kind);
        }
        let changes = changes.into_iter();
        let errors = changes
            .filter_map(|change| graph.apply(kind, &change).err())
            .collect();
        drop(graph);
        self.subscribers.lock().retain(|subscriber| {
            let subscriber = subscriber.upgrade();
            subscriber.inspect(|changed| changed.notify_one()).is_some()
        });
        errors
    }

    fn decide(&self, node: &str, request: &Attributes) -> Result<(), String> {
        match (&*request.api_group, &*request.resource) {
            ("", "secrets") => self.read(node, Kind::Secret, request),
            ("", "configmaps") => self.read(node, Kind::ConfigMap, request),
            ("", "persistentvolumeclaims") if request.subresource == "status" => {
                match &*request.verb {
                    "update" | "patch" => {
                        self.authorize_related(node, Kind::PersistentVolumeClaim, request)
                    }
                    _ => deny("can only get/update/patch this type"),
                }
            }
            ("", "persistentvolumeclaims") => self.get(node, Kind::PersistentVolumeClaim, request),
            ("", "persistentvolumes") => {
                is_get(request)?;
                let graph = self.graph.read();
                match graph.needs_volume(node, &request.name) {
                    true => Ok(()),
                    false => deny_unrelated(node, request),
                }
            }
            ("resource.k8s.io", "resourceclaims") => self.get(node, Kind::ResourceClaim, request),
            ("storage.k8s.io", "volumeattachments") => {
                self.get(node, Kind::VolumeAttachment, request)
            }
            ("", "serviceaccounts") => self.service_account(node, request),
            ("coordination.k8s.io", "leases") => lease(node, request),
            ("storage.k8s.io", "csinodes") => csi_node(node, request),
            ("resource.k8s.io", "resourceslices") => self.resource_slice(node, request),
            ("", "nodes") => own_node(node, request),
            ("", "pods") => self.pod(node, request),
            _ if self.rules.iter().any(|rule| rule.allows(request)) => Ok(()),
            _ => deny(""),
        }
    }

    /// Authorizes reads of one object by name, also as a list or a watch.
    fn read(&self, node: &str, kind: Kind, request: &Attributes) -> Result<(), String> {
        if !matches!(&*request.verb, "get" | "list" | "watch") {
            return deny("can only read resources of this type");
        }
        if !request.subresource.is_empty() {
            return deny("cannot read subresource");
        }
        if request.namespace.is_empty() {
            return deny("can only read namespaced object of this type");
        }
        self.authorize_related(node, kind, request)
    }

    fn get(&self, node: &str, kind: Kind, request: &Attributes) -> Result<(), String> {
        is_get(request)?;
        self.authorize_related(node, kind, request)
    }

    fn authorize_related(
        &self,
        node: &str,
        kind: Kind,
        request: &Attributes,
    ) -> Result<(), String> {
        let object = ObjectRef::new(kind, &request.namespace, &request.name);
        match self.graph.read().needs(node, &object) {
            true => Ok(()),
            false => deny_unrelated(node, request),
        }
    }

    /// Authorizes requests for service accounts of the pods of a node: it creates their tokens, and gets them for image
    /// credential providers.
    fn service_account(&self, node: &str, request: &Attributes) -> Result<(), String> {
        if request.verb == "get" && request.subresource.is_empty() {
            return self.authorize_related(node, Kind::ServiceAccount, request);
        }
        if request.verb != "create" || request.name.is_empty() {
            return deny("can only create tokens for individual service accounts");
        }
        if request.subresource != "token" {
            return deny("can only create token subresource of serviceaccount");
        }
        self.authorize_related(node, Kind::ServiceAccount, request)
    }

    fn resource_slice(&self, node: &str, request: &Attributes) -> Result<(), String> {
        if !request.subresource.is_empty() {
            return deny("cannot authorize ResourceSlice subresources");
        }
        match &*request.verb {
            // NodeRestriction checks the node of the slice.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => {
                self.authorize_related(node, Kind::ResourceSlice, request)
            }
            "watch" | "list" | "deletecollection" => {
                match selects(request, "spec.nodeName", node) {
                    true => Ok(()),
                    false => deny(
                        "can only list/watch/deletecollection resourceslices with nodeName field selector",
                    ),
                }
            }
            _ => deny(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn pod(&self, node: &str, request: &Attributes) -> Result<(), String> {
        match (&*request.subresource, &*request.verb) {
            ("", "get") => self.get(node, Kind::Pod, request),
            ("", "list" | "watch") if selects(request, "spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if !request.name.is_empty() => {
                self.authorize_related(node, Kind::Pod, request)
            }
            ("", "list" | "watch") => {
                deny("can only list/watch pods with spec.nodeName field selector")
            }
            // NodeRestriction checks that the pod is bound to the node.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Ok(())
            }
            _ => deny(""),
        }
    }
}

fn deny<T>(reason: &str) -> Result<T, String> {
    Err(reason.to_owned())
}

fn deny_unrelated<T>(node: &str, request: &Attributes) -> Result<T, String> {
    match request.name.is_empty() {
        true => deny("No Object name found"),
        false => Err(format!(
            "no relationship found between node '{node}' and this object"
        )),
    }
}

fn is_get(request: &Attributes) -> Result<(), String> {
    if request.verb != "get" {
        return deny("can only get individual resources of this type");
    }
    match request.subresource.is_empty() {
        true => Ok(()),
        false => deny("cannot get subresource"),
    }
}

/// Returns true if the field selector of a request requires this value.
fn selects(request: &Attributes, field: &str, value: &str) -> bool {
    request.field_selector.terms.iter().any(|term| {
        &*term.field == field && term.operator == FieldOperator::Equals && &*term.value == value
    })
}

fn lease(node: &str, request: &Attributes) -> Result<(), String> {
    if !matches!(
        &*request.verb,
        "get" | "create" | "update" | "patch" | "delete"
    ) {
        return deny("can only get, create, update, patch, or delete a node lease");
    }
    if request.namespace != LEASES {
        return Err(format!(
            "can only access leases in the {LEASES:?} system namespace"
        ));
    }
    // NodeRestriction checks the name of a created Lease.
    match request.verb == "create" || request.name == node {
        true => Ok(()),
        false => deny("can only access node lease with the same name as the requesting node"),
    }
}

fn csi_node(node: &str, request: &Attributes) -> Result<(), String> {
    if !matches!(
        &*request.verb,
        "get" | "create" | "update" | "patch" | "delete"
    ) {
        return deny("can only get, create, update, patch, or delete a CSINode");
    }
    if !request.subresource.is_empty() {
        return deny("cannot authorize CSINode subresources");
    }
    // NodeRestriction checks the name of a created CSINode.
    match request.verb == "create" || request.name == node {
        true => Ok(()),
        false => deny("can only access CSINode with the same name as the requesting node"),
    }
}

fn own_node(node: &str, request: &Attributes) -> Result<(), String> {
    match (&*request.subresource, &*request.verb) {
        // NodeRestriction checks that the object is that of the node.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match &*request.name {
            "" => Err(format!(
                "node '{node}' cannot read all nodes, only its own Node object"
            )),
            name if name == node => Ok(()),
            name => Err(format!(
                "node '{node}' cannot read '{name}', only its own Node object"
            )),
        },
        _ => deny(""),
    }
}

#[async_trait]
impl Authorizer for NodeAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        let user = &attributes.user;
        match node_of(user) {
            None => Decision::NoOpinion("".into()),
            Some("") => {
                Decision::NoOpinion(format!("unknown node for user {:?}", user.name).into())
            }
            Some(node) if attributes.is_resource_request => match self.decide(node, attributes) {
                Ok(()) => Decision::Allow("".into()),
                Err(reason) => Decision::NoOpinion(reason.into()),
            },
            Some(_) => match self.rules.iter().any(|rule| rule.allows(attributes)) {
                true => Decision::Allow("".into()),
                false => Decision::NoOpinion("".into()),
            },
        }
    }

    fn notify_changes(&self, changed: &Arc<Notify>) {
        self.subscribers.lock().push(Arc::downgrade(changed));
    }

    async fn rules(&self, user: &UserInfo, _namespace: &str) -> SubjectRules {
        match node_of(user) {
            None => SubjectRules::default(),
            Some(_) => SubjectRules {
                incomplete: true,
                evaluation_error: "node authorizer does not support user rule resolution"
                    .to_owned(),
                ..SubjectRules::default()
            },
        }
    }
}

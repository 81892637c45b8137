//! The custom resource `Foo`: its Rust type, its CustomResourceDefinition, and the Deployment of a Foo.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A custom resource that requests a Deployment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Foo {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: FooSpec,
    #[serde(default)]
    pub(crate) status: FooStatus,
}

/// The desired state, set by the user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FooSpec {
    pub(crate) deployment_name: String,
    pub(crate) replicas: i32,
}

/// The observed state, set by the controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FooStatus {
    #[serde(default)]
    pub(crate) available_replicas: i32,
}

// Informers and clients require these two traits.
impl Resource for Foo {
    const API_VERSION: &'static str = "samplecontroller.k8s.io/v1alpha1";
    const GROUP: &'static str = "samplecontroller.k8s.io";
    const KIND: &'static str = "Foo";
    const VERSION: &'static str = "v1alpha1";
    const URL_PATH_SEGMENT: &'static str = "foos";
    type Scope = NamespaceResourceScope;
}

impl Metadata for Foo {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Foo {
    /// Returns the CustomResourceDefinition of Foo.
    pub(crate) fn definition() -> Result<CustomResourceDefinition, serde_json::Error> {
        serde_json::from_value(json!({
            "metadata": {
                "name": "foos.samplecontroller.k8s.io",
                // Groups below k8s.io require this annotation.
                "annotations": {"api-approved.kubernetes.io": "unapproved, experimental-only"},
            },
            "spec": {
                "group": Self::GROUP,
                "scope": "Namespaced",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [{
                    "name": Self::VERSION,
                    "served": true,
                    "storage": true,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["deploymentName", "replicas"],
                                "properties": {
                                    "deploymentName": {"type": "string"},
                                    "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {"availableReplicas": {"type": "integer"}},
                            },
                        },
                    }},
                }],
            },
        }))
    }

    /// Returns the desired Deployment. The Foo owns it, so the garbage collector deletes it after the Foo.
    pub(crate) fn deployment(&self) -> Result<Deployment, serde_json::Error> {
        let labels = json!({"app": "nginx", "controller": self.metadata.name});
        serde_json::from_value(json!({
            "metadata": {
                "name": self.spec.deployment_name,
                "namespace": self.metadata.namespace,
                "ownerReferences": [{
                    "apiVersion": Self::API_VERSION,
                    "kind": Self::KIND,
                    "name": self.metadata.name,
                    "uid": self.metadata.uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "replicas": self.spec.replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
                },
            },
        }))
    }

    /// Returns true if this Foo is the controller of `deployment`. Compares the uid, because a deleted Foo may have had
    /// the same name.
    pub(crate) fn controls(&self, deployment: &Deployment) -> bool {
        let owner = controller_of(deployment);
        owner.is_some_and(|owner| Some(&owner.uid) == self.metadata.uid.as_ref())
    }
}

/// Returns the controller of a Deployment, from its owner references.
pub(crate) fn controller_of(deployment: &Deployment) -> Option<&OwnerReference> {
    let owners = deployment.metadata.owner_references.as_ref()?;
    owners.iter().find(|owner| owner.controller == Some(true))
}

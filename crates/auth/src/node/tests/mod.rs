//! Tests of the node authorizer: what a node may do because of its pods, and the rules of upstream for other requests.

mod random;

use std::sync::Arc;

use serde_json::{Value, json};
use watchet_api::{FieldOperator, FieldSelector, FieldTerm, UserInfo};

use super::*;
use crate::attributes::Attributes;
use crate::authorizer::{Authorizer as _, Decision};

/// A cluster with the nodes n1 and n2.
struct Cluster(NodeAuthorizer);

impl Cluster {
    fn new() -> Self {
        Self(NodeAuthorizer::new())
    }

    fn put(&self, kind: SourceKind, namespace: &str, name: &str, object: &Value) {
        let object = object.to_string();
        let change = SourceChange {
            namespace,
            name,
            object: Some(object.as_bytes()),
        };
        let errors = self.0.change(kind, [change]);
        assert!(errors.is_empty(), "{errors:?}");
    }

    fn delete(&self, kind: SourceKind, namespace: &str, name: &str) {
        let change = SourceChange {
            namespace,
            name,
            object: None,
        };
        self.0.change(kind, [change]);
    }

    async fn ask(&self, request: &Attributes) -> Decision {
        self.0.authorize(request).await
    }

    /// Authorizes the request `verb group/resource/subresource namespace/name` of `node`.
    async fn is_allowed(&self, node: &str, request: &str) -> bool {
        self.ask(&attributes(node, request)).await.is_allowed()
    }

    async fn reason(&self, node: &str, request: &str) -> String {
        let decision = self.ask(&attributes(node, request)).await;
        assert!(!decision.is_allowed() && !decision.is_denied(), "{request}");
        decision.reason().to_owned()
    }
}

fn attributes(node: &str, request: &str) -> Attributes {
    let mut words = request.split(' ');
    let (verb, resource, object) = (words.next(), words.next(), words.next());
    let mut resource = resource.unwrap().split('/');
    let (namespace, name) = object.unwrap_or("/").split_once('/').unwrap();
    Attributes {
        user: Arc::new(UserInfo {
            name: format!("system:node:{node}"),
            groups: vec!["system:nodes".to_owned()],
            ..UserInfo::default()
        }),
        verb: verb.unwrap().to_owned(),
        is_resource_request: true,
        api_group: resource.next().unwrap().to_owned(),
        resource: resource.next().unwrap().to_owned(),
        subresource: resource.next().unwrap_or_default().to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

/// A pod that refers to an object in every way.
fn pod() -> Value {
    let volumes = [
        json!({"secret": {"secretName": "volume"}}),
        json!({"azureFile": {"secretName": "azure"}}),
        json!({"cephfs": {"secretRef": {"name": "ceph"}}}),
        json!({"cinder": {"secretRef": {"name": "cinder"}}}),
        json!({"csi": {"nodePublishSecretRef": {"name": "csi"}}}),
        json!({"flexVolume": {"secretRef": {"name": "flex"}}}),
        json!({"iscsi": {"secretRef": {"name": "iscsi"}}}),
        json!({"rbd": {"secretRef": {"name": "rbd"}}}),
        json!({"scaleIO": {"secretRef": {"name": "scale"}}}),
        json!({"storageos": {"secretRef": {"name": "os"}}}),
        json!({"projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "projected"}}]}}),
        json!({"configMap": {"name": "volume"}}),
        json!({"persistentVolumeClaim": {"claimName": "claim"}}),
        json!({"name": "scratch", "ephemeral": {}}),
    ];
    let container = |name: &str| {
        json!({
            "env": [
                {"valueFrom": {"secretKeyRef": {"name": format!("{name}-env")}}},
                {"valueFrom": {"configMapKeyRef": {"name": format!("{name}-env")}}},
            ],
            "envFrom": [
                {"secretRef": {"name": format!("{name}-from")}},
                {"configMapRef": {"name": format!("{name}-from")}},
            ],
        })
    };
    json!({
        "spec": {
            "nodeName": "n1", "serviceAccountName": "robot", "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [container("init")], "containers": [container("main")],
            "ephemeralContainers": [container("debug")], "volumes": volumes,
            "resourceClaims": [{"name": "a", "resourceClaimName": "gpu"}, {"name": "b", "resourceClaimTemplateName": "t"}],
        },
        "status": {
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "extended"},
        },
    })
}

#[tokio::test]
async fn a_node_reads_what_its_pods_refer_to() {
    let cluster = Cluster::new();
    cluster.put(SourceKind::Pod, "web", "p", &pod());
    let secrets = "volume azure ceph cinder csi flex iscsi rbd scale os projected pull init-env init-from \
                   main-env main-from debug-env debug-from";
    let maps = "projected volume init-env init-from main-env main-from debug-env debug-from";
    let mut requests = Vec::new();
    for (resource, names) in [("secrets", secrets), ("configmaps", maps)] {
        for name in names.split_whitespace() {
            for verb in ["get", "list", "watch"] {
                requests.push(format!("{verb} /{resource} web/{name}"));
            }
        }
    }
    for claim in ["claim", "p-scratch"] {
        requests.push(format!("get /persistentvolumeclaims web/{claim}"));
        requests.push(format!("update /persistentvolumeclaims/status web/{claim}"));
        requests.push(format!("patch /persistentvolumeclaims/status web/{claim}"));
    }
    for claim in ["gpu", "p-b-x", "extended"] {
        requests.push(format!("get resource.k8s.io/resourceclaims web/{claim}"));
    }
    requests.push("create /serviceaccounts/token web/robot".to_owned());
    requests.push("get /serviceaccounts web/robot".to_owned());
    requests.push("get /pods web/p".to_owned());
    requests.push("watch /pods web/p".to_owned());
    for request in &requests {
        assert!(cluster.is_allowed("n1", request).await, "{request}");
        let reason = cluster.reason("n2", request).await;
        assert_eq!(
            reason, "no relationship found between node 'n2' and this object",
            "{request}"
        );
        let elsewhere = request.replace(" web/", " other/");
        assert!(!cluster.is_allowed("n1", &elsewhere).await, "{elsewhere}");
    }
    // The pod moves to another node, and then is deleted.
    let mut moved = pod();
    moved["spec"]["nodeName"] = "n2".into();
    cluster.put(SourceKind::Pod, "web", "p", &moved);
    for request in &requests {
        assert!(!cluster.is_allowed("n1", request).await, "{request}");
        assert!(cluster.is_allowed("n2", request).await, "{request}");
    }
    cluster.delete(SourceKind::Pod, "web", "p");
    for request in &requests {
        assert!(!cluster.is_allowed("n2", request).await, "{request}");
    }
}

/// A secret that several pods refer to is readable until the last of them is deleted.
#[tokio::test]
async fn pods_that_share_an_object_are_counted() {
    let cluster = Cluster::new();
    let shares =
        json!({"spec": {"nodeName": "n1", "imagePullSecrets": [{"name": "s"}, {"name": "s"}]}});
    cluster.put(SourceKind::Pod, "web", "a", &shares);
    cluster.put(SourceKind::Pod, "web", "b", &shares);
    cluster.delete(SourceKind::Pod, "web", "a");
    assert!(cluster.is_allowed("n1", "get /secrets web/s").await);
    let all: [SourceChange<'_>; 0] = [];
    cluster.0.replace(SourceKind::Pod, all);
    assert!(!cluster.is_allowed("n1", "get /secrets web/s").await);
}

/// A node creates mirror pods. They must not grant it access to any object.
#[tokio::test]
async fn a_mirror_pod_gives_no_access() {
    let cluster = Cluster::new();
    let mut mirror = pod();
    mirror["metadata"] = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
    cluster.put(SourceKind::Pod, "web", "p", &mirror);
    assert!(cluster.is_allowed("n1", "get /pods web/p").await);
    for request in [
        "get /secrets web/volume",
        "create /serviceaccounts/token web/robot",
    ] {
        assert!(!cluster.is_allowed("n1", request).await, "{request}");
    }
}

#[tokio::test]
async fn volumes_are_reached_through_claims() {
    let cluster = Cluster::new();
    let claims = json!({"spec": {"nodeName": "n1", "volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}});
    cluster.put(SourceKind::Pod, "web", "p", &claims);
    let volume = |claim: &str| {
        json!({"spec": {
            "claimRef": {"namespace": "web", "name": claim},
            "csi": {
                "nodeStageSecretRef": {"namespace": "csi", "name": "stage"},
                "nodePublishSecretRef": {"namespace": "csi", "name": "publish"},
                "nodeExpandSecretRef": {"namespace": "csi", "name": "expand"},
                "controllerPublishSecretRef": {"namespace": "csi", "name": "controller"},
            },
            "azureFile": {"secretName": "azure"},
        }})
    };
    let requests = [
        "get /persistentvolumes /v",
        "get /secrets csi/stage",
        "get /secrets csi/publish",
        "get /secrets csi/expand",
        "get /secrets web/azure",
    ];
    cluster.put(SourceKind::PersistentVolume, "", "v", &volume("c"));
    for request in requests {
        assert!(cluster.is_allowed("n1", request).await, "{request}");
        assert!(!cluster.is_allowed("n2", request).await, "{request}");
    }
    assert!(
        !cluster
            .is_allowed("n1", "get /secrets csi/controller")
            .await
    );
    cluster.put(SourceKind::PersistentVolume, "", "v", &volume("other"));
    for request in requests {
        assert!(!cluster.is_allowed("n1", request).await, "{request}");
    }
}

#[tokio::test]
async fn attachments_and_slices_belong_to_their_node() {
    let cluster = Cluster::new();
    let of_n1 = json!({"spec": {"nodeName": "n1"}});
    cluster.put(SourceKind::VolumeAttachment, "", "a", &of_n1);
    cluster.put(SourceKind::ResourceSlice, "", "s", &of_n1);
    let attachment = "get storage.k8s.io/volumeattachments /a";
    assert!(cluster.is_allowed("n1", attachment).await);
    assert!(!cluster.is_allowed("n2", attachment).await);
    for verb in ["get", "update", "patch", "delete"] {
        let request = format!("{verb} resource.k8s.io/resourceslices /s");
        assert!(cluster.is_allowed("n1", &request).await, "{request}");
        assert!(!cluster.is_allowed("n2", &request).await, "{request}");
    }
    for (resource, verbs) in [
        (
            "resource.k8s.io/resourceslices",
            &["list", "watch", "deletecollection"][..],
        ),
        ("/pods", &["list", "watch"]),
    ] {
        for verb in verbs {
            let mut request = attributes("n1", &format!("{verb} {resource}"));
            assert!(
                !cluster.ask(&request).await.is_allowed(),
                "{verb} {resource}"
            );
            for (operator, value, expected) in [
                (FieldOperator::Equals, "n1", true),
                (FieldOperator::Equals, "n2", false),
                (FieldOperator::NotEquals, "n1", false),
            ] {
                let term = FieldTerm {
                    field: "spec.nodeName".into(),
                    operator,
                    value: value.into(),
                };
                request.field_selector = FieldSelector { terms: vec![term] };
                assert_eq!(
                    cluster.ask(&request).await.is_allowed(),
                    expected,
                    "{request:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn other_requests_follow_the_rules_of_nodes() {
    let cluster = Cluster::new();
    for request in [
        "get /nodes /n1",
        "watch /nodes /n1",
        "create /nodes",
        "patch /nodes /n2",
        "update /nodes/status /n2",
        "get coordination.k8s.io/leases kube-node-lease/n1",
        "create coordination.k8s.io/leases kube-node-lease/",
        "delete coordination.k8s.io/leases kube-node-lease/n1",
        "patch storage.k8s.io/csinodes /n1",
        "create storage.k8s.io/csinodes",
        "create resource.k8s.io/resourceslices",
        "create /pods web/",
        "delete /pods web/p",
        "patch /pods/status web/p",
        "create /pods/eviction web/p",
        "list /services",
        "create /events web/",
        "create certificates.k8s.io/certificatesigningrequests",
        "create authentication.k8s.io/tokenreviews",
    ] {
        assert!(cluster.is_allowed("n1", request).await, "{request}");
    }
    for (request, reason) in [
        (
            "create /secrets web/",
            "can only read resources of this type",
        ),
        ("get /secrets/x web/s", "cannot read subresource"),
        (
            "list /secrets",
            "can only read namespaced object of this type",
        ),
        ("list /secrets web/", "No Object name found"),
        (
            "list /persistentvolumes",
            "can only get individual resources of this type",
        ),
        ("get /persistentvolumes/status /v", "cannot get subresource"),
        (
            "get /persistentvolumeclaims/status web/c",
            "can only get/update/patch this type",
        ),
        (
            "create /serviceaccounts web/",
            "can only create tokens for individual service accounts",
        ),
        (
            "create /serviceaccounts/x web/a",
            "can only create token subresource of serviceaccount",
        ),
        (
            "list coordination.k8s.io/leases kube-node-lease/",
            "can only get, create, update, patch, or delete a node lease",
        ),
        (
            "get coordination.k8s.io/leases web/n1",
            r#"can only access leases in the "kube-node-lease" system namespace"#,
        ),
        (
            "get coordination.k8s.io/leases kube-node-lease/n2",
            "can only access node lease with the same name as the requesting node",
        ),
        (
            "list storage.k8s.io/csinodes",
            "can only get, create, update, patch, or delete a CSINode",
        ),
        (
            "get storage.k8s.io/csinodes/x /n1",
            "cannot authorize CSINode subresources",
        ),
        (
            "get storage.k8s.io/csinodes /n2",
            "can only access CSINode with the same name as the requesting node",
        ),
        (
            "get resource.k8s.io/resourceslices/x /s",
            "cannot authorize ResourceSlice subresources",
        ),
        (
            "list /nodes",
            "node 'n1' cannot read all nodes, only its own Node object",
        ),
        (
            "get /nodes /n2",
            "node 'n1' cannot read 'n2', only its own Node object",
        ),
        ("delete /nodes /n1", ""),
        (
            "list /pods",
            "can only list/watch pods with spec.nodeName field selector",
        ),
        ("update /pods web/p", ""),
        ("get apps/deployments web/d", ""),
    ] {
        assert_eq!(cluster.reason("n1", request).await, reason, "{request}");
    }
}

#[tokio::test]
async fn only_nodes_are_authorized() {
    let cluster = Cluster::new();
    cluster.put(SourceKind::Pod, "web", "p", &pod());
    let as_user = |name: &str, groups: &[&str]| Attributes {
        user: Arc::new(UserInfo {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..UserInfo::default()
        }),
        ..attributes("n1", "get /secrets web/volume")
    };
    for (name, groups, expected) in [
        (
            "system:node:n1",
            &["system:nodes"][..],
            Decision::Allow("".into()),
        ),
        (
            "system:node:n1",
            &["system:authenticated"],
            Decision::NoOpinion("".into()),
        ),
        ("n1", &["system:nodes"], Decision::NoOpinion("".into())),
        (
            "system:node:",
            &["system:nodes"],
            Decision::NoOpinion(r#"unknown node for user "system:node:""#.into()),
        ),
    ] {
        assert_eq!(
            cluster.ask(&as_user(name, groups)).await,
            expected,
            "{name}"
        );
    }
    let rules = cluster
        .0
        .rules(&as_user("system:node:n1", &["system:nodes"]).user, "web")
        .await;
    assert_eq!(
        rules.evaluation_error,
        "node authorizer does not support user rule resolution"
    );
    assert!(rules.incomplete);
}

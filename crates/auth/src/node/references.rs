//! The objects that a pod or a persistent volume refers to.

use std::collections::BTreeSet;

use serde_json::Value;

/// A kind of object that pods refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    ConfigMap,
    PersistentVolumeClaim,
    Pod,
    ResourceClaim,
    ResourceSlice,
    Secret,
    ServiceAccount,
    VolumeAttachment,
}

impl Kind {
    fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::PersistentVolumeClaim => "persistentvolumeclaims",
            Self::Pod => "pods",
            Self::ResourceClaim => "resourceclaims",
            Self::ResourceSlice => "resourceslices",
            Self::Secret => "secrets",
            Self::ServiceAccount => "serviceaccounts",
            Self::VolumeAttachment => "volumeattachments",
        }
    }
}

/// The kind, namespace and name of an object. The namespace of a cluster-scoped object is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ObjectRef {
    pub(super) kind: Kind,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl ObjectRef {
    pub(super) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// The annotation of a mirror pod, which a kubelet creates for a static pod.
const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// The JSON pointers to the names of secrets in a volume of a pod.
const SECRETS_OF_VOLUME: &[&str] = &[
    "/secret/secretName",
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/storageos/secretRef/name",
];

/// The JSON pointers to the references to secrets in a persistent volume that its node reads.
const SECRETS_OF_PERSISTENT_VOLUME: &[&str] = &[
    "/spec/cephfs/secretRef",
    "/spec/cinder/secretRef",
    "/spec/csi/nodeExpandSecretRef",
    "/spec/csi/nodePublishSecretRef",
    "/spec/csi/nodeStageSecretRef",
    "/spec/flexVolume/secretRef",
    "/spec/iscsi/secretRef",
    "/spec/rbd/secretRef",
    "/spec/scaleIO/secretRef",
    "/spec/storageos/secretRef",
];

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten()
}

fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.filter(|text| !text.is_empty())
}

/// Returns the objects that the node of `pod` may read because the pod refers to them. A mirror pod has none: its
/// kubelet has created it, and must not grant itself access.
pub(super) fn of_pod(namespace: &str, name: &str, pod: &Value) -> Vec<ObjectRef> {
    match pod["metadata"]["annotations"].get(MIRROR_POD) {
        Some(_) => Vec::new(),
        None => all_of_pod(namespace, name, pod),
    }
}

/// Returns the plural names of the kinds of objects that a pod refers to, such as `secrets`.
pub fn kinds_referenced_by_pod(pod: &Value) -> BTreeSet<&'static str> {
    let references = all_of_pod("", "", pod).into_iter();
    let mut kinds: BTreeSet<_> = references.map(|object| object.kind.plural()).collect();
    // A claim that a controller creates from a template has no name yet.
    if items(pod, "/spec/resourceClaims").next().is_some() {
        kinds.insert(Kind::ResourceClaim.plural());
    }
    let sources =
        items(pod, "/spec/volumes").flat_map(|volume| items(volume, "/projected/sources"));
    if sources
        .into_iter()
        .any(|source| source.get("clusterTrustBundle").is_some())
    {
        kinds.insert("clustertrustbundles");
    }
    kinds
}

fn all_of_pod(namespace: &str, name: &str, pod: &Value) -> Vec<ObjectRef> {
    let mut all = Vec::new();
    let mut add = |kind, name: Option<&str>| {
        all.extend(name.map(|name| ObjectRef::new(kind, namespace, name)));
    };
    add(Kind::ServiceAccount, text(pod, "/spec/serviceAccountName"));
    for secret in items(pod, "/spec/imagePullSecrets") {
        add(Kind::Secret, text(secret, "/name"));
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(pod, &format!("/spec/{list}")) {
            for variable in items(container, "/env") {
                add(Kind::Secret, text(variable, "/valueFrom/secretKeyRef/name"));
                add(
                    Kind::ConfigMap,
                    text(variable, "/valueFrom/configMapKeyRef/name"),
                );
            }
            for source in items(container, "/envFrom") {
                add(Kind::Secret, text(source, "/secretRef/name"));
                add(Kind::ConfigMap, text(source, "/configMapRef/name"));
            }
        }
    }
    for volume in items(pod, "/spec/volumes") {
        for pointer in SECRETS_OF_VOLUME {
            add(Kind::Secret, text(volume, pointer));
        }
        add(Kind::ConfigMap, text(volume, "/configMap/name"));
        for source in items(volume, "/projected/sources") {
            add(Kind::Secret, text(source, "/secret/name"));
            add(Kind::ConfigMap, text(source, "/configMap/name"));
        }
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        add(Kind::PersistentVolumeClaim, claim);
        if let (Some(_), Some(volume)) = (volume.get("ephemeral"), text(volume, "/name")) {
            add(
                Kind::PersistentVolumeClaim,
                Some(&format!("{name}-{volume}")),
            );
        }
    }
    for claim in items(pod, "/spec/resourceClaims") {
        add(Kind::ResourceClaim, text(claim, "/resourceClaimName"));
    }
    // The names of claims that a controller created from templates.
    for status in items(pod, "/status/resourceClaimStatuses") {
        add(Kind::ResourceClaim, text(status, "/resourceClaimName"));
    }
    let extended = text(pod, "/status/extendedResourceClaimStatus/resourceClaimName");
    add(Kind::ResourceClaim, extended);
    all
}

/// Returns the claim that a persistent volume is bound to, and the secrets of the volume; `None` if it is not bound.
pub(super) fn of_persistent_volume(volume: &Value) -> Option<(ObjectRef, Vec<ObjectRef>)> {
    let claim = volume.pointer("/spec/claimRef")?;
    let (namespace, name) = (text(claim, "/namespace")?, text(claim, "/name")?);
    let mut secrets = Vec::new();
    for secret in SECRETS_OF_PERSISTENT_VOLUME
        .iter()
        .filter_map(|pointer| volume.pointer(pointer))
    {
        if let Some(name) = text(secret, "/name") {
            let namespace = text(secret, "/namespace").unwrap_or(namespace);
            secrets.push(ObjectRef::new(Kind::Secret, namespace, name));
        }
    }
    if let Some(name) = text(volume, "/spec/azureFile/secretName") {
        let namespace = text(volume, "/spec/azureFile/secretNamespace").unwrap_or(namespace);
        secrets.push(ObjectRef::new(Kind::Secret, namespace, name));
    }
    let claim = ObjectRef::new(Kind::PersistentVolumeClaim, namespace, name);
    Some((claim, secrets))
}

//! `NodeGraph`: the objects that each node needs because of its pods, their volumes, its volume attachments and its
//! resource slices.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::references::{Kind, ObjectRef, of_persistent_volume, of_pod};

/// A kind of object that adds edges to the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// `pods`
    Pod,
    /// `persistentvolumes`
    PersistentVolume,
    /// `volumeattachments.storage.k8s.io`
    VolumeAttachment,
    /// `resourceslices.resource.k8s.io`
    ResourceSlice,
}

impl SourceKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [
        Self::Pod,
        Self::PersistentVolume,
        Self::VolumeAttachment,
        Self::ResourceSlice,
    ];

    /// Returns the group and the plural of the resource, whose version is `v1`.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Pod => ("", "pods"),
            Self::PersistentVolume => ("", "persistentvolumes"),
            Self::VolumeAttachment => ("storage.k8s.io", "volumeattachments"),
            Self::ResourceSlice => ("resource.k8s.io", "resourceslices"),
        }
    }
}

/// A change of one object.
#[derive(Debug, Clone, Copy)]
pub struct SourceChange<'a> {
    /// Empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// The JSON of the object; `None` if it was deleted.
    pub object: Option<&'a [u8]>,
}

/// The error of a stored object that cannot be parsed. The object grants no node access.
#[derive(Debug, thiserror::Error)]
#[error("{} {namespace:?} {name:?} is invalid and gives no node access: {source}", kind.resource().1)]
pub struct InvalidSource {
    kind: SourceKind,
    namespace: String,
    name: String,
    source: serde_json::Error,
}

/// An object that adds edges to the graph: its kind, namespace and name.
type SourceKey = (SourceKind, Box<str>, Box<str>);

/// The part of the graph that a source has added.
#[derive(Debug)]
enum SourceEdges {
    /// The node of the source, which needs these objects.
    Node(Box<str>, Vec<ObjectRef>),
    /// The secrets of a persistent volume.
    Secrets(Vec<ObjectRef>),
}

/// The objects that nodes need.
#[derive(Debug, Default)]
pub(super) struct NodeGraph {
    /// The nodes that need each object, with the number of sources because of which they need it.
    nodes: HashMap<ObjectRef, HashMap<Box<str>, u32>>,
    /// The claims of persistent volumes.
    claims: HashMap<Box<str>, ObjectRef>,
    /// The persistent volumes that refer to each secret.
    volumes: HashMap<ObjectRef, HashSet<Box<str>>>,
    added: HashMap<SourceKey, SourceEdges>,
}

impl NodeGraph {
    /// Returns true if `node` needs the object because of one of its pods, attachments or slices, or because the object
    /// is a secret of a volume that is bound to a claim of its pods.
    pub(super) fn needs(&self, node: &str, object: &ObjectRef) -> bool {
        let needs = |object| {
            self.nodes
                .get(object)
                .is_some_and(|nodes| nodes.contains_key(node))
        };
        let volumes = self.volumes.get(object).into_iter().flatten();
        let mut claims = volumes.filter_map(|volume| self.claims.get(volume));
        needs(object) || claims.any(needs)
    }

    /// Returns true if `node` needs the persistent volume because of a claim of its pods.
    pub(super) fn needs_volume(&self, node: &str, volume: &str) -> bool {
        let claim = self.claims.get(volume);
        claim.is_some_and(|claim| self.needs(node, claim))
    }

    /// Removes all sources of a kind.
    pub(super) fn clear(&mut self, kind: SourceKind) {
        let sources = self.added.keys().filter(|source| source.0 == kind);
        for source in sources.cloned().collect::<Vec<_>>() {
            self.remove(&source);
        }
    }

    /// Applies a change.
    ///
    /// # Errors
    /// The object is not valid JSON. The graph no longer has it.
    pub(super) fn apply(
        &mut self,
        kind: SourceKind,
        change: &SourceChange<'_>,
    ) -> Result<(), InvalidSource> {
        let source: SourceKey = (kind, change.namespace.into(), change.name.into());
        self.remove(&source);
        let Some(object) = change.object else {
            return Ok(());
        };
        let object: Value = serde_json::from_slice(object).map_err(|error| InvalidSource {
            kind,
            namespace: change.namespace.to_owned(),
            name: change.name.to_owned(),
            source: error,
        })?;
        let own = |kind| ObjectRef::new(kind, change.namespace, change.name);
        let needed = match kind {
            SourceKind::Pod => {
                let mut needed = of_pod(change.namespace, change.name, &object);
                needed.push(own(Kind::Pod));
                needed
            }
            SourceKind::VolumeAttachment => vec![own(Kind::VolumeAttachment)],
            SourceKind::ResourceSlice => vec![own(Kind::ResourceSlice)],
            SourceKind::PersistentVolume => {
                self.add_volume(source, &object);
                return Ok(());
            }
        };
        let node = object["spec"]["nodeName"].as_str();
        let Some(node) = node.filter(|node| !node.is_empty()) else {
            return Ok(());
        };
        for object in &needed {
            let nodes = self.nodes.entry(object.clone()).or_default();
            *nodes.entry(node.into()).or_default() += 1;
        }
        self.added
            .insert(source, SourceEdges::Node(node.into(), needed));
        Ok(())
    }

    fn add_volume(&mut self, source: SourceKey, volume: &Value) {
        let Some((claim, secrets)) = of_persistent_volume(volume) else {
            return;
        };
        let name = source.2.clone();
        for secret in &secrets {
            let volumes = self.volumes.entry(secret.clone()).or_default();
            volumes.insert(name.clone());
        }
        self.claims.insert(name, claim);
        self.added.insert(source, SourceEdges::Secrets(secrets));
    }

    fn remove(&mut self, source: &SourceKey) {
        match self.added.remove(source) {
            None => {}
            Some(SourceEdges::Node(node, needed)) => {
                for object in needed {
                    let Some(nodes) = self.nodes.get_mut(&object) else {
                        continue;
                    };
                    if let Some(count) = nodes.get_mut(&node) {
                        *count -= 1;
                        if *count == 0 {
                            nodes.remove(&node);
                        }
                    }
                    if nodes.is_empty() {
                        self.nodes.remove(&object);
                    }
                }
            }
            Some(SourceEdges::Secrets(secrets)) => {
                self.claims.remove(&source.2);
                for secret in secrets {
                    if let Some(volumes) = self.volumes.get_mut(&secret) {
                        volumes.remove(&source.2);
                        if volumes.is_empty() {
                            self.volumes.remove(&secret);
                        }
                    }
                }
            }
        }
    }

    /// Returns true if nothing is stored.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
            && self.claims.is_empty()
            && self.volumes.is_empty()
            && self.added.is_empty()
    }
}

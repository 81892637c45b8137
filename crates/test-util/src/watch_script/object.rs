//! The objects of a script: their names, their content, and their JSON in storage and on the wire.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

/// The resources that a script writes. It lists and watches pods; config maps only advance the revision of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// `pods`
    Pods,
    /// `configmaps`
    ConfigMaps,
}

impl Resource {
    /// Returns the plural name, as in the URL.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::ConfigMaps => "configmaps",
        }
    }
}

/// The name of an object: `pods/a` is in the namespace `default`, `pods/other/a` in `other`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// The resource.
    pub resource: Resource,
    /// The namespace.
    pub namespace: String,
    /// The name. In a script it may contain a `*`, which stands for the number of each write of a burst.
    pub name: String,
}

impl ObjectName {
    /// Returns the name of the write with this number, from 1 on, of `count`. The numbers have leading zeros, so that
    /// the order of the names is that of the writes.
    pub fn numbered(&self, index: usize, count: usize) -> Self {
        let width = count.to_string().len();
        Self {
            name: self.name.replace('*', &format!("{index:0width$}")),
            ..self.clone()
        }
    }

    /// Returns the key in storage, e.g. `/pods/default/a`.
    pub fn storage_key(&self) -> String {
        format!(
            "/{}/{}/{}",
            self.resource.plural(),
            self.namespace,
            self.name
        )
    }

    /// Returns `a`, or `other/a` outside of the namespace `default`.
    pub fn short(&self) -> String {
        match self.namespace.as_str() {
            "default" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.resource.plural(), self.short())
    }
}

/// The properties that selectors match: the labels and `spec.nodeName`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.nodeName`, or empty.
    pub node_name: String,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let node =
            (!self.node_name.is_empty()).then(|| format!("spec.nodeName={}", self.node_name));
        let words: Vec<String> = labels.chain(node).collect();
        write!(f, "{}", words.join(" "))
    }
}

/// An object to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    /// Labels and fields.
    pub content: Content,
    /// The uid, a new one for each creation.
    pub uid: String,
    /// A stamp that differs in each write, so that no write leaves an object unchanged.
    pub stamp: String,
    /// True if the stored value is not JSON.
    pub is_unreadable: bool,
}

impl StoredObject {
    /// Returns the object as JSON.
    pub fn json(&self, object: &ObjectName) -> Value {
        let metadata = json!({
            "name": object.name, "namespace": object.namespace, "uid": self.uid,
            "labels": self.content.labels, "annotations": {"stamp": self.stamp},
        });
        match object.resource {
            Resource::ConfigMaps => {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            }
            Resource::Pods => json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {
                    "nodeName": self.content.node_name,
                    "containers": [{"name": "c", "image": "i"}],
                },
            }),
        }
    }

    /// Returns the value to store.
    pub fn value(&self, object: &ObjectName) -> String {
        if self.is_unreadable {
            "not JSON".to_owned()
        } else {
            self.json(object).to_string()
        }
    }
}

/// An object as a client received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedObject {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The resourceVersion.
    pub version: u64,
    /// Labels and fields.
    pub content: Content,
}

impl ReceivedObject {
    /// Reads a pod.
    ///
    /// # Panics
    /// If it has no name or no numeric resourceVersion.
    pub fn from_json(pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &pod["metadata"];
        let labels = metadata["labels"].as_object();
        let labels = labels
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), text(value)));
        let version = text(&metadata["resourceVersion"]);
        assert!(metadata["name"].is_string(), "no name: {pod}");
        Self {
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            version: version
                .parse()
                .unwrap_or_else(|_| panic!("no version: {pod}")),
            content: Content {
                labels: labels.collect(),
                node_name: text(&pod["spec"]["nodeName"]),
            },
        }
    }
}

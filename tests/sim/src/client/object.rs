//! The objects of a simulation: config maps with a few names, whose data has the identity of a write.

use serde::Deserialize;

use crate::check::{Content, Labels, Object};

/// The path of the collection.
pub(super) const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// The prefix of the keys in the history.
pub(crate) const PREFIX: &str = "configmaps/default/";

/// The names of the objects. Few, so that writes of different clients conflict.
pub(super) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The names of the objects that transactions of etcd write. No server writes them.
pub(super) const TRANSACTION_NAMES: [&str; 3] = ["t1", "t2", "t3"];

/// The values of the label `app`.
pub(super) const APPS: [&str; 2] = ["db", "web"];

/// An object, a list or a Status, as far as the simulation reads it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Document {
    pub(super) kind: String,
    pub(super) metadata: Metadata,
    pub(super) data: Data,
    pub(super) items: Vec<Document>,
    pub(super) reason: String,
    pub(super) code: u16,
    pub(super) message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) resource_version: String,
    pub(super) labels: Labels,
    pub(super) annotations: Labels,
    #[serde(rename = "continue")]
    pub(super) continue_token: String,
    pub(super) remaining_item_count: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Data {
    pub(super) value: String,
}

impl Document {
    /// Returns the resourceVersion; 0 if there is none.
    pub(crate) fn revision(&self) -> u64 {
        self.metadata.resource_version.parse().unwrap_or_default()
    }

    /// Returns the object for the history.
    pub(crate) fn object(&self) -> Object {
        let Metadata {
            namespace, name, ..
        } = &self.metadata;
        Object {
            key: format!("configmaps/{namespace}/{name}"),
            revision: self.revision(),
            content: Content {
                value: self.data.value.parse().unwrap_or_default(),
                labels: self.metadata.labels.clone(),
            },
        }
    }
}

/// Returns the key in the history.
pub(crate) fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Returns a content with this identity.
pub(super) fn content(value: u64, random: &mut fastrand::Rng) -> Content {
    let app = APPS[random.usize(..APPS.len())];
    Content {
        value,
        labels: [("app".to_owned(), app.to_owned())].into(),
    }
}

/// Returns the JSON of a config map.
pub(super) fn body(name: &str, content: &Content, revision: Option<u64>) -> String {
    let mut metadata = serde_json::json!({"name": name, "labels": content.labels});
    if let Some(revision) = revision {
        metadata["resourceVersion"] = revision.to_string().into();
    }
    let value = content.value.to_string();
    serde_json::json!({"metadata": metadata, "data": {"value": value}}).to_string()
}

/// Returns the JSON of a config map with its type.
pub(crate) fn config_map(name: &str, content: &Content) -> String {
    let metadata = serde_json::json!({"name": name, "labels": content.labels});
    let value = content.value.to_string();
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"value": value},
    })
    .to_string()
}

//! `OfNode`: a write of a node, which the other files check.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::super::cluster::{Cluster, GroupResource};
use super::super::super::error::AdmissionError;
use super::super::super::request::AdmissionRequest;

/// A write of a node.
pub(super) struct OfNode<'a> {
    pub(super) node: &'a str,
    pub(super) cluster: &'a dyn Cluster,
    pub(super) request: &'a AdmissionRequest<'a>,
}

impl OfNode<'_> {
    pub(super) fn refuse(&self, why: impl Into<String>) -> Result<(), AdmissionError> {
        Err(self.request.forbidden(why))
    }

    /// Returns a pod in the namespace of the request.
    pub(super) async fn stored_pod(&self, name: &str) -> Result<Value, AdmissionError> {
        const PODS: GroupResource<'static> = GroupResource::new("", "pods");
        let namespace = self.request.namespace;
        let found = self.cluster.object_or_latest(PODS, namespace, name).await?;
        found.ok_or_else(|| AdmissionError::NotFound {
            resource: "pods",
            name: name.to_owned(),
        })
    }
}

/// Returns the keys of two maps whose values differ, sorted. Null is an empty map.
pub(super) fn changed_keys(old: &Value, new: &Value) -> BTreeSet<String> {
    let none = Map::new();
    let map = |value: &'_ Value| value.as_object().cloned().unwrap_or_else(|| none.clone());
    let (old, new) = (map(old), map(new));
    let keys = old.keys().chain(new.keys());
    keys.filter(|key| old.get(*key) != new.get(*key))
        .cloned()
        .collect()
}

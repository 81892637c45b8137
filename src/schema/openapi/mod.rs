//! The documents that describe the API to clients: OpenAPI v3, one for each group and version, and OpenAPI
//! v2, one for all. They are made on demand, of the resources that are served; who asks how, and what is
//! kept of them, is the business of `http`.
//!
//! Descriptions and types of members are k8s-openapi's, of the same version; list types, merge rules and
//! defaults come from this room's tables. What clients do by these documents: `kubectl explain` reads
//! schemas, `kubectl apply` the merge rules, `kubectl create --validate` the parameters of PATCH.

mod components;
mod custom;
mod gnostic;
mod gnostic_v3;
mod kinds;
mod operations;
mod paths;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use self::components::Components;
use self::paths::{Dialect, Names};
use super::Types;

/// A resource as the documents tell of it.
#[derive(Debug, Clone)]
pub struct Served {
    /// Empty for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
    /// `Deployment`
    pub kind: String,
    /// `deployments`
    pub plural: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// As in discovery.
    pub verbs: Vec<String>,
    /// Its subresources.
    pub parts: Vec<Part>,
    /// Of a custom resource: the `openAPIV3Schema` of its version, null if it has none.
    pub schema: Option<Arc<Value>>,
    /// Of a custom resource: the paths of its selectable fields, like `spec.color`.
    pub selectable: Vec<String>,
}

/// A subresource as the documents tell of it.
#[derive(Debug, Clone)]
pub struct Part {
    /// `status`
    pub name: String,
    /// As in discovery.
    pub verbs: Vec<String>,
    /// What its bodies are when they are not the resource's own: group, version and kind.
    pub body: Option<(String, String, String)>,
}

/// What the documents say about the server.
#[derive(Debug, Clone)]
pub struct About {
    /// Its name.
    pub title: String,
    /// Its version.
    pub version: String,
}

impl Served {
    fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.clone(),
            false => format!("{}/{}", self.group, self.version),
        }
    }
}

/// The OpenAPI v3 document of the `resources` of one group and version.
pub fn v3(about: &About, types: &Types, resources: &[Served]) -> Value {
    let dialect = Dialect::V3;
    let names = Names::new(types, dialect);
    let schemas = Components::of(&names, resources);
    json!({
        "openapi": "3.0.0",
        "info": {"title": about.title, "version": about.version},
        "paths": paths_of(&names, resources),
        "components": {"schemas": schemas},
    })
}

/// The OpenAPI v2 document of all `resources`.
pub fn v2(about: &About, types: &Types, resources: &[Served]) -> Value {
    let dialect = Dialect::V2;
    let names = Names::new(types, dialect);
    let definitions = Components::of(&names, resources);
    json!({
        "swagger": "2.0",
        "info": {"title": about.title, "version": about.version},
        "paths": paths_of(&names, resources),
        "definitions": definitions,
    })
}

/// An OpenAPI v3 document in protobuf.
pub fn v3_protobuf(document: &Value) -> Vec<u8> {
    gnostic_v3::document(document)
}

/// An OpenAPI v2 document in protobuf, as `openapi.v2.Document` of gnostic has it.
pub fn v2_protobuf(document: &Value) -> Vec<u8> {
    gnostic::document(document)
}

fn paths_of(names: &Names<'_>, resources: &[Served]) -> Map<String, Value> {
    let mut paths = Map::new();
    for resource in resources {
        paths::add(names, resource, &mut paths);
    }
    paths
}

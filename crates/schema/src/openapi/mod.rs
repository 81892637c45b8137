//! OpenAPI documents: v3, one per group and version, and v2, one for all. They are generated on
//! demand from the served resources; `http` serves and caches them.
//!
//! Descriptions and member types are those of k8s-openapi for the same version; list types, merge
//! rules and defaults come from the tables of this module. `kubectl explain` reads schemas,
//! `kubectl apply` merge rules, `kubectl create --validate` the parameters of PATCH.

mod components;
mod constants;
mod custom;
mod definition_names;
mod dialect;
mod gnostic;
mod gnostic_v3;
mod kinds;
mod operations;
mod paths;
mod resource_description;
mod schema_text;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use self::components::Components;
use self::dialect::Dialect;
use self::paths::Names;
use super::Types;

pub use resource_description::{ResourceDescription, SubresourceDescription};
pub use schema_text::SchemaText;

/// The `info` of the documents.
#[derive(Debug, Clone)]
pub struct Info {
    /// The server's name.
    pub title: String,
    /// The server's version.
    pub version: String,
}

impl ResourceDescription {
    fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.clone(),
            false => format!("{}/{}", self.group, self.version),
        }
    }
}

/// Returns the OpenAPI v3 document of the `resources` of a group and version.
pub fn v3(about: &Info, types: &Types, resources: &[ResourceDescription]) -> Value {
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

/// Returns the OpenAPI v2 document of all `resources`.
pub fn v2(about: &Info, types: &Types, resources: &[ResourceDescription]) -> Value {
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

/// Encodes an OpenAPI v3 document in protobuf.
pub fn v3_protobuf(document: &Value) -> Vec<u8> {
    gnostic_v3::document(document)
}

/// Encodes an OpenAPI v2 document in protobuf (gnostic's `openapi.v2.Document`).
pub fn v2_protobuf(document: &Value) -> Vec<u8> {
    gnostic::document(document)
}

fn paths_of(names: &Names<'_>, resources: &[ResourceDescription]) -> Map<String, Value> {
    let mut paths = Map::new();
    for resource in resources {
        paths::add(names, resource, &mut paths);
    }
    paths
}

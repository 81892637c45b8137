//! The description of a resource, from which its part of the documents is generated.

use super::schema_text::SchemaText;

/// A resource, for the documents.
#[derive(Debug, Clone)]
pub struct ResourceDescription {
    /// Empty for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
    /// `Deployment`
    pub kind: String,
    /// `deployments`
    pub plural: String,
    /// True if its objects are namespaced.
    pub namespaced: bool,
    /// As in discovery.
    pub verbs: Vec<String>,
    /// The subresources.
    pub parts: Vec<SubresourceDescription>,
    /// The `openAPIV3Schema` of a custom resource version; null if it has none. `None` for built-in
    /// resources.
    pub schema: Option<SchemaText>,
    /// The paths of a custom resource's selectable fields, such as `spec.color`.
    pub selectable: Vec<String>,
}

/// A subresource, for the documents.
#[derive(Debug, Clone)]
pub struct SubresourceDescription {
    /// `status`
    pub name: String,
    /// As in discovery.
    pub verbs: Vec<String>,
    /// Group, version and kind of its bodies, if they are not the resource's own.
    pub body: Option<(String, String, String)>,
}

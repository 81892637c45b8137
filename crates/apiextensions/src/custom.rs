//! A version of a custom resource.

use std::sync::Arc;

use super::columns::Printer;
use super::definition::Scale;
use super::schema::Schema;
use super::versions::Versions;
use super::write_barrier::WriteBarrier;
use watchet_registry::{Rules, Strategy};
use watchet_schema::KindType;
use watchet_schema::openapi::SchemaText;

/// A version of a custom resource, which implements the strategy of its resource.
#[derive(Debug)]
pub(crate) struct Custom {
    /// True if the definition is being deleted: clients cannot create objects.
    pub(super) terminating: bool,
    /// The warning to clients, if the version is deprecated.
    pub(super) deprecation: Option<String>,
    /// The paths of the subresource `scale`, if the version has it.
    pub(super) scale: Option<Scale>,
    /// The number of the version in its definition, from 1. All versions share a cache, and conversions of its events
    /// are stored by this number.
    pub(super) ordinal: u32,
    /// True if clients can request the version. A version that is not served exists here if objects are stored in it.
    pub(super) served: bool,
    /// True if objects are stored in this version.
    pub(super) stores: bool,
    pub(super) printer: Printer,
    /// All versions of its definition.
    pub(super) versions: Arc<Versions>,
    /// True if storage may have objects of another version.
    pub(super) converts: bool,
    /// The type of its objects, from its schema.
    pub(super) kind: KindType,
    /// Its `openAPIV3Schema`, for the OpenAPI documents; null if it has none.
    pub(super) schema: SchemaText,
    /// Its `apiVersion`.
    pub(super) api_version: String,
    /// The compiled schema.
    pub(super) structure: Arc<Schema>,
    /// The writes that depend on this state of the definition.
    pub(super) writes: WriteBarrier,
    pub(super) rules: Rules,
    /// The strategy of the kinds of its subresources.
    pub(super) body_strategy: Arc<dyn Strategy>,
}

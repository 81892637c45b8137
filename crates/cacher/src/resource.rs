//! The properties of a resource that its cache needs.

use std::sync::Arc;

use watchet_api::{ColumnSet, FieldRef, StorageKey};
use watchet_metrics::ResourceMetrics;

/// The properties of a resource that a Cacher needs.
#[derive(Debug, Clone)]
pub struct CachedResource {
    /// The name in logs: `pods`, `deployments.apps`.
    pub name: String,
    /// True if the objects are namespaced; a name alone is no key then.
    pub namespaced: bool,
    /// The storage prefix of the objects, ending in `/`.
    pub prefix: StorageKey,
    /// The selectable fields.
    pub columns: Arc<ColumnSet>,
    /// Fields with an index (`spec.nodeName`): an event is offered only to watchers with its value,
    /// and lists examine only objects with theirs.
    pub triggers: Vec<FieldRef>,
    /// The metrics of the resource, labelled with group and plural name.
    pub metrics: Arc<ResourceMetrics>,
    /// Transforms stored bytes when they are read, if set.
    pub transform: Option<Arc<dyn StoredTransform>>,
}

/// A transformation of stored bytes. The cache applies it once to an object that comes out of
/// storage, so that reads need not.
pub trait StoredTransform: Send + Sync + std::fmt::Debug {
    /// Returns the transformed bytes, or `None` if `stored` is unchanged. Bytes that are not an
    /// object stay unchanged.
    fn transform(&self, stored: &[u8]) -> Option<Vec<u8>>;
}

//! The messages of the built-in types.

use std::sync::Arc;

use watchet_schema::{Field, Node, Types};

/// The prefix of every body.
pub(super) const MAGIC: &[u8] = b"k8s\0";
/// The maximum nesting depth, which protects the stack.
pub(super) const DEPTH_MAX: usize = 100;

/// The known messages of the built-in types.
#[derive(Debug)]
pub(crate) struct Schema(pub(super) Arc<Types>);

impl Schema {
    /// Creates the messages of these types.
    pub(crate) fn new(types: Arc<Types>) -> Self {
        Self(types)
    }

    /// Returns true if objects of this kind have a protobuf encoding.
    pub(crate) fn has_kind(&self, api_version: &str, kind: &str) -> bool {
        self.0.object_of(api_version, kind).is_some()
    }

    /// Returns the type of a field.
    pub(super) fn node(&self, field: &Field) -> Node {
        self.0.node(field.node())
    }
}

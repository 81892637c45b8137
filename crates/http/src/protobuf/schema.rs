//! The messages of the built-in types.

use std::sync::Arc;

use watchet_api::EncodingCache;
use watchet_schema::{Field, Node, Types};

use crate::protobuf::plan::Plan;

/// The prefix of every body.
pub(super) const MAGIC: &[u8] = b"k8s\0";
/// The maximum nesting depth, which protects the stack.
pub(super) const DEPTH_MAX: usize = 100;

/// The known messages of the built-in types, and the cache of encoded objects.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(super) types: Arc<Types>,
    pub(super) plan: Plan,
    pub(super) cache: Arc<EncodingCache>,
}

impl Schema {
    /// Creates the messages of these types; `cache` retains encoded objects.
    pub(crate) fn new(types: Arc<Types>, cache: Arc<EncodingCache>) -> Self {
        Self {
            plan: Plan::new(&types),
            types,
            cache,
        }
    }

    /// Creates the messages of the built-in types, with a cache of a megabyte.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Arc<Self> {
        Arc::new(Self::new(Types::builtins(), EncodingCache::new(1 << 20)))
    }

    /// Returns true if objects of this kind have a protobuf encoding.
    pub(crate) fn has_kind(&self, api_version: &str, kind: &str) -> bool {
        self.types.object_of(api_version, kind).is_some()
    }

    /// Returns the type of a field.
    pub(super) fn node(&self, field: &Field) -> Node {
        self.types.node(field.node())
    }
}

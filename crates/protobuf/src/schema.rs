//! The messages of the built-in types.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use watchet_api::EncodingCache;
use watchet_schema::Types;

use crate::plan::Plan;

/// The prefix of every body and stored value.
pub(super) const MAGIC: &[u8] = b"k8s\0";
/// The maximum nesting depth, which protects the stack.
pub(super) const DEPTH_MAX: usize = 100;

/// The messages of the built-in types.
#[derive(Debug)]
pub struct Messages {
    pub(super) types: Arc<Types>,
    /// Created by the first encoding: many servers never encode protobuf.
    plan: OnceLock<Plan>,
}

impl Messages {
    /// Creates the messages of these types.
    pub fn new(types: Arc<Types>) -> Self {
        Self {
            types,
            plan: OnceLock::new(),
        }
    }

    /// Returns the types.
    pub fn types(&self) -> &Arc<Types> {
        &self.types
    }

    /// Returns the plan of the messages.
    pub(super) fn plan(&self) -> &Plan {
        self.plan.get_or_init(|| Plan::new(&self.types))
    }

    /// Returns true if objects of this kind have a protobuf encoding.
    pub fn has_kind(&self, api_version: &str, kind: &str) -> bool {
        self.types.object_of(api_version, kind).is_some()
    }
}

/// The messages of the built-in types, and the cache of encoded objects.
#[derive(Debug)]
pub struct Schema {
    messages: Arc<Messages>,
    pub(super) cache: Arc<EncodingCache>,
}

impl Schema {
    /// Creates the schema of these messages; `cache` retains encoded objects.
    pub fn new(messages: Arc<Messages>, cache: Arc<EncodingCache>) -> Self {
        Self { messages, cache }
    }

    /// Creates the schema of the built-in types, with a cache of a megabyte.
    #[doc(hidden)]
    pub fn for_tests() -> Arc<Self> {
        let messages = Messages::new(Types::builtins());
        Arc::new(Self::new(Arc::new(messages), EncodingCache::new(1 << 20)))
    }
}

impl Deref for Schema {
    type Target = Messages;

    fn deref(&self) -> &Messages {
        &self.messages
    }
}

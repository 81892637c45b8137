//! Passes the values of a whole list to the caller without copying them, on several threads.

use watchet_api::{ResourceVersion, StorageKey};

/// A stored value during a visit.
#[derive(Debug, Clone, Copy)]
pub struct VisitedValue<'a> {
    /// The key.
    pub key: &'a StorageKey,
    /// The value.
    pub value: &'a [u8],
    /// The revision that wrote this value.
    pub mod_revision: ResourceVersion,
}

/// Receives the values of a list.
pub trait ListVisitor: Send + Sync {
    /// Receives the part of the list with this index, in key order. The indexes count from 0 in key
    /// order. Each part is passed once, but in any order, and several concurrently. A part may be
    /// empty; an empty list is one empty part. Must not block.
    fn visit(&self, index: usize, values: &[VisitedValue<'_>]);
}

//! The result of a list.

use std::sync::Arc;

use watchet_api::{Object, ResourceVersion};

/// The result of a list.
#[derive(Debug, Clone)]
pub struct ObjectList {
    /// The version of the list.
    pub resource_version: ResourceVersion,
    /// The objects, in key order.
    pub items: Vec<Arc<Object>>,
    /// The continue token, if there is more.
    pub continue_token: Option<String>,
    /// The number of objects after the items, if known.
    pub remaining: Option<u64>,
}

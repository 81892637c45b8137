//! The items of a watch.

use std::sync::Arc;

use super::ReadError;
use watchet_api::{Object, ResourceVersion, WatchEvent};

/// An item of a watch.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// ADDED, part of the initial state.
    Initial(Arc<Object>),
    /// A change.
    Event(Arc<WatchEvent>),
    /// The watch has sent every event up to this version.
    Bookmark {
        /// The version.
        resource_version: ResourceVersion,
        /// True if it ends the initial events (KEP-3157); it then has the annotation for that.
        initial_events_end: bool,
    },
    /// The watch failed; no item follows.
    Error(ReadError),
}

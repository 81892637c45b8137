//! The type of a watch event.

/// The `type` of a watch event that carries an object of the watched resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object is new to the watcher.
    Added,
    /// The object changed and still matches.
    Modified,
    /// The object was deleted or no longer matches; the event carries its last matching state.
    Deleted,
}

impl EventType {
    /// Returns the value of `type` in the watch event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

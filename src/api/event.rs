//! Watch events as a client sees them: a type and an object at a version. An event also holds its
//! encoded frame, so that it is encoded once however many clients watch; how a frame reaches a
//! socket is the business of `http`.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::{Object, ResourceVersion};

/// The `type` of a watch event that carries an object of the watched resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object is new to the watcher.
    Added,
    /// The object changed and still matches.
    Modified,
    /// The object is gone, or matches no longer; the body is its last matching state.
    Deleted,
}

impl EventType {
    /// The wire's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change as told to every watcher that sees it the same way.
#[derive(Debug)]
pub struct WatchEvent {
    event_type: EventType,
    object: Arc<Object>,
    frame: OnceLock<Bytes>,
}

impl WatchEvent {
    /// The event `event_type` about `object`, whose resource version is the event's.
    pub fn new(event_type: EventType, object: Arc<Object>) -> Self {
        Self {
            event_type,
            object,
            frame: OnceLock::new(),
        }
    }

    /// What happened.
    pub fn event_type(&self) -> EventType {
        self.event_type
    }

    /// The object after the change; for `Deleted` its last state, at the version of the deletion.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// The version of the event.
    pub fn resource_version(&self) -> ResourceVersion {
        self.object.resource_version()
    }

    /// The JSON frame `{"type":…,"object":…}` and a newline, made once and shared.
    pub fn json_frame(&self) -> Bytes {
        self.frame
            .get_or_init(|| self.object.json_frame(self.event_type))
            .clone()
    }
}

//! Watch events as a client sees them: a type and an object at a version. An event also holds its
//! encoded frame, so that it is encoded once however many clients watch; how a frame reaches a
//! socket is the business of `http`.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

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
    previous: Option<Arc<Object>>,
    frame: OnceLock<Bytes>,
    /// Frames in other representations, few and rarely any, so that an event stays small.
    other_frames: Mutex<Vec<SharedFrame>>,
}

/// A frame in the representation `format`, good while `stamp` is the one asked for.
#[derive(Debug)]
struct SharedFrame {
    format: u32,
    stamp: i64,
    bytes: Bytes,
}

impl WatchEvent {
    /// The event `event_type` about `object`, whose resource version is the event's.
    pub fn new(event_type: EventType, object: Arc<Object>) -> Self {
        Self {
            event_type,
            object,
            previous: None,
            frame: OnceLock::new(),
            other_frames: Mutex::new(Vec::new()),
        }
    }

    /// The same of an object that was `previous` before.
    pub fn after(self, previous: Option<Arc<Object>>) -> Self {
        Self { previous, ..self }
    }

    /// The object before the change, where that is known.
    pub fn previous(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
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

    /// The frame in another representation, shared by all who ask with the same `format` and
    /// `stamp`. The numbers are the caller's: a format is a representation, and a stamp says what
    /// else the bytes depend on (the second in which ages were told; 0 when nothing). A frame of an
    /// older stamp is forgotten. `make` runs under the event's lock, so that it runs once.
    ///
    /// # Errors
    /// Those of `make`; nothing is kept then.
    pub fn frame_as<E>(
        &self,
        format: u32,
        stamp: i64,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let mut frames = self.other_frames.lock();
        let place = frames.iter().position(|frame| frame.format == format);
        if let Some(at) = place
            && frames[at].stamp == stamp
        {
            return Ok(frames[at].bytes.clone());
        }
        let frame = SharedFrame {
            format,
            stamp,
            bytes: make()?,
        };
        let bytes = frame.bytes.clone();
        match place {
            Some(at) => frames[at] = frame,
            None => frames.push(frame),
        }
        Ok(bytes)
    }

    /// Lets go of the frames that [`Self::frame_as`] keeps; the next who asks makes them again.
    pub fn forget_frames(&self) {
        *self.other_frames.lock() = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ColumnSet, ObjectKey};

    #[test]
    fn wc_197_a_frame_of_a_format_is_made_once_per_stamp() {
        let object = Object::decode(
            ObjectKey::from("a"),
            ResourceVersion::new(1),
            EventType::Added,
            br#"{"metadata":{}}"#,
            &ColumnSet::default(),
        );
        let event = WatchEvent::new(EventType::Added, Arc::new(object.unwrap()));
        let mut made = 0;
        let mut ask = |format, stamp| {
            let make = || {
                made += 1;
                Ok::<_, ()>(Bytes::from(format!("{format} {stamp}")))
            };
            event.frame_as(format, stamp, make).unwrap()
        };
        assert_eq!(ask(1, 10), "1 10");
        assert_eq!(ask(1, 10), "1 10");
        assert_eq!(ask(2, 10), "2 10");
        assert_eq!(ask(1, 11), "1 11");
        event.forget_frames();
        assert_eq!(ask(2, 10), "2 10");
        assert_eq!(made, 4);
        assert_eq!(event.frame_as(3, 0, || Err("no")), Err("no"));
    }
}

//! Watch events: an event type and an object at a resourceVersion. An event caches its encoded
//! frames, so that each encoding is computed once for all watchers.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

#[cfg(feature = "planted-bugs")]
use super::planted_bug::{PlantedBug, is_planted};
use super::{EventType, Object, ResourceVersion};

/// One watch event, shared by all watchers that receive it with this type.
#[derive(Debug)]
pub struct WatchEvent {
    event_type: EventType,
    object: Arc<Object>,
    previous: Option<Arc<Object>>,
    frame: OnceLock<Bytes>,
    /// Frames in encodings other than JSON.
    other_frames: Mutex<Vec<SharedFrame>>,
}

/// A cached frame in the encoding `format`, valid for requests with the same `stamp`.
#[derive(Debug)]
struct SharedFrame {
    format: u32,
    stamp: i64,
    bytes: Bytes,
}

impl WatchEvent {
    /// Returns the event `event_type` for `object`, whose resourceVersion is the event's.
    pub fn new(event_type: EventType, object: Arc<Object>) -> Self {
        Self {
            event_type,
            object,
            previous: None,
            frame: OnceLock::new(),
            other_frames: Mutex::new(Vec::new()),
        }
    }

    /// Sets the object's state before the change.
    #[must_use]
    pub fn after(self, previous: Option<Arc<Object>>) -> Self {
        Self { previous, ..self }
    }

    /// Returns the object's state before the change, if known.
    pub fn previous(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    /// Returns the event's type.
    pub fn event_type(&self) -> EventType {
        self.event_type
    }

    /// Returns the object after the change; for `Deleted` its last state at the resourceVersion of
    /// the deletion.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Returns the event's resourceVersion.
    pub fn resource_version(&self) -> ResourceVersion {
        self.object.resource_version()
    }

    /// Returns the JSON frame `{"type":…,"object":…}` and a newline; all callers share the bytes.
    pub fn json_frame(&self) -> Bytes {
        #[cfg(feature = "planted-bugs")]
        if let (EventType::Deleted, Some(previous)) = (self.event_type, &self.previous)
            && is_planted(PlantedBug::DeletionAtOldVersion)
        {
            return previous.json_frame(self.event_type);
        }
        self.frame
            .get_or_init(|| self.object.json_frame(self.event_type))
            .clone()
    }

    /// Returns the frame in another encoding, shared by all callers with the same `format` and
    /// `stamp`. The caller defines both numbers: a format is an encoding, and a stamp stands for
    /// other input of the bytes (the second in which a Table's ages were computed; 0 if none). A
    /// frame with a newer stamp replaces the older one. `encode` runs under the event's lock, so that
    /// it runs once.
    ///
    /// # Errors
    /// Returns the error of `encode`; nothing is cached then.
    pub fn frame_as<E>(
        &self,
        format: u32,
        stamp: i64,
        encode: impl FnOnce() -> Result<Bytes, E>,
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
            bytes: encode()?,
        };
        let bytes = frame.bytes.clone();
        match place {
            Some(at) => frames[at] = frame,
            None => frames.push(frame),
        }
        Ok(bytes)
    }

    /// Drops the frames that [`Self::frame_as`] caches.
    pub fn forget_frames(&self) {
        *self.other_frames.lock() = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnSet, ObjectKey};

    #[test]
    fn wc_197_frame_is_encoded_once_per_format_and_stamp() {
        let object = Object::decode(
            ObjectKey::from("a"),
            ResourceVersion::new(1),
            EventType::Added,
            br#"{"metadata":{}}"#,
            &ColumnSet::default(),
        );
        let event = WatchEvent::new(EventType::Added, Arc::new(object.unwrap()));
        let mut encoded = 0;
        let mut frame = |format, stamp| {
            let encode = || {
                encoded += 1;
                Ok::<_, ()>(Bytes::from(format!("{format} {stamp}")))
            };
            event.frame_as(format, stamp, encode).unwrap()
        };
        assert_eq!(frame(1, 10), "1 10");
        assert_eq!(frame(1, 10), "1 10");
        assert_eq!(frame(2, 10), "2 10");
        assert_eq!(frame(1, 11), "1 11");
        event.forget_frames();
        assert_eq!(frame(2, 10), "2 10");
        assert_eq!(encoded, 4);
        assert_eq!(event.frame_as(3, 0, || Err("no")), Err("no"));
    }
}

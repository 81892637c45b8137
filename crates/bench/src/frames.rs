//! Splits the body of a watch into frames and reads the event type of each, in JSON (one per line)
//! and protobuf (length-prefixed). `decode` reads the object.

use memchr::memchr;

use super::decode::{self, Malformed, Object, field};
use super::encoding::{Encoding, Wire};

/// The size of a protobuf frame's length prefix, a big-endian number.
const LENGTH_BYTES: usize = 4;

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    /// An ERROR event, which ends the watch.
    Error,
}

/// A decoded frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub kind: Kind,
    pub object: Object<'a>,
    bytes: &'a [u8],
}

/// Splits a stream of bytes into frames.
#[derive(Debug)]
pub(super) struct Frames {
    encoding: Encoding,
    /// The beginning of an incomplete frame.
    incomplete: Vec<u8>,
}

impl Kind {
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"ADDED" => Self::Added,
            b"MODIFIED" => Self::Modified,
            b"DELETED" => Self::Deleted,
            b"BOOKMARK" => Self::Bookmark,
            b"ERROR" => Self::Error,
            _ => return None,
        })
    }
}

impl<'a> Frame<'a> {
    /// Decodes `bytes`, a complete frame.
    ///
    /// # Errors
    /// It is not a watch frame.
    pub(super) fn read(encoding: Encoding, bytes: &'a [u8]) -> Result<Self, Malformed> {
        const MALFORMED: Malformed = Malformed("a frame of a watch");
        let (name, object) = match encoding.wire() {
            Wire::Json => {
                // Both Go's encoder and ours write the type first.
                let name = bytes.strip_prefix(br#"{"type":""#).ok_or(MALFORMED)?;
                let end = memchr(b'"', name).ok_or(MALFORMED)?;
                (&name[..end], bytes)
            }
            Wire::Protobuf => {
                let name = decode::field_of(bytes, field::EVENT_TYPE)?;
                let object = decode::field_of(bytes, field::EVENT_OBJECT)?;
                (name, decode::field_of(object, field::EXTENSION_RAW)?)
            }
        };
        Ok(Self {
            kind: Kind::of(name).ok_or(MALFORMED)?,
            object: Object::read(encoding, object)?,
            bytes,
        })
    }

    /// Returns the frame as readable text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes).into_owned()
    }
}

impl Frames {
    pub(super) fn new(encoding: Encoding) -> Self {
        Self {
            encoding,
            incomplete: Vec::new(),
        }
    }

    /// Calls `each` with every frame that is completed by `bytes`.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Result<Frame<'_>, Malformed>),
    ) {
        let encoding = self.encoding;
        let each = |frame: &[u8]| each(Frame::read(encoding, frame));
        match encoding.wire() {
            Wire::Json => self.lines(bytes, each),
            Wire::Protobuf => self.prefixed(bytes, each),
        }
    }

    fn lines(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            if self.incomplete.is_empty() {
                each(line);
            } else {
                self.incomplete.extend_from_slice(line);
                each(&self.incomplete);
                self.incomplete.clear();
            }
            bytes = &rest[1..];
        }
        self.incomplete.extend_from_slice(bytes);
    }

    fn prefixed(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        // Only an incomplete frame is copied.
        while !self.incomplete.is_empty() && !bytes.is_empty() {
            let frame_length = match frame_of(&self.incomplete) {
                Some(length) => LENGTH_BYTES + length - self.incomplete.len(),
                None => LENGTH_BYTES - self.incomplete.len(),
            };
            let (taken, rest) = bytes.split_at(frame_length.min(bytes.len()));
            self.incomplete.extend_from_slice(taken);
            bytes = rest;
            if frame_of(&self.incomplete)
                .is_some_and(|length| self.incomplete.len() == LENGTH_BYTES + length)
            {
                each(&self.incomplete[LENGTH_BYTES..]);
                self.incomplete.clear();
            }
        }
        while let Some(length) = frame_of(bytes)
            && let Some((frame, rest)) = bytes[LENGTH_BYTES..].split_at_checked(length)
        {
            each(frame);
            bytes = rest;
        }
        self.incomplete.extend_from_slice(bytes);
    }
}

/// Returns the length of the frame at the start of `bytes`, if the prefix is complete.
fn frame_of(bytes: &[u8]) -> Option<usize> {
    let (length, _) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    Some(u32::from_be_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use k8s_pb::api::core::v1::ConfigMap;
    use k8s_pb::apimachinery::pkg::apis::meta::v1::{ObjectMeta, WatchEvent};
    use k8s_pb::apimachinery::pkg::runtime::{RawExtension, Unknown};
    use prost::Message;

    use super::*;

    fn json(name: &str, version: u64) -> Vec<u8> {
        let object = format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#);
        format!("{{\"type\":\"{name}\",\"object\":{object}}}\n").into_bytes()
    }

    fn protobuf(name: &str, version: u64) -> Vec<u8> {
        let object = ConfigMap {
            metadata: Some(ObjectMeta {
                resource_version: Some(version.to_string()),
                ..ObjectMeta::default()
            }),
            // Long enough that the length prefix needs more than one byte.
            data: [("k".to_owned(), "v".repeat(300))].into(),
            ..ConfigMap::default()
        };
        let envelope = Unknown {
            raw: Some(object.encode_to_vec()),
            ..Unknown::default()
        };
        let raw = [decode::MAGIC, &envelope.encode_to_vec()].concat();
        let event = WatchEvent {
            r#type: Some(name.to_owned()),
            object: Some(RawExtension { raw: Some(raw) }),
        };
        let event = event.encode_to_vec();
        [&(event.len() as u32).to_be_bytes()[..], &event].concat()
    }

    #[test]
    fn frames_do_not_depend_on_read_boundaries() {
        let expected_frames = [
            ("ADDED", Kind::Added),
            ("MODIFIED", Kind::Modified),
            ("DELETED", Kind::Deleted),
            ("BOOKMARK", Kind::Bookmark),
            ("ERROR", Kind::Error),
        ];
        for (encoding, frame) in [
            (Encoding::Json, json as fn(&str, u64) -> Vec<u8>),
            (Encoding::Protobuf, protobuf),
        ] {
            let numbered = || expected_frames.iter().zip(1..);
            let body: Vec<u8> = numbered()
                .flat_map(|((name, _), version)| frame(name, version))
                .collect();
            let expected: Vec<_> = numbered()
                .map(|((_, kind), version)| (*kind, Some(version)))
                .collect();
            for size in 1..=body.len() {
                let mut frames = Frames::new(encoding);
                let mut found = Vec::new();
                for piece in body.chunks(size) {
                    frames.push(piece, |frame| {
                        let frame = frame.unwrap();
                        found.push((frame.kind, frame.object.version()));
                    });
                }
                assert_eq!(found, expected, "{encoding:?} in pieces of {size}");
                frames.push(&body[..3], |_| panic!("the frame is incomplete"));
            }
        }
    }

    #[test]
    fn invalid_frames_are_rejected() {
        for line in ["", "{}", r#"{"type":"#, r#"{"type":"OTHER","object":{}}"#] {
            assert!(
                Frame::read(Encoding::Json, line.as_bytes()).is_err(),
                "{line}"
            );
        }
        assert!(Frame::read(Encoding::Protobuf, b"\x0a\x05ADD").is_err());
        assert!(Frame::read(Encoding::Protobuf, b"").is_err());
    }
}

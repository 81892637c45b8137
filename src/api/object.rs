//! `Object`: one version of one object as the cache holds it, which is its JSON bytes, once, plus
//! the few columns that selection needs. It is never parsed again on a read.
//!
//! # Layout
//!
//! The bytes begin with a whole watch frame, because a frame is what they are most often sent as:
//!
//! ```text
//! {"type":"MODIFIED","object":{"apiVersion":…,"metadata":{"resourceVersion":"7",…},…}}\n…    …
//!                             ^------------------- body --------------------------^  ^    ^ columns
//!                                                                                    ^ aside
//! ```
//!
//! so a list takes a slice of the middle, and the usual event takes the frame; neither copies. A column
//! is a place in those bytes, and so costs eight more: most of their texts stand in the body. Those that
//! do not (escaped ones, defaults) are set aside after the frame. The columns are the uid, key and value
//! of each label, sorted by key, and the fields, by index of the resource's [`ColumnSet`].

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memchr2;

use super::labels::Marks;
use super::scan::scan;
use super::{ColumnSet, EventType, FieldRef, LabelSelector, ObjectKey, ResourceVersion};

const FRAME_TAIL: &[u8] = b"}\n";

const fn frame_head(event_type: EventType) -> &'static [u8] {
    match event_type {
        EventType::Added => br#"{"type":"ADDED","object":"#,
        EventType::Modified => br#"{"type":"MODIFIED","object":"#,
        EventType::Deleted => br#"{"type":"DELETED","object":"#,
    }
}

/// One version of an object: bytes and columns. Immutable; shared by `Arc`.
#[derive(Debug, Clone)]
pub struct Object {
    key: ObjectKey,
    resource_version: ResourceVersion,
    bytes: Bytes,
    frame_len: u32,
    /// Where the columns begin.
    columns_at: u32,
    /// The type that the frame tells.
    event_type: EventType,
    /// The member that was spliced in, empty at zero.
    version: Span,
    marks: Marks,
    label_count: u32,
}

/// A place in an object's bytes.
#[derive(Debug, Clone, Copy)]
struct Span {
    at: u32,
    len: u32,
}

impl Span {
    fn new(range: Range<usize>) -> Self {
        Self {
            at: narrow(range.start),
            len: narrow(range.len()),
        }
    }

    const BYTES: usize = 8;

    fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            at: u32::from_le_bytes([a, b, c, d]),
            len: u32::from_le_bytes([e, f, g, h]),
        }
    }

    fn to_bytes(self) -> impl Iterator<Item = u8> {
        [self.at, self.len].into_iter().flat_map(u32::to_le_bytes)
    }

    fn range(self) -> Range<usize> {
        let at = self.at as usize;
        at..at + self.len as usize
    }

    /// The same text after what is before it has changed.
    fn moved(self, to: impl Fn(usize) -> usize) -> Self {
        let Range { start, end } = self.range();
        let moved = to(start);
        Self::new(moved..moved + (end - start))
    }
}

/// Of bytes of one object, which are far fewer than 4 GiB: no back end takes so many.
fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("an object is smaller than 4 GiB")
}

/// Stored bytes are not a Kubernetes object in JSON.
#[derive(Debug, thiserror::Error)]
#[error("undecodable object {key}: {source}")]
pub struct DecodeError {
    /// Which object.
    pub key: ObjectKey,
    /// What is wrong with it.
    #[source]
    pub source: serde_json::Error,
}

impl Object {
    /// The object that storage holds as `stored` at revision `at`, about which `event_type` is told.
    /// At zero it is stored nowhere (a dry run's) and its body names no version.
    ///
    /// # Errors
    /// [`DecodeError`] when `stored` is not a JSON object with an object `metadata`.
    pub fn decode(
        key: ObjectKey,
        at: ResourceVersion,
        event_type: EventType,
        stored: &[u8],
        columns: &ColumnSet,
    ) -> Result<Self, DecodeError> {
        let made = Self::read(&key, at, event_type, stored, columns);
        made.map_err(|source| DecodeError { key, source })
    }

    fn read(
        key: &ObjectKey,
        at: ResourceVersion,
        event_type: EventType,
        stored: &[u8],
        columns: &ColumnSet,
    ) -> Result<Self, serde_json::Error> {
        let stored = stored.trim_ascii();
        let scanned = scan(stored, columns)?;
        if memchr2(b'\n', b'\r', stored).is_some() {
            // Clients read a watch line by line, and line breaks in JSON are only white space.
            let is_in_line = |byte: &&u8| !matches!(byte, b'\n' | b'\r');
            let line: Vec<u8> = stored.iter().filter(is_in_line).copied().collect();
            return Self::read(key, at, event_type, &line, columns);
        }
        if scanned.has_version {
            // Not ours: everything written here has it blanked. Tolerated, at a price.
            let blanked = without_resource_version(stored)?;
            return Self::read(key, at, event_type, &blanked, columns);
        }
        let mut aside = Vec::new();
        let mut place = |text: &str| match offset_within(stored, text) {
            Some(offset) => Span::new(offset..offset + text.len()),
            None => {
                aside.extend(text.as_bytes());
                let end = stored.len() + aside.len();
                Span::new(end - text.len()..end)
            }
        };
        let mut texts = vec![place(&scanned.uid)];
        let mut marks = Marks::NONE;
        for (name, value) in &scanned.labels {
            texts.extend([place(name), place(value)]);
            marks = marks.with(Marks::of_key(name)).with(Marks::of(name, value));
        }
        texts.extend(scanned.fields.iter().map(|field| place(field)));

        let metadata = offset_within(stored, scanned.metadata).expect("it is a part of it");
        let (before, after) = stored.split_at(metadata + 1);
        let splice = Splice::new(event_type, before, at, after);
        let (version, frame_len) = (splice.version(), splice.frame_len());
        let moved = |at| match at {
            _ if at < before.len() => at + splice.head.len(),
            _ if at < stored.len() => at - before.len() + version.end,
            _ => at - stored.len() + frame_len,
        };
        let texts = texts.into_iter().map(|text| text.moved(moved));
        Ok(Self {
            key: key.clone(),
            resource_version: at,
            event_type,
            frame_len: narrow(frame_len),
            columns_at: narrow(frame_len + aside.len()),
            marks,
            label_count: narrow(scanned.labels.len()),
            bytes: splice.with(&aside, texts),
            version: Span::new(version),
        })
    }

    /// Where the object is inside its resource.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The version of these bytes.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// `metadata.uid`, empty when there is none.
    pub fn uid(&self) -> &str {
        self.text(0)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        // They are in the order of their names. Most have few, but nothing bounds them.
        let (mut from, mut to) = (0, self.label_count as usize);
        while from < to {
            let middle = from.midpoint(to);
            let name = 1 + 2 * middle;
            match self.bytes[self.column(name).range()].cmp(key.as_bytes()) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return Some(self.text(name + 1)),
            }
        }
        None
    }

    /// Whether the selector selects its labels.
    pub fn is_selected_by(&self, selector: &LabelSelector) -> bool {
        selector.selects(self.marks, |key| self.label(key))
    }

    /// The value of a selectable field; one that the object lacks reads as its default.
    pub fn field(&self, field: FieldRef) -> &str {
        match field {
            FieldRef::Name => self.key.name(),
            FieldRef::Namespace => self.key.namespace(),
            FieldRef::Column(index) => self.text(1 + 2 * self.label_count as usize + index),
        }
    }

    fn columns(&self) -> impl Iterator<Item = Span> {
        let (columns, _) = self.bytes[self.columns_at as usize..].as_chunks();
        columns.iter().map(|bytes| Span::from_bytes(*bytes))
    }

    fn column(&self, number: usize) -> Span {
        let (columns, _) = self.bytes[self.columns_at as usize..].as_chunks();
        Span::from_bytes(columns[number])
    }

    fn text(&self, number: usize) -> &str {
        let text = &self.bytes[self.column(number).range()];
        std::str::from_utf8(text).expect("a text was found or put there")
    }

    /// The JSON of the object, `metadata.resourceVersion` included. Shares the cached bytes.
    pub fn body(&self) -> Bytes {
        self.bytes.slice(self.body_range())
    }

    /// The JSON of the object, borrowed.
    pub fn body_slice(&self) -> &[u8] {
        &self.bytes[self.body_range()]
    }

    fn body_range(&self) -> std::ops::Range<usize> {
        frame_head(self.event_type).len()..self.frame_len as usize - FRAME_TAIL.len()
    }

    /// The watch frame that tells `event_type` about this object; shared bytes when the object was
    /// decoded from just such an event, else a copy.
    pub fn json_frame(&self, event_type: EventType) -> Bytes {
        if event_type == self.event_type {
            self.bytes.slice(..self.frame_len as usize)
        } else {
            frame(frame_head(event_type), self.body_slice())
        }
    }

    /// Appends the frame that tells `event_type` about this object.
    pub fn write_json_frame(&self, event_type: EventType, out: &mut BytesMut) {
        out.put_slice(frame_head(event_type));
        out.put_slice(self.body_slice());
        out.put_slice(FRAME_TAIL);
    }

    /// How much memory the object holds, in bytes, within a few words.
    pub fn memory(&self) -> usize {
        let key = 2 * size_of::<usize>() + self.key.as_str().len();
        size_of::<Self>() + self.bytes.len() + key
    }

    /// The same object as the deletion at `at` tells it: its last state under the new version.
    pub fn deleted_at(&self, at: ResourceVersion) -> Arc<Self> {
        let (body, old, event_type) = (self.body_range(), self.version.range(), EventType::Deleted);
        let aside = &self.bytes[self.frame_len as usize..self.columns_at as usize];
        let before = &self.bytes[body.start..old.start];
        let after = &self.bytes[old.end..body.end];
        let splice = Splice::new(event_type, before, at, after);
        let (version, frame_len) = (splice.version(), splice.frame_len());
        // Nothing is in the version itself.
        let moved = |at| match at < old.end {
            true => at - body.start + splice.head.len(),
            false => at - old.end + version.end,
        };
        let texts = self.columns().map(|text| text.moved(moved));
        Arc::new(Self {
            key: self.key.clone(),
            resource_version: at,
            event_type,
            frame_len: narrow(frame_len),
            columns_at: narrow(frame_len + aside.len()),
            bytes: splice.with(aside, texts),
            version: Span::new(version),
            ..*self
        })
    }
}

/// Where `part` begins when it is a slice of `whole`, wherever when it is empty.
fn offset_within(whole: &[u8], part: &str) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    let offset = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (offset < whole.len()).then_some(offset)
}

fn frame(head: &[u8], body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(head.len() + body.len() + FRAME_TAIL.len());
    out.put_slice(head);
    out.put_slice(body);
    out.put_slice(FRAME_TAIL);
    out.freeze()
}

/// The frame of the body `before` and `after`, between which `metadata` begins, with the version as the
/// first member of that.
struct Splice<'a> {
    head: &'static [u8],
    before: &'a [u8],
    version: String,
    after: &'a [u8],
}

impl<'a> Splice<'a> {
    fn new(event_type: EventType, before: &'a [u8], at: ResourceVersion, after: &'a [u8]) -> Self {
        let last = after.trim_ascii_start().starts_with(b"}");
        let version = match at.is_zero() {
            true => String::new(),
            false => format!(r#""resourceVersion":"{at}"{}"#, if last { "" } else { "," }),
        };
        Self {
            head: frame_head(event_type),
            before,
            version,
            after,
        }
    }

    fn version(&self) -> Range<usize> {
        let start = self.head.len() + self.before.len();
        start..start + self.version.len()
    }

    fn frame_len(&self) -> usize {
        self.version().end + self.after.len() + FRAME_TAIL.len()
    }

    /// An object's bytes. The buffer is sized exactly: what the cache keeps has no slack.
    fn with(&self, aside: &[u8], columns: impl Iterator<Item = Span>) -> Bytes {
        let columns: Vec<u8> = columns.flat_map(Span::to_bytes).collect();
        let version = self.version.as_bytes();
        let frame = [self.head, self.before, version, self.after, FRAME_TAIL];
        let size = self.frame_len() + aside.len() + columns.len();
        let mut out = BytesMut::with_capacity(size);
        for part in frame.into_iter().chain([aside, &columns]) {
            out.put_slice(part);
        }
        debug_assert_eq!(out.len(), size);
        out.freeze()
    }
}

/// Removes `metadata.resourceVersion` by way of a parsed tree.
fn without_resource_version(json: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let mut value: serde_json::Value = serde_json::from_slice(json)?;
    if let Some(metadata) = value.get_mut("metadata").and_then(|m| m.as_object_mut()) {
        metadata.remove("resourceVersion");
    }
    serde_json::to_vec(&value)
}

#[cfg(test)]
mod tests;

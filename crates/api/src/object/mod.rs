//! `Object`: one version of one object as the cache stores it: its JSON bytes and the columns that
//! selectors need. Reads never parse it.
//!
//! # Layout
//!
//! The bytes start with a complete watch frame, the most frequent encoding:
//!
//! ```text
//! {"type":"MODIFIED","object":{"apiVersion":…,"metadata":{"resourceVersion":"7",…},…}}\n…    …
//!                             ^------------------- body --------------------------^  ^    ^ columns
//!                                                                                    ^ aside
//! ```
//!
//! A list copies a slice of the middle and the usual event sends the frame; neither re-encodes. A
//! column is an offset and a length in those bytes and takes eight bytes at the end; most column
//! texts are part of the body, the others (escaped texts, defaults) follow the frame (`aside`). The
//! columns are the uid, key and value of each label, sorted by key, and the fields, in the order of
//! the resource's [`ColumnSet`].

mod encoding;

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memchr2;

pub use encoding::EncodedObject;
use encoding::EncodingSlot;
pub(super) use encoding::EncodingUsage;

use super::labels::LabelFilter;
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
    /// Offset of the first column.
    columns_at: u32,
    /// The event type in the frame.
    event_type: EventType,
    /// The spliced `resourceVersion` member; empty if the version is zero.
    version: Span,
    label_filter: LabelFilter,
    label_count: u32,
    /// The length of `metadata`, whose first member is the version.
    metadata_len: u32,
    encoding: EncodingSlot,
}

/// A range of an object's bytes.
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

    fn write_to(self, out: &mut Vec<u8>) {
        out.extend(self.at.to_le_bytes());
        out.extend(self.len.to_le_bytes());
    }

    fn range(self) -> Range<usize> {
        let at = self.at as usize;
        at..at + self.len as usize
    }

    /// Returns the span of the same text after the bytes before it changed.
    fn moved(self, to: impl Fn(usize) -> usize) -> Self {
        let Range { start, end } = self.range();
        let moved = to(start);
        Self::new(moved..moved + (end - start))
    }
}

/// Converts a length of one object's bytes, which is far below 4 GiB in every back end.
fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("an object is smaller than 4 GiB")
}

/// Stored bytes are not a Kubernetes object in JSON.
#[derive(Debug, thiserror::Error)]
#[error("undecodable object {key}: {source}")]
pub struct DecodeError {
    /// The key of the object.
    pub key: ObjectKey,
    /// The JSON error.
    #[source]
    pub source: serde_json::Error,
}

impl Object {
    /// Decodes the value `stored` at revision `at`, with the frame of an `event_type` event. If
    /// `at` is zero (a dry run) the body has no resourceVersion.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if `stored` is not a JSON object with an object `metadata`.
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
            // Another API server wrote it: this server never stores the member.
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
        let mut label_filter = LabelFilter::NONE;
        for (name, value) in &scanned.labels {
            texts.extend([place(name), place(value)]);
            label_filter = label_filter
                .with(LabelFilter::of_key(name))
                .with(LabelFilter::of(name, value));
        }
        texts.extend(scanned.fields.iter().map(|field| place(field)));

        let metadata = offset_within(stored, scanned.metadata)
            .expect("the metadata is a slice of the stored bytes");
        let (before, after) = stored.split_at(metadata + 1);
        let splice = Splice::new(event_type, before, at, after);
        let (version, frame_len) = (splice.version(), splice.frame_len());
        let metadata_len = scanned.metadata.len() + version.len();
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
            label_filter,
            label_count: narrow(scanned.labels.len()),
            metadata_len: narrow(metadata_len),
            bytes: splice.with(&aside, texts),
            version: Span::new(version),
            encoding: EncodingSlot::default(),
        })
    }

    /// Returns the object's key within its resource.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the object's resourceVersion.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Returns `metadata.uid`, or an empty string.
    pub fn uid(&self) -> &str {
        self.text(0)
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        // Labels are sorted. Their number is unbounded, hence a binary search.
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

    /// Returns true if the selector matches the object's labels.
    pub fn is_selected_by(&self, selector: &LabelSelector) -> bool {
        selector.selects(self.label_filter, |key| self.label(key))
    }

    /// Returns the value of a selectable field, or the column's default.
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
        std::str::from_utf8(text).expect("columns are UTF-8")
    }

    /// Returns the object's JSON with `metadata.resourceVersion`. Shares the cached bytes.
    pub fn body(&self) -> Bytes {
        self.bytes.slice(self.body_range())
    }

    /// Returns the object's JSON with `metadata.resourceVersion`, borrowed.
    pub fn body_slice(&self) -> &[u8] {
        &self.bytes[self.body_range()]
    }

    fn body_range(&self) -> std::ops::Range<usize> {
        frame_head(self.event_type).len()..self.frame_len as usize - FRAME_TAIL.len()
    }

    /// Returns the JSON of `metadata` with `resourceVersion`, borrowed.
    pub fn metadata_slice(&self) -> &[u8] {
        // The version is the first member, after the brace.
        let at = self.version.range().start - 1;
        &self.bytes[at..at + self.metadata_len as usize]
    }

    /// Returns the type of the event in whose frame the object is stored.
    pub fn event_type(&self) -> EventType {
        self.event_type
    }

    /// Returns the place of the object's other encoding.
    pub(super) fn encoding_slot(&self) -> &EncodingSlot {
        &self.encoding
    }

    /// Returns the encoding that the object retains, if any.
    pub fn encoding(&self) -> Option<EncodedObject> {
        self.encoding.get()
    }

    /// Returns the length of the message of the object's encoding, if it was encoded before.
    pub fn encoded_message_len(&self) -> Option<usize> {
        self.encoding.message_len()
    }

    /// Returns the watch frame of an `event_type` event for this object. Shares the cached bytes if
    /// the object was decoded with this type, and copies them otherwise.
    pub fn json_frame(&self, event_type: EventType) -> Bytes {
        if event_type == self.event_type {
            self.bytes.slice(..self.frame_len as usize)
        } else {
            frame(frame_head(event_type), self.body_slice())
        }
    }

    /// Appends the watch frame of an `event_type` event for this object.
    pub fn write_json_frame(&self, event_type: EventType, out: &mut BytesMut) {
        out.put_slice(frame_head(event_type));
        out.put_slice(self.body_slice());
        out.put_slice(FRAME_TAIL);
    }

    /// Returns the approximate memory use in bytes.
    pub fn memory(&self) -> usize {
        let key = 2 * size_of::<usize>() + self.key.as_str().len();
        size_of::<Self>() + self.bytes.len() + key
    }

    /// Returns the object of the DELETED event at `at`: this state with the new resourceVersion.
    pub fn deleted_at(&self, at: ResourceVersion) -> Arc<Self> {
        let (body, old, event_type) = (self.body_range(), self.version.range(), EventType::Deleted);
        let aside = &self.bytes[self.frame_len as usize..self.columns_at as usize];
        let before = &self.bytes[body.start..old.start];
        let after = &self.bytes[old.end..body.end];
        let splice = Splice::new(event_type, before, at, after);
        let (version, frame_len) = (splice.version(), splice.frame_len());
        // No column lies inside the version member.
        let moved = |at| match at < old.end {
            true => at - body.start + splice.head.len(),
            false => at - old.end + version.end,
        };
        let texts = self.columns().map(|text| text.moved(moved));
        let metadata_len = self.metadata_len as usize - old.len() + version.len();
        Arc::new(Self {
            key: self.key.clone(),
            resource_version: at,
            event_type,
            frame_len: narrow(frame_len),
            columns_at: narrow(frame_len + aside.len()),
            label_filter: self.label_filter,
            label_count: self.label_count,
            metadata_len: narrow(metadata_len),
            bytes: splice.with(aside, texts),
            version: Span::new(version),
            encoding: EncodingSlot::default(),
        })
    }
}

/// Returns the offset of `part` if it is a slice of `whole`; any offset if `part` is empty.
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

/// Builds the frame of a body, given as the bytes `before` and `after` the start of `metadata`,
/// with `resourceVersion` as the first member of `metadata`.
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

    /// Returns the object's bytes in a buffer of exactly their size, because the cache retains it.
    fn with(&self, aside: &[u8], columns: impl Iterator<Item = Span>) -> Bytes {
        // Eight columns fit without a second allocation; only pods and events have more.
        let mut encoded = Vec::with_capacity(8 * Span::BYTES);
        columns.for_each(|column| column.write_to(&mut encoded));
        let version = self.version.as_bytes();
        let frame = [self.head, self.before, version, self.after, FRAME_TAIL];
        let size = self.frame_len() + aside.len() + encoded.len();
        let mut out = BytesMut::with_capacity(size);
        for part in frame.into_iter().chain([aside, &encoded]) {
            out.put_slice(part);
        }
        debug_assert_eq!(out.len(), size);
        out.freeze()
    }
}

/// Removes `metadata.resourceVersion` by parsing and re-encoding the object.
fn without_resource_version(json: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let mut value: serde_json::Value = serde_json::from_slice(json)?;
    if let Some(metadata) = value.get_mut("metadata").and_then(|m| m.as_object_mut()) {
        metadata.remove("resourceVersion");
    }
    serde_json::to_vec(&value)
}

#[cfg(test)]
mod tests;

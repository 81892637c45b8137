//! `Object`: one version of one object as the cache holds it, which is its JSON bytes, once, plus
//! the few columns that selection needs. It is never parsed again on a read.
//!
//! # Layout
//!
//! The bytes are kept as a whole watch frame, because a frame is what they are most often sent as:
//!
//! ```text
//! {"type":"MODIFIED","object":{"apiVersion":…,"metadata":{"resourceVersion":"7",…},…}}\n
//!                             ^------------------- body --------------------------^
//! ```
//!
//! so a list takes a slice of the middle, and the usual event takes the whole; neither copies.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::labels::Labels;
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
    /// The type that `wire` is a frame of.
    event_type: EventType,
    wire: Bytes,
    uid: Box<str>,
    labels: Labels,
    /// By index of the resource's [`ColumnSet`].
    fields: Box<[Box<str>]>,
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

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    /// Only to be texts: the key says which object it is.
    #[serde(default, borrow, rename = "name")]
    _name: Option<Cow<'a, str>>,
    #[serde(default, borrow, rename = "namespace")]
    _namespace: Option<Cow<'a, str>>,
    #[serde(default)]
    uid: Option<Box<str>>,
    #[serde(default)]
    labels: Option<std::collections::BTreeMap<Box<str>, Box<str>>>,
    #[serde(default, rename = "resourceVersion")]
    resource_version: Option<serde::de::IgnoredAny>,
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
        let parse = || {
            let (envelope, metadata) = parts_of(stored)?;
            let fields = columns.extract(stored)?;
            let head = frame_head(event_type);
            let wire = if metadata.resource_version.is_some() {
                // Not ours: everything written here has it blanked. Tolerated, at a price.
                frame(
                    head,
                    &insert_resource_version(&without_resource_version(stored)?, at)?,
                )
            } else {
                let metadata_at = offset_within(stored, envelope.metadata.get());
                splice(head, stored, metadata_at, at)
            };
            Ok((wire, metadata, fields))
        };
        let (wire, metadata, fields) = parse().map_err(|source| DecodeError {
            key: key.clone(),
            source,
        })?;
        Ok(Self {
            key,
            resource_version: at,
            event_type,
            wire,
            uid: metadata.uid.unwrap_or_default(),
            labels: Labels::new(metadata.labels.unwrap_or_default()),
            fields,
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
        &self.uid
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// Whether the selector selects its labels.
    pub fn is_selected_by(&self, selector: &LabelSelector) -> bool {
        selector.selects(&self.labels)
    }

    /// The value of a selectable field; one that the object lacks reads as its default.
    pub fn field(&self, field: FieldRef) -> &str {
        match field {
            FieldRef::Name => self.key.name(),
            FieldRef::Namespace => self.key.namespace(),
            FieldRef::Column(index) => &self.fields[index],
        }
    }

    /// The JSON of the object, `metadata.resourceVersion` included. Shares the cached bytes.
    pub fn body(&self) -> Bytes {
        self.wire.slice(self.body_range())
    }

    /// The JSON of the object, borrowed.
    pub fn body_slice(&self) -> &[u8] {
        &self.wire[self.body_range()]
    }

    fn body_range(&self) -> std::ops::Range<usize> {
        frame_head(self.event_type).len()..self.wire.len() - FRAME_TAIL.len()
    }

    /// The watch frame that tells `event_type` about this object; shared bytes when the object was
    /// decoded from just such an event, else a copy.
    pub fn json_frame(&self, event_type: EventType) -> Bytes {
        if event_type == self.event_type {
            self.wire.clone()
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
        let labels = self.labels.memory();
        let fields: usize = self.fields.iter().map(|f| f.len() + 16).sum();
        size_of::<Self>() + self.wire.len() + self.key.as_str().len() + 16 + labels + fields
    }

    /// The same object as the deletion at `at` tells it: its last state under the new version.
    ///
    /// # Errors
    /// Never for an object made by [`Object::decode`]; the type says so because it reads the JSON.
    pub fn deleted_at(&self, at: ResourceVersion) -> Result<Arc<Self>, DecodeError> {
        let respliced = without_resource_version(self.body_slice())
            .and_then(|stored| insert_resource_version(&stored, at))
            .map_err(|source| DecodeError {
                key: self.key.clone(),
                source,
            })?;
        Ok(Arc::new(Self {
            resource_version: at,
            event_type: EventType::Deleted,
            wire: frame(frame_head(EventType::Deleted), &respliced),
            ..self.clone()
        }))
    }
}

/// `stored`, which has no resource version, with `metadata.resourceVersion` set to `at`.
///
/// # Errors
/// `stored` is not a JSON object with an object `metadata`.
pub fn insert_resource_version(
    stored: &[u8],
    at: ResourceVersion,
) -> Result<Bytes, serde_json::Error> {
    let (envelope, _) = parts_of(stored)?;
    let wire = splice(
        b"",
        stored,
        offset_within(stored, envelope.metadata.get()),
        at,
    );
    Ok(wire.slice(..wire.len() - FRAME_TAIL.len()))
}

/// Reads what is known of every object.
///
/// # Errors
/// `stored` is not a JSON object with an object `metadata`. A list in the place of either, which
/// reading into a struct would take, is refused: a version cannot be spliced into it.
fn parts_of(stored: &[u8]) -> Result<(Envelope<'_>, Metadata<'_>), serde_json::Error> {
    let envelope: Envelope<'_> = serde_json::from_slice(stored)?;
    let metadata: Metadata<'_> = serde_json::from_str(envelope.metadata.get())?;
    let is_object = |json: &[u8]| json.trim_ascii_start().starts_with(b"{");
    if is_object(stored) && is_object(envelope.metadata.get().as_bytes()) {
        return Ok((envelope, metadata));
    }
    Err(serde::de::Error::custom(
        "a list where an object is expected",
    ))
}

/// Where `part`, a slice of `whole`, begins.
fn offset_within(whole: &[u8], part: &str) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

fn frame(head: &[u8], body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(head.len() + body.len() + FRAME_TAIL.len());
    out.put_slice(head);
    out.put_slice(body);
    out.put_slice(FRAME_TAIL);
    out.freeze()
}

/// The frame of `stored` with the version as the first member of the object that begins at
/// `metadata_at`. The buffer is sized exactly: what the cache keeps has no slack.
fn splice(head: &[u8], stored: &[u8], metadata_at: usize, at: ResourceVersion) -> Bytes {
    let (before, after) = stored.split_at(metadata_at + 1);
    let empty = after.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'}');
    let member = match at.is_zero() {
        true => String::new(),
        false => format!(
            r#""resourceVersion":"{at}"{}"#,
            if empty { "" } else { "," }
        ),
    };
    let size = head.len() + stored.len() + member.len() + FRAME_TAIL.len();
    let mut out = BytesMut::with_capacity(size);
    for part in [head, before, member.as_bytes(), after, FRAME_TAIL] {
        out.put_slice(part);
    }
    debug_assert_eq!(out.len(), size);
    out.freeze()
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
mod tests {
    use super::*;
    use crate::api::FieldColumn;

    fn decode(stored: &str) -> Result<Object, DecodeError> {
        let columns = ColumnSet::new(vec![FieldColumn::new("spec.nodeName")]);
        let key = ObjectKey::from("ns/a");
        Object::decode(
            key,
            ResourceVersion::new(7),
            EventType::Modified,
            stored.as_bytes(),
            &columns,
        )
    }

    #[test]
    fn the_version_is_spliced_into_the_bytes() {
        let stored = r#"{"kind":"Pod","metadata":{"name":"a","labels":{"b":"2","a":"1"},"uid":"u"},"spec":{"nodeName":"n1"}}"#;
        let object = decode(stored).unwrap();
        let body = r#"{"kind":"Pod","metadata":{"resourceVersion":"7","name":"a","labels":{"b":"2","a":"1"},"uid":"u"},"spec":{"nodeName":"n1"}}"#;
        assert_eq!(object.body(), body);
        let frame = format!("{{\"type\":\"MODIFIED\",\"object\":{body}}}\n");
        assert_eq!(object.json_frame(EventType::Modified), frame);
        let added = format!("{{\"type\":\"ADDED\",\"object\":{body}}}\n");
        assert_eq!(object.json_frame(EventType::Added), added);
        assert_eq!((object.label("a"), object.label("c")), (Some("1"), None));
        assert_eq!(
            (object.uid(), object.field(FieldRef::Column(0))),
            ("u", "n1")
        );
        assert_eq!(
            (
                object.field(FieldRef::Name),
                object.field(FieldRef::Namespace)
            ),
            ("a", "ns")
        );
    }

    #[test]
    fn at_zero_the_body_names_no_version() {
        let columns = ColumnSet::default();
        let stored = br#"{"metadata":{"name":"a"}}"#;
        let object = Object::decode(
            ObjectKey::from("a"),
            ResourceVersion::ZERO,
            EventType::Modified,
            stored,
            &columns,
        );
        assert_eq!(object.unwrap().body(), &stored[..]);
    }

    #[test]
    fn an_empty_metadata_and_a_foreign_version_are_handled() {
        assert_eq!(
            decode(r#"{"metadata":{ }}"#).unwrap().body(),
            r#"{"metadata":{"resourceVersion":"7" }}"#
        );
        assert_eq!(
            decode(r#"{"metadata":{"resourceVersion":"3","name":"a"}}"#)
                .unwrap()
                .body(),
            r#"{"metadata":{"resourceVersion":"7","name":"a"}}"#
        );
    }

    #[test]
    fn a_deletion_keeps_the_body_and_moves_the_version() {
        let object = decode(r#"{"metadata":{"name":"a"}}"#).unwrap();
        let deleted = object.deleted_at(ResourceVersion::new(9)).unwrap();
        assert_eq!(deleted.resource_version(), ResourceVersion::new(9));
        assert_eq!(
            deleted.body(),
            r#"{"metadata":{"resourceVersion":"9","name":"a"}}"#
        );
    }

    #[test]
    fn what_is_not_an_object_is_refused_by_name() {
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"metadata":1}"#,
            r#"{"metadata":[]}"#,
            r#"{"metadata":["u",{},null]}"#,
            "[{}]",
            r#" [{"name":"a"}]"#,
            r#"{"metadata":{"labels":[]}}"#,
            r#"{"metadata":{"name":5}}"#,
            r#"{"metadata":{"namespace":["ns"]}}"#,
        ] {
            let error = decode(bad).unwrap_err();
            assert!(error.to_string().contains("ns/a"), "{error}");
        }
    }
}

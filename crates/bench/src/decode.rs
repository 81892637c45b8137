//! Extracts versions and annotations of objects from responses in JSON and protobuf. Single objects
//! are scanned without parsing, because the load generator shares the machine with the measured
//! server; a list is parsed once, in full.

use std::collections::HashMap;
use std::sync::LazyLock;

use memchr::{memchr, memmem};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde::Deserialize;

use super::encoding::{Content, Encoding, Wire};
use super::mark::{MARK, Mark};

/// The prefix of every protobuf message other than a watch frame.
pub(super) const MAGIC: &[u8] = b"k8s\0";

/// Field numbers in upstream's messages.
pub(super) mod field {
    /// Fields of `WatchEvent`.
    pub(crate) const EVENT_TYPE: u32 = 1;
    pub(crate) const EVENT_OBJECT: u32 = 2;
    /// Fields of `RawExtension`.
    pub(crate) const EXTENSION_RAW: u32 = 1;
    /// Fields of `Unknown`, the envelope, and of the `TypeMeta` in it.
    pub(super) const ENVELOPE_TYPE: u32 = 1;
    pub(super) const TYPE_KIND: u32 = 2;
    pub(crate) const ENVELOPE_RAW: u32 = 2;
    /// Fields of every object and every list.
    pub(super) const METADATA: u32 = 1;
    /// Fields of every list.
    pub(crate) const LIST_ITEMS: u32 = 2;
    /// Fields of `ListMeta`.
    pub(super) const LIST_VERSION: u32 = 2;
    pub(super) const LIST_CONTINUE: u32 = 3;
    /// Fields of `ObjectMeta`.
    pub(super) const VERSION: u32 = 6;
    pub(super) const ANNOTATIONS: u32 = 12;
    /// Fields of a map entry.
    pub(super) const KEY: u32 = 1;
    pub(super) const VALUE: u32 = 2;
}

/// The bytes are not a valid message of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("truncated, or not {0}")]
pub(super) struct Malformed(pub &'static str);

/// Returns the length-delimited fields of a message, with their numbers.
pub(super) fn fields(mut message: &[u8]) -> impl Iterator<Item = Result<(u32, &[u8]), Malformed>> {
    std::iter::from_fn(move || {
        while !message.is_empty() {
            match next_field(&mut message) {
                Ok(None) => {}
                Ok(Some(field)) => return Some(Ok(field)),
                Err(malformed) => {
                    message = &[];
                    return Some(Err(malformed));
                }
            }
        }
        None
    })
}

/// Removes the first field; `None` if it is not length-delimited.
fn next_field<'a>(message: &mut &'a [u8]) -> Result<Option<(u32, &'a [u8])>, Malformed> {
    const MALFORMED: Malformed = Malformed("protobuf");
    let (wire_type, number) = match decode_key(message) {
        Ok((number, wire_type)) => (wire_type, number),
        Err(_) => return Err(MALFORMED),
    };
    if wire_type != WireType::LengthDelimited {
        let skipped = skip_field(wire_type, number, message, DecodeContext::default());
        return skipped.map(|()| None).map_err(|_| MALFORMED);
    }
    let length = decode_varint(message).map_err(|_| MALFORMED)?;
    let length = usize::try_from(length).map_err(|_| MALFORMED)?;
    let (value, rest) = message.split_at_checked(length).ok_or(MALFORMED)?;
    *message = rest;
    Ok(Some((number, value)))
}

/// Returns the first field of that number; empty if absent, as in protobuf.
pub(super) fn field_of(message: &[u8], number: u32) -> Result<&[u8], Malformed> {
    for field in fields(message) {
        if let (found, value) = field?
            && found == number
        {
            return Ok(value);
        }
    }
    Ok(&[])
}

/// Returns the message in an envelope.
pub(super) fn message_in_envelope(envelope: &[u8]) -> Result<&[u8], Malformed> {
    let envelope = envelope.strip_prefix(MAGIC);
    field_of(envelope.ok_or(Malformed("protobuf"))?, field::ENVELOPE_RAW)
}

/// Returns the kind in an envelope.
pub(super) fn kind_in_envelope(envelope: &[u8]) -> Result<&[u8], Malformed> {
    let envelope = envelope.strip_prefix(MAGIC);
    let envelope = envelope.ok_or(Malformed("protobuf"))?;
    field_of(field_of(envelope, field::ENVELOPE_TYPE)?, field::TYPE_KIND)
}

/// An annotation to search for.
pub(super) struct Annotation {
    name: &'static str,
    /// The annotation up to its value in compact JSON.
    json: memmem::Finder<'static>,
}

impl Annotation {
    fn new(name: &'static str) -> Self {
        let json = format!(r#""{name}":""#);
        let json = memmem::Finder::new(json.as_bytes()).into_owned();
        Self { name, json }
    }
}

static MARKED: LazyLock<Annotation> = LazyLock::new(|| Annotation::new(MARK));
static INITIAL_EVENTS_END: LazyLock<Annotation> =
    LazyLock::new(|| Annotation::new("k8s.io/initial-events-end"));
// Within a JSON string the quotes would be escaped.
static VERSION: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(r#""resourceVersion":""#));

// An object has no such member.
static CONTINUE: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(r#""continue":""#));

/// An object, as far as it is found without parsing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Object<'a> {
    /// Compact JSON, possibly still within a watch frame.
    Json(&'a [u8]),
    /// The metadata message.
    Protobuf(&'a [u8]),
}

impl<'a> Object<'a> {
    /// Finds the object in a response or in a watch frame.
    ///
    /// # Errors
    /// `encoding` is protobuf and the bytes are not protobuf.
    pub(super) fn read(encoding: Encoding, bytes: &'a [u8]) -> Result<Self, Malformed> {
        match encoding.wire() {
            Wire::Json => Ok(Self::Json(bytes)),
            Wire::Protobuf => Self::message(message_in_envelope(bytes)?),
        }
    }

    /// Finds the object in a message without an envelope.
    fn message(message: &'a [u8]) -> Result<Self, Malformed> {
        Ok(Self::Protobuf(field_of(message, field::METADATA)?))
    }

    /// Returns the resourceVersion if it is a number.
    pub(super) fn version(self) -> Option<u64> {
        let version = match self {
            Self::Json(json) => text_after(&VERSION, json)?,
            Self::Protobuf(metadata) => text(field_of(metadata, field::VERSION).ok()?)?,
        };
        version.parse().ok()
    }

    /// Returns the mark of the run that wrote the object.
    pub(super) fn mark(self) -> Option<Mark> {
        Mark::parse(self.annotation(&MARKED)?)
    }

    /// Returns true for the bookmark that ends the initial events.
    pub(super) fn ends_initial_events(self) -> bool {
        self.annotation(&INITIAL_EVENTS_END) == Some("true")
    }

    fn annotation(self, annotation: &Annotation) -> Option<&'a str> {
        let metadata = match self {
            Self::Json(json) => return text_after(&annotation.json, json),
            Self::Protobuf(metadata) => metadata,
        };
        for entry in fields(metadata) {
            let (number, entry) = entry.ok()?;
            if number == field::ANNOTATIONS
                && field_of(entry, field::KEY).ok()? == annotation.name.as_bytes()
            {
                return text(field_of(entry, field::VALUE).ok()?);
            }
        }
        None
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Returns the text between the match of `finder` and the next quote.
fn text_after<'a>(finder: &memmem::Finder<'_>, bytes: &'a [u8]) -> Option<&'a str> {
    let begin = finder.find(bytes)? + finder.needle().len();
    let rest = &bytes[begin..];
    text(&rest[..memchr(b'"', rest)?])
}

/// The parts of a list that the loads need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List {
    pub version: u64,
    /// The token of the next page; empty on the last one.
    pub next: String,
    pub items: Vec<Item>,
}

/// An object of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub version: u64,
    pub mark: Option<Mark>,
}

/// Decodes the response of a list.
///
/// # Errors
/// It is not a list in this encoding, or a version in it is not a number.
pub(super) fn list(encoding: Encoding, body: &[u8]) -> Result<List, Malformed> {
    match encoding.wire() {
        Wire::Json => json_list(encoding, body).ok_or(Malformed("a list in JSON")),
        Wire::Protobuf => protobuf_list(encoding, body),
    }
}

/// Returns the token of the next page of a list; empty on the last one.
///
/// # Errors
/// It is not a list in this encoding.
pub(super) fn next_page(encoding: Encoding, body: &[u8]) -> Result<String, Malformed> {
    const MALFORMED: Malformed = Malformed("a list");
    let next = match encoding.wire() {
        Wire::Json => text_after(&CONTINUE, body).unwrap_or_default(),
        Wire::Protobuf => {
            let list = message_in_envelope(body)?;
            let next = field_of(field_of(list, field::METADATA)?, field::LIST_CONTINUE)?;
            text(next).ok_or(MALFORMED)?
        }
    };
    Ok(next.to_owned())
}

fn json_list(encoding: Encoding, body: &[u8]) -> Option<List> {
    #[derive(Deserialize)]
    struct Listed {
        #[serde(default)]
        kind: String,
        metadata: Metadata,
        #[serde(default)]
        items: Option<Vec<Object>>,
        /// The rows of a Table.
        #[serde(default)]
        rows: Option<Vec<Row>>,
    }
    #[derive(Deserialize)]
    struct Row {
        object: Object,
    }
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
        #[serde(default)]
        r#continue: String,
        #[serde(default)]
        annotations: HashMap<String, String>,
    }
    let list: Listed = serde_json::from_slice(body).ok()?;
    if encoding
        .kind(Content::List)
        .is_some_and(|kind| kind != list.kind)
    {
        return None;
    }
    let item = |object: &Object| {
        let mark = object.metadata.annotations.get(MARK);
        Some(Item {
            version: object.metadata.resource_version.parse().ok()?,
            mark: mark.and_then(|mark| Mark::parse(mark)),
        })
    };
    let items = match (encoding, list.items, list.rows) {
        (Encoding::Table, _, Some(rows)) => rows.iter().map(|row| item(&row.object)).collect(),
        // Upstream writes the rows of an empty Table, and the items of empty metadata, as null.
        (Encoding::Table, _, None) | (Encoding::Metadata, None, _) => Some(Vec::new()),
        (_, items, _) => items?.iter().map(item).collect(),
    };
    Some(List {
        version: list.metadata.resource_version.parse().ok()?,
        next: list.metadata.r#continue,
        items: items?,
    })
}

fn protobuf_list(encoding: Encoding, body: &[u8]) -> Result<List, Malformed> {
    const MALFORMED: Malformed = Malformed("a list in protobuf");
    let list = message_in_envelope(body)?;
    if let Some(kind) = encoding.kind(Content::List)
        && kind_in_envelope(body)? != kind.as_bytes()
    {
        return Err(MALFORMED);
    }
    let metadata = field_of(list, field::METADATA)?;
    let version = text(field_of(metadata, field::LIST_VERSION)?);
    let version = version.and_then(|version| version.parse().ok());
    let next = text(field_of(metadata, field::LIST_CONTINUE)?).ok_or(MALFORMED)?;
    let mut items = Vec::new();
    for field in fields(list) {
        let (number, message) = field?;
        if number == field::LIST_ITEMS {
            let object = Object::message(message)?;
            items.push(Item {
                version: object.version().ok_or(MALFORMED)?,
                mark: object.mark(),
            });
        }
    }
    Ok(List {
        version: version.ok_or(MALFORMED)?,
        next: next.to_owned(),
        items,
    })
}

#[cfg(test)]
mod tests {
    use k8s_pb::api::core::v1::{ConfigMap, ConfigMapList};
    use k8s_pb::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
    use k8s_pb::apimachinery::pkg::runtime::Unknown;
    use prost::Message;
    use serde_json::json;

    use super::*;

    const MARK_7: Mark = Mark { run: 3, event: 7 };

    fn enveloped(message: &impl Message) -> Vec<u8> {
        let envelope = Unknown {
            raw: Some(message.encode_to_vec()),
            ..Unknown::default()
        };
        [MAGIC, &envelope.encode_to_vec()].concat()
    }

    fn config_map(version: &str, annotations: &[(&str, &str)]) -> ConfigMap {
        let annotations = annotations.iter();
        ConfigMap {
            metadata: Some(ObjectMeta {
                name: Some("a".into()),
                resource_version: Some(version.into()),
                generation: Some(5),
                annotations: annotations
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
                ..ObjectMeta::default()
            }),
            ..ConfigMap::default()
        }
    }

    fn both(version: &str, annotations: &[(&str, &str)]) -> [(Encoding, Vec<u8>); 2] {
        let members: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let json = json!({"metadata": {"annotations": members, "resourceVersion": version}});
        let message = enveloped(&config_map(version, annotations));
        [
            (Encoding::Json, json.to_string().into_bytes()),
            (Encoding::Protobuf, message),
        ]
    }

    #[test]
    fn version_and_annotations_are_found_in_both_encodings() {
        let mark = MARK_7.to_string();
        for (encoding, bytes) in both("12", &[("a", "b"), (MARK, &mark)]) {
            let object = Object::read(encoding, &bytes).unwrap();
            assert_eq!(object.version(), Some(12), "{encoding:?}");
            assert_eq!(object.mark(), Some(MARK_7), "{encoding:?}");
            assert!(!object.ends_initial_events(), "{encoding:?}");
        }
        for (encoding, bytes) in both("x", &[("k8s.io/initial-events-end", "true")]) {
            let object = Object::read(encoding, &bytes).unwrap();
            assert_eq!(object.version(), None, "{encoding:?}");
            assert_eq!(object.mark(), None, "{encoding:?}");
            assert!(object.ends_initial_events(), "{encoding:?}");
        }
    }

    #[test]
    fn lists_decode_in_both_encodings() {
        let mark = MARK_7.to_string();
        let marked = config_map("8", &[(MARK, &mark)]);
        let message = enveloped(&ConfigMapList {
            metadata: Some(ListMeta {
                resource_version: Some("9".into()),
                r#continue: Some("token".into()),
                ..ListMeta::default()
            }),
            items: vec![marked, config_map("5", &[])],
        });
        let items = json!([
            {"metadata": {"resourceVersion": "8", "annotations": {MARK: mark}}},
            {"metadata": {"resourceVersion": "5"}},
        ]);
        let metadata = json!({"continue": "token", "resourceVersion": "9"});
        let json = json!({"metadata": metadata, "items": items});
        let partial = json!({
            "kind": "PartialObjectMetadataList",
            "metadata": metadata,
            "items": items,
        });
        let rows = items.as_array().unwrap().iter();
        let rows: Vec<_> = rows
            .map(|item| json!({"cells": [1], "object": item}))
            .collect();
        let table = json!({"kind": "Table", "metadata": metadata, "rows": rows});
        let expected = List {
            version: 9,
            next: "token".to_owned(),
            items: vec![
                Item {
                    version: 8,
                    mark: Some(MARK_7),
                },
                Item {
                    version: 5,
                    mark: None,
                },
            ],
        };
        for (encoding, body) in [
            (Encoding::Json, json.to_string().into_bytes()),
            (Encoding::Metadata, partial.to_string().into_bytes()),
            (Encoding::Table, table.to_string().into_bytes()),
            (Encoding::Protobuf, message.clone()),
        ] {
            let next = next_page(encoding, &body);
            assert_eq!(next.as_deref(), Ok("token"), "{encoding:?}");
            assert_eq!(list(encoding, &body), Ok(expected.clone()), "{encoding:?}");
        }
        // The resource's own kind is not the requested one.
        assert!(list(Encoding::Metadata, json.to_string().as_bytes()).is_err());
        assert!(list(Encoding::Table, json.to_string().as_bytes()).is_err());
        assert!(list(Encoding::MetadataProtobuf, &message).is_err());
        for (encoding, kind, member) in [
            (Encoding::Table, "Table", "rows"),
            (Encoding::Metadata, "PartialObjectMetadataList", "items"),
        ] {
            let empty = json!({"kind": kind, "metadata": {"resourceVersion": "9"}, member: null});
            let empty = list(encoding, empty.to_string().as_bytes()).unwrap();
            assert_eq!((empty.items.len(), empty.next.as_str()), (0, ""));
        }
    }

    #[test]
    fn truncated_messages_are_malformed() {
        let (_, whole) = &both("12", &[(MARK, "1-2")])[1];
        for length in 0..whole.len() {
            // The prefix alone is an empty object.
            let version = Object::read(Encoding::Protobuf, &whole[..length])
                .map(|object| object.version().is_some());
            assert!(version != Ok(true), "{length} of {}", whole.len());
            assert!(list(Encoding::Protobuf, &whole[..length]).is_err());
        }
        assert!(list(Encoding::Json, b"{}").is_err());
        assert!(
            list(
                Encoding::Json,
                br#"{"metadata":{"resourceVersion":"a"},"items":[]}"#
            )
            .is_err()
        );
    }
}

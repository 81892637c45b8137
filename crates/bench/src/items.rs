//! Counts the objects of a list as its bytes arrive, because the lists of all clients together do
//! not fit in memory. It does not decode the list; the loads have decoded one list before.

use std::sync::LazyLock;

use memchr::memmem;
use prost::encoding::{WireType, decode_key, decode_varint};

use crate::decode::{MAGIC, field};
use crate::encoding::{Encoding, Wire};

/// A member that each object has once, and the list too. In a JSON string its quotes are escaped,
/// so it does not match there.
const VERSION: &[u8] = br#""resourceVersion":""#;

static FINDER: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(VERSION));

/// The maximum size of a field's key and length.
const HEADER_BYTES_MAX: usize = 20;

/// Counts the items of a list.
#[derive(Debug)]
pub(super) enum Items {
    Json(Members),
    Protobuf(Fields),
}

/// Counts occurrences of [`VERSION`].
#[derive(Debug)]
pub(super) struct Members {
    found: u64,
    /// The last bytes, where an occurrence may have begun.
    tail: Vec<u8>,
}

/// The position within the envelope and the list message.
#[derive(Debug)]
pub(super) struct Fields {
    at: usize,
    /// How many of the next bytes are the content of a field.
    skip: usize,
    /// The received part of a field's key and length.
    header: Vec<u8>,
    /// The offset of the end of the list, once known.
    list_end: usize,
    found: u64,
    broken: bool,
}

impl Items {
    pub(super) fn new(encoding: Encoding) -> Self {
        match encoding.wire() {
            Wire::Json => Self::Json(Members {
                found: 0,
                tail: Vec::new(),
            }),
            Wire::Protobuf => Self::Protobuf(Fields {
                at: 0,
                skip: MAGIC.len(),
                header: Vec::new(),
                list_end: 0,
                found: 0,
                broken: false,
            }),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Json(members) => members.push(bytes),
            Self::Protobuf(fields) => fields.push(bytes),
        }
    }

    /// Returns the number of items; `None` if the list is incomplete.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Self::Json(members) => members.found.checked_sub(1),
            Self::Protobuf(fields) => {
                let whole = fields.skip == 0 && fields.header.is_empty() && fields.at > MAGIC.len();
                (whole && !fields.broken).then_some(fields.found)
            }
        }
    }
}

impl Members {
    fn push(&mut self, bytes: &[u8]) {
        // Counts an occurrence that is split between the tail and the added bytes. Each part is too
        // short to contain a complete occurrence, so none is counted twice.
        let begun = bytes.len().min(VERSION.len() - 1);
        self.tail.extend_from_slice(&bytes[..begun]);
        self.found += FINDER.find_iter(&self.tail).count() as u64;
        self.found += FINDER.find_iter(bytes).count() as u64;
        let last = if bytes.len() < VERSION.len() {
            self.tail.as_slice()
        } else {
            bytes
        };
        self.tail = last[last.len().saturating_sub(VERSION.len() - 1)..].to_vec();
    }
}

impl Fields {
    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.broken {
            let taken = match self.skip.min(bytes.len()) {
                0 => {
                    self.header.push(bytes[0]);
                    1
                }
                skipped => {
                    self.skip -= skipped;
                    skipped
                }
            };
            self.at += taken;
            bytes = &bytes[taken..];
            self.field();
        }
    }

    /// Processes a field whose key and length are complete.
    fn field(&mut self) {
        let Some((number, wire_type, length)) = header(&self.header) else {
            self.broken = self.header.len() >= HEADER_BYTES_MAX;
            return;
        };
        let in_list = self.at - self.header.len() < self.list_end;
        self.header.clear();
        // Envelopes and lists have no other wire types.
        self.broken = wire_type != WireType::LengthDelimited;
        if !in_list && number == field::ENVELOPE_RAW {
            self.list_end = self.at.saturating_add(length);
            return;
        }
        self.found += u64::from(in_list && number == field::LIST_ITEMS);
        self.skip = length;
    }
}

/// Returns the key and length at the start of `bytes`, if complete.
fn header(mut bytes: &[u8]) -> Option<(u32, WireType, usize)> {
    let (number, wire_type) = decode_key(&mut bytes).ok()?;
    let length = decode_varint(&mut bytes).ok()?;
    Some((number, wire_type, usize::try_from(length).ok()?))
}

#[cfg(test)]
mod tests {
    use k8s_pb::api::core::v1::{ConfigMap, ConfigMapList};
    use k8s_pb::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
    use k8s_pb::apimachinery::pkg::runtime::Unknown;
    use prost::Message;
    use serde_json::json;

    use super::*;

    fn json_list(count: usize) -> Vec<u8> {
        // One object with the text in a string, and one whose version ends right before the next.
        let text = r#"{"resourceVersion":"1"}"#;
        let item = json!({"data": {"k": text}, "metadata": {"resourceVersion": "5"}});
        json!({"items": vec![item; count], "metadata": {"resourceVersion": "9"}})
            .to_string()
            .into_bytes()
    }

    fn protobuf_list(count: usize) -> Vec<u8> {
        let item = ConfigMap {
            metadata: Some(ObjectMeta {
                resource_version: Some("5".into()),
                ..ObjectMeta::default()
            }),
            data: [("k".to_owned(), "v".repeat(200))].into(),
            ..ConfigMap::default()
        };
        let list = ConfigMapList {
            metadata: Some(ListMeta {
                resource_version: Some("9".into()),
                ..ListMeta::default()
            }),
            items: vec![item; count],
        };
        let envelope = Unknown {
            raw: Some(list.encode_to_vec()),
            content_type: Some(String::new()),
            content_encoding: Some(String::new()),
            ..Unknown::default()
        };
        [MAGIC, &envelope.encode_to_vec()].concat()
    }

    fn count(encoding: Encoding, pieces: impl Iterator<Item = impl AsRef<[u8]>>) -> Option<u64> {
        let mut items = Items::new(encoding);
        for piece in pieces {
            items.push(piece.as_ref());
        }
        items.count()
    }

    #[test]
    fn counts_do_not_depend_on_read_boundaries() {
        for (encoding, list) in [
            (Encoding::Json, json_list as fn(usize) -> Vec<u8>),
            (Encoding::Protobuf, protobuf_list),
        ] {
            for number in [0, 1, 3] {
                let body = list(number);
                for size in 1..=body.len() {
                    let counted = count(encoding, body.chunks(size));
                    assert_eq!(
                        counted,
                        Some(number as u64),
                        "{encoding:?} in pieces of {size}"
                    );
                }
            }
        }
    }

    #[test]
    fn truncated_lists_have_no_count() {
        let body = protobuf_list(2);
        let mut without = 0;
        for length in 0..body.len() {
            let counted = count(Encoding::Protobuf, [&body[..length]].into_iter());
            // A truncation between two fields cannot be detected.
            without += usize::from(counted.is_none());
            assert_ne!(counted, Some(3));
        }
        assert!(without > body.len() * 9 / 10, "{without}");
        assert_eq!(count(Encoding::Json, [b"{}"].into_iter()), None);
        assert_eq!(count(Encoding::Protobuf, [[0xff; 64]].into_iter()), None);
    }
}

//! Encodes protobuf responses straight from the JSON of objects: an object, the parts of a list, a watch frame. The bytes
//! equal those of kube-apiserver, whose encoder is Go's generated code. `request::accept` negotiates whether the client
//! accepts protobuf.

mod member_name;
mod scalars;
mod tape;
mod transcode;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;

use watchet_api::{EncodedObject, EventType, KindEncodings};
use watchet_schema::ObjectId;

use crate::error::{EncodeError, Unencodable};
use crate::schema::{MAGIC, Messages, Schema};
use crate::write::{BYTES, bytes, bytes_len, key, varint};
use tape::Tape;

/// Encodes the objects of one kind.
#[derive(Debug, Clone)]
pub struct Encoder {
    schema: Arc<Schema>,
    message: ObjectId,
    api_version: Box<str>,
    kind: Box<str>,
    /// Looked up when an object is first encoded for the cache.
    encodings: OnceLock<KindEncodings>,
}

/// The field numbers of every list message.
const METADATA: u32 = 1;
const ITEMS: u32 = 2;

/// The fields of `runtime.Unknown` after the object: no content encoding and no content type.
const ENVELOPE_TAIL: &[u8] = &[0x1a, 0, 0x22, 0];

impl Encoder {
    /// Creates the encoder of a kind; `None` if it has no protobuf encoding.
    pub fn new(schema: &Arc<Schema>, api_version: &str, kind: &str) -> Option<Self> {
        Some(Self {
            message: schema.types.object_of(api_version, kind)?,
            schema: Arc::clone(schema),
            api_version: api_version.into(),
            kind: kind.into(),
            encodings: OnceLock::new(),
        })
    }

    /// Creates the encoder of `Status`.
    pub fn of_status(schema: &Arc<Schema>) -> Self {
        Self::new(schema, "v1", "Status").expect("the built-in types contain Status")
    }

    /// Returns the encoder of `Status`.
    pub fn status_encoder(&self) -> Self {
        Self::of_status(&self.schema)
    }

    /// Returns the encodings that the server retains of objects of this kind.
    pub fn encodings(&self) -> &KindEncodings {
        self.encodings
            .get_or_init(|| self.schema.cache.of_kind(&self.api_version, &self.kind))
    }

    /// Parses `json` for encoding; the result can be measured and written.
    fn parse<'a>(&'a self, json: &'a [u8]) -> Result<Message<'a>, EncodeError> {
        parse(&self.schema, self.message, json)
    }

    /// Encodes the object `json` with its envelope.
    ///
    /// # Errors
    /// `json` is no JSON, or a value does not fit its field.
    pub fn encode_body(&self, json: &[u8]) -> Result<Bytes, EncodeError> {
        let message = self.parse(json)?;
        Ok(body(&self.api_version, &self.kind, &message))
    }

    /// Encodes a watch frame: its length in four big-endian bytes, then a `WatchEvent` without an envelope; the object
    /// in it has one.
    ///
    /// # Errors
    /// As [`Self::encode_body`].
    pub fn encode_frame(&self, event_type: &str, json: &[u8]) -> Result<Bytes, EncodeError> {
        let message = self.parse(json)?;
        let mut out = Vec::new();
        write_frame_head(event_type, self.body_len(message.len()), &mut out)?;
        self.write_body(&message, &mut out);
        Ok(out.into())
    }

    /// Encodes the object `json` for the cache: as the frame of an `event_type` event.
    ///
    /// # Errors
    /// As [`Self::encode_body`].
    pub fn encode_cached(
        &self,
        event_type: EventType,
        json: &[u8],
    ) -> Result<EncodedObject, EncodeError> {
        let message = self.parse(json)?;
        let body = self.body_len(message.len());
        let mut out = Vec::with_capacity(body + 32);
        write_frame_head(event_type.as_str(), body, &mut out)?;
        let body_at = out.len();
        self.write_body(&message, &mut out);
        let message_end = out.len() - ENVELOPE_TAIL.len();
        Ok(EncodedObject::new(
            out.into(),
            body_at,
            message_end - message.len()..message_end,
        ))
    }

    /// Returns the length of the message of the object `json`, without an envelope.
    ///
    /// # Errors
    /// As [`Self::encode_body`].
    pub fn message_len(&self, json: &[u8]) -> Result<usize, EncodeError> {
        Ok(self.parse(json)?.len())
    }

    /// Appends the object `json` as an item of a list.
    ///
    /// # Errors
    /// As [`Self::encode_body`].
    pub fn encode_item(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let message = self.parse(json)?;
        write_item_head(message.len(), out);
        message.write(out);
        Ok(())
    }

    /// Encodes everything before the items of a list of this kind, which take `items_bytes`.
    ///
    /// # Errors
    /// The metadata cannot be encoded.
    pub fn encode_list_head(
        &self,
        (api_version, kind): (&str, &str),
        metadata: &[u8],
        items_bytes: usize,
    ) -> Result<Vec<u8>, EncodeError> {
        let list_meta = self.schema.types.object_of("meta.k8s.io/v1", "ListMeta");
        let list_meta = list_meta.expect("the built-in types contain ListMeta");
        let metadata = parse(&self.schema, list_meta, metadata)?;
        let mut out = Vec::new();
        let list = bytes_len(METADATA, metadata.len()) + items_bytes;
        write_envelope_head(api_version, kind, list, &mut out);
        key(METADATA, BYTES, &mut out);
        varint(metadata.len() as u64, &mut out);
        metadata.write(&mut out);
        Ok(out)
    }

    fn write_body(&self, message: &Message<'_>, out: &mut Vec<u8>) {
        write_body(&self.api_version, &self.kind, message, out);
    }

    fn body_len(&self, message_len: usize) -> usize {
        body_len(&self.api_version, &self.kind, message_len)
    }
}

impl Messages {
    /// Encodes the object `json`, of this kind, with its envelope; `None` if the kind has no protobuf encoding.
    ///
    /// # Errors
    /// `json` is no JSON, or a value does not fit its field.
    pub fn to_protobuf(
        &self,
        (api_version, kind): (&str, &str),
        json: &[u8],
    ) -> Result<Option<Bytes>, EncodeError> {
        let Some(message) = self.types.object_of(api_version, kind) else {
            return Ok(None);
        };
        let message = parse(self, message, json)?;
        Ok(Some(body(api_version, kind, &message)))
    }
}

/// Returns an object with its envelope.
fn body(api_version: &str, kind: &str, message: &Message<'_>) -> Bytes {
    let mut out = Vec::with_capacity(body_len(api_version, kind, message.len()));
    write_body(api_version, kind, message, &mut out);
    out.into()
}

/// Appends an object with its envelope.
fn write_body(api_version: &str, kind: &str, message: &Message<'_>, out: &mut Vec<u8>) {
    write_envelope_head(api_version, kind, message.len(), out);
    message.write(out);
    out.extend_from_slice(ENVELOPE_TAIL);
}

fn body_len(api_version: &str, kind: &str, message_len: usize) -> usize {
    let type_meta = bytes_len(1, api_version.len()) + bytes_len(2, kind.len());
    MAGIC.len() + bytes_len(1, type_meta) + bytes_len(2, message_len) + ENVELOPE_TAIL.len()
}

/// Parses the object `json` as a message.
fn parse<'a>(
    schema: &'a Messages,
    message: ObjectId,
    json: &'a [u8],
) -> Result<Message<'a>, EncodeError> {
    let mut tape = Tape::new(schema.plan(), json.len());
    match transcode::read_object(&mut tape, message, json) {
        Ok(root) => Ok(Message { tape, root, json }),
        Err(error) if error.is_data() => Err(unencodable(json, &error).into()),
        Err(error) => Err(error.into()),
    }
}

/// An object that was read for encoding.
struct Message<'a> {
    tape: Tape<'a>,
    root: tape::NodeIndex,
    json: &'a [u8],
}

impl Message<'_> {
    /// Returns the length of the message.
    fn len(&self) -> usize {
        self.tape.len(self.root)
    }

    /// Appends the message.
    fn write(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.reserve(self.len());
        self.tape.write(self.root, self.json, out);
        debug_assert_eq!(out.len() - begin, self.len(), "the computed length");
    }
}

/// Appends everything before the content of an item of a list.
pub fn write_item_head(message_len: usize, out: &mut Vec<u8>) {
    key(ITEMS, BYTES, out);
    varint(message_len as u64, out);
}

/// Returns the length of an item of a list.
pub fn item_len(message_len: usize) -> usize {
    bytes_len(ITEMS, message_len)
}

/// Returns what follows the items of a list.
pub fn list_tail() -> &'static [u8] {
    ENVELOPE_TAIL
}

/// Returns the frame of an `event_type` event with this body.
///
/// # Errors
/// The frame is longer than four bytes can say.
pub fn frame_of_body(event_type: &str, body: &[u8]) -> Result<Bytes, EncodeError> {
    let mut out = Vec::with_capacity(body.len() + 32);
    write_frame_head(event_type, body.len(), &mut out)?;
    out.extend_from_slice(body);
    Ok(out.into())
}

/// Returns the start of a message: its first field, `metadata`, with number and length. `None` if the message begins with
/// another field.
pub fn metadata_field(message: &[u8]) -> Option<&[u8]> {
    let mut reader = crate::wire::Reader(message);
    match reader.field().ok()?? {
        (METADATA, crate::wire::WireValue::Bytes(_)) => {
            Some(&message[..message.len() - reader.0.len()])
        }
        _ => None,
    }
}

fn write_frame_head(
    event_type: &str,
    body_len: usize,
    out: &mut Vec<u8>,
) -> Result<(), Unencodable> {
    const TYPE: u32 = 1;
    const OBJECT: u32 = 2;
    const RAW: u32 = 1;
    let raw = bytes_len(RAW, body_len);
    let length = bytes_len(TYPE, event_type.len()) + bytes_len(OBJECT, raw);
    let length = u32::try_from(length).map_err(|_| Unencodable::too_large())?;
    out.reserve(length as usize + size_of::<u32>());
    out.extend_from_slice(&length.to_be_bytes());
    bytes(TYPE, event_type.as_bytes(), out);
    key(OBJECT, BYTES, out);
    varint(raw as u64, out);
    key(RAW, BYTES, out);
    varint(body_len as u64, out);
    Ok(())
}

/// Appends the start of an envelope; an object of `message_len` bytes and the [tail](ENVELOPE_TAIL) must follow.
fn write_envelope_head(api_version: &str, kind: &str, message_len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    key(1, BYTES, out);
    varint(
        (bytes_len(1, api_version.len()) + bytes_len(2, kind.len())) as u64,
        out,
    );
    bytes(1, api_version.as_bytes(), out);
    bytes(2, kind.as_bytes(), out);
    key(2, BYTES, out);
    varint(message_len as u64, out);
}

/// Returns the error for an object with a value that does not fit.
fn unencodable(json: &[u8], error: &serde_json::Error) -> Unencodable {
    #[derive(Deserialize, Default)]
    struct Named {
        #[serde(default)]
        metadata: Names,
    }
    #[derive(Deserialize, Default)]
    struct Names {
        namespace: Option<String>,
        name: Option<String>,
    }
    let Named { metadata } = serde_json::from_slice(json).unwrap_or_default();
    let names = [metadata.namespace, metadata.name];
    let object = names.into_iter().flatten().collect::<Vec<_>>().join("/");
    Unencodable::new(object, error.to_string())
}

#[cfg(test)]
mod tests;

//! Decodes protobuf: the `runtime.Unknown` envelope of Go's clients and of stored values, and the messages of built-in types
//! by the tables of `schema`. An object is deserialized, or converted to JSON.
//!
//! Members without a value in Go (a zero time, a nil raw value) are omitted, as are empty ones with `omitempty`.

mod deserializer;
mod json;
mod members;
mod memory;
mod scalars;

pub use self::deserializer::Deserializer;
use self::members::{Object, Root};
pub use self::memory::DecodedMemory;
use self::scalars::text;
use crate::error::InvalidProtobuf;
use crate::schema::{MAGIC, Messages};
use crate::wire::Reader;

impl Messages {
    /// Returns the object in `body` as JSON, with its apiVersion and kind.
    ///
    /// # Errors
    /// The body is not valid, or the JSON is longer than about `json_bytes_max`: a field of two bytes can have a long name.
    pub fn to_json(&self, body: &[u8], json_bytes_max: usize) -> Result<Vec<u8>, InvalidProtobuf> {
        json::write(&self.root(body)?, json_bytes_max)
    }

    /// Returns a deserializer of the object in `body`, as of its JSON.
    ///
    /// # Errors
    /// The envelope is not valid, or the kind is unknown. Other errors are found while the object is deserialized.
    pub fn deserializer<'b>(
        &self,
        body: &'b [u8],
    ) -> Result<Deserializer<'_, 'b>, InvalidProtobuf> {
        self.root(body).map(Deserializer)
    }

    /// Returns an upper bound of the memory that deserializing the object in `body` takes, without deserializing it; zero if the
    /// envelope is not valid or the kind is unknown.
    pub fn decoded_memory(&self, body: &[u8]) -> DecodedMemory {
        let memory = self.root(body).map(|root| memory::bound(&root));
        memory.unwrap_or_default()
    }

    /// Reads the envelope of an object.
    fn root<'b>(&self, body: &'b [u8]) -> Result<Root<'_, 'b>, InvalidProtobuf> {
        let envelope = Envelope::read(body)?;
        let (api_version, kind) = (envelope.api_version, envelope.kind);
        let id = self.types.object_of(api_version, kind).ok_or_else(|| {
            InvalidProtobuf::UnknownKind {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            }
        })?;
        Ok(Root {
            types: &self.types,
            type_meta: [("apiVersion", api_version), ("kind", kind)],
            object: Object {
                id,
                bytes: envelope.raw,
                depth: 1,
            },
        })
    }
}

/// The `runtime.Unknown` envelope around an object.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Envelope<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads the envelope of `body`.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, InvalidProtobuf> {
        let body = body
            .strip_prefix(MAGIC)
            .ok_or(InvalidProtobuf::NoEnvelope)?;
        let mut envelope = Self::default();
        // Go writes the `raw` field even if it is empty: without it the body was truncated.
        let mut whole = false;
        let mut reader = Reader(body);
        while let Some((number, wire)) = reader.field()? {
            let bytes = wire.bytes().ok_or(InvalidProtobuf::Malformed)?;
            match number {
                1 => envelope.read_type(bytes)?,
                2 => {
                    envelope.raw = bytes;
                    whole = true;
                }
                // The content encoding and type are ignored, as upstream: the content is a message.
                _ => {}
            }
        }
        whole.then_some(envelope).ok_or(InvalidProtobuf::Malformed)
    }

    fn read_type(&mut self, type_meta: &'a [u8]) -> Result<(), InvalidProtobuf> {
        let mut reader = Reader(type_meta);
        while let Some((number, wire)) = reader.field()? {
            let bytes = wire.bytes().ok_or(InvalidProtobuf::Malformed)?;
            match number {
                1 => self.api_version = text("apiVersion", bytes)?,
                2 => self.kind = text("kind", bytes)?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;

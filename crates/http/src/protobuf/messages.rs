//! Encodes protobuf responses: an object, the parts of a list, a watch frame, all from their JSON.
//! `request::accept` negotiates whether the client accepts it.

use bytes::Bytes;
use serde_json::Value;

use crate::protobuf::encode::{bytes, close, envelope, open};
use crate::protobuf::error::{EncodeError, Unencodable};
use crate::protobuf::schema::Schema;

impl Schema {
    /// Encodes an object with its envelope; `json` contains its kind.
    ///
    /// # Errors
    /// The kind is unknown, or a value does not fit its field.
    pub(crate) fn encode_object(&self, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
        let object: Value = serde_json::from_slice(json)?;
        let text = |name: &str| object[name].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let mut message = Vec::with_capacity(json.len());
        self.write_object(api_version, kind, &object, &mut message)?;
        let mut out = Vec::with_capacity(message.len() + 64);
        envelope(api_version, kind, message.len(), &mut out);
        out.extend_from_slice(&message);
        Ok(out)
    }

    /// Encodes a watch frame: its length in four big-endian bytes, then a `WatchEvent` without an
    /// envelope; the object in it has one.
    ///
    /// # Errors
    /// As [`Self::encode_object`].
    pub(crate) fn encode_frame(&self, event_type: &str, json: &[u8]) -> Result<Bytes, EncodeError> {
        const TYPE: u32 = 1;
        const OBJECT: u32 = 2;
        const RAW: u32 = 1;
        let mut out = vec![0; 4];
        bytes(TYPE, event_type.as_bytes(), &mut out);
        let raw = open(OBJECT, &mut out);
        bytes(RAW, &self.encode_object(json)?, &mut out);
        close(raw, &mut out);
        let length = u32::try_from(out.len() - 4).map_err(|_| Unencodable::too_large())?;
        out[..4].copy_from_slice(&length.to_be_bytes());
        Ok(out.into())
    }

    /// Appends an item of a list; `json` is an object of the kind.
    ///
    /// # Errors
    /// As [`Self::encode_object`].
    pub(crate) fn encode_item(
        &self,
        (kind, api_version): (&str, &str),
        json: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let object: Value = serde_json::from_slice(json)?;
        let begin = open(ITEMS, out);
        self.write_object(api_version, kind, &object, out)?;
        close(begin, out);
        Ok(())
    }

    /// Encodes everything before the items of a list of this kind, which take `items_bytes`.
    ///
    /// # Errors
    /// The metadata cannot be encoded.
    pub(crate) fn encode_list_head(
        &self,
        (kind, api_version): (&str, &str),
        metadata: &Value,
        items_bytes: usize,
    ) -> Result<Vec<u8>, EncodeError> {
        let mut head = Vec::new();
        let begin = open(METADATA, &mut head);
        self.write_object("meta.k8s.io/v1", "ListMeta", metadata, &mut head)?;
        close(begin, &mut head);
        let mut out = Vec::new();
        envelope(api_version, kind, head.len() + items_bytes, &mut out);
        out.extend_from_slice(&head);
        Ok(out)
    }
}

/// The field numbers of every list message.
const METADATA: u32 = 1;
const ITEMS: u32 = 2;

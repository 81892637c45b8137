//! What the crate `watchet-fuzz` calls: decoders that requests reach only through other layers.

use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::Value;
use watchet_api::EncodingCache;
use watchet_protobuf::{Encoder, Messages, Schema};
use watchet_registry::Patch;
use watchet_schema::{KindType, MemoryBudget, Types, decode_untyped};

use crate::request::accept::{ResponseKind, negotiate, status_media};
use crate::request::body;
use crate::request::options::{
    ListFor, WriteFor, delete_options, get_options, list_options, write_options,
};
use crate::request::query::Query;

/// The maximum size of a body as JSON.
const JSON_BYTES_MAX: usize = 20 << 20;

/// The decoder and the encoder of protobuf bodies.
#[derive(Debug)]
pub struct Protobuf(Arc<Schema>);

impl Protobuf {
    /// Returns those of the messages of `types`.
    pub fn new(types: Arc<Types>) -> Self {
        let messages = Arc::new(Messages::new(types));
        Self(Arc::new(Schema::new(messages, EncodingCache::new(1 << 20))))
    }

    /// Converts the object in a body to JSON and decodes it.
    ///
    /// # Errors
    /// It is no object of a built-in type, or takes too much memory.
    pub fn decode(&self, body: &[u8]) -> Result<Value, String> {
        let json = self.0.to_json(body, JSON_BYTES_MAX);
        let json = json.map_err(|error| error.to_string())?;
        serde_json::from_slice(&json).map_err(|error| error.to_string())
    }

    /// Deserializes the object in a body.
    ///
    /// # Errors
    /// It is no object of a built-in type.
    pub fn deserialize(&self, body: &[u8]) -> Result<Value, String> {
        let reader = self.0.deserializer(body);
        let value = reader.and_then(Value::deserialize);
        value.map_err(|error| error.to_string())
    }

    /// Deserializes an object within the memory that is computed before.
    ///
    /// # Panics
    /// Panics if the object takes more.
    pub fn assert_memory_is_bounded(&self, body: &[u8]) {
        let budget = MemoryBudget::new(self.0.decoded_memory(body).object_bytes);
        if let Ok(reader) = self.0.deserializer(body) {
            drop(decode_untyped(reader, &budget));
            assert_eq!(budget.check(), Ok(()));
        }
    }

    /// Encodes the object `json` in an envelope; `None` if its kind has no protobuf encoding.
    ///
    /// # Errors
    /// A value does not fit its field.
    pub fn encode(&self, json: &Value) -> Option<Result<Vec<u8>, String>> {
        let text = |name: &str| json.get(name).and_then(Value::as_str);
        let encoder = Encoder::new(&self.0, text("apiVersion")?, text("kind")?)?;
        let body = encoder.encode_body(json.to_string().as_bytes());
        Some(body.map(Into::into).map_err(|error| error.to_string()))
    }

    /// Decodes a request body of this content type. `kind` is the type of the object, if it is known.
    ///
    /// # Errors
    /// The body cannot be decoded.
    pub fn decode_body(
        &self,
        kind: Option<&KindType>,
        content_type: &str,
        body: &[u8],
    ) -> Result<Value, String> {
        let decoded = body::object(kind, &self.0, Some(content_type), body);
        decoded
            .map(|decoded| decoded.value)
            .map_err(|error| error.to_string())
    }
}

/// Decodes the body of a PATCH of this content type.
///
/// # Errors
/// The body cannot be decoded.
pub fn decode_patch(content_type: &str, body: &[u8]) -> Result<Patch, String> {
    let decoded = body::patch(Some(content_type), body);
    decoded
        .map(|(patch, _)| patch)
        .map_err(|error| error.to_string())
}

/// Parses a query as the options of each verb, and negotiates a response for it. Returns the number of parsers that
/// accept it.
pub fn parse_options(query: &str, accept: Option<&str>) -> usize {
    let Ok(query) = Query::parse(query) else {
        return 0;
    };
    let lists = [ListFor::List, ListFor::Watch].map(|purpose| {
        let named = list_options(&query, purpose, Some("name"));
        named.is_ok() || list_options(&query, purpose, None).is_ok()
    });
    let writes = [
        WriteFor::Create,
        WriteFor::Update,
        WriteFor::Patch,
        WriteFor::Apply,
    ];
    let writes = writes.map(|purpose| write_options(&query, purpose).is_ok());
    let kinds = [
        ResponseKind::Object,
        ResponseKind::Unstored,
        ResponseKind::List,
        ResponseKind::Watch,
    ];
    let negotiated = kinds.map(|kind| negotiate(accept, kind, &query, None, || true).is_ok());
    status_media(accept);
    let others = [
        get_options(&query).is_ok(),
        delete_options(&query, None).is_ok(),
    ];
    let all = lists
        .iter()
        .chain(&writes)
        .chain(&negotiated)
        .chain(&others);
    all.filter(|accepted| **accepted).count()
}

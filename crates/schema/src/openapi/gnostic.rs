//! Encodes OpenAPI v2 documents in protobuf: the messages of gnostic's `openapi.v2`, as far as
//! these documents use them.

use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value};

/// Encodes a document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["swagger"]);
    out.message(2, |info| {
        info.text(1, &document["info"]["title"]);
        info.text(2, &document["info"]["version"]);
    });
    out.message(8, |paths| {
        for (path, item) in members(&document["paths"]) {
            paths.named(2, path, |out| path_item(item, out));
        }
    });
    out.message(9, |definitions| {
        for (name, definition) in members(&document["definitions"]) {
            definitions.named(1, name, |out| schema(definition, out));
        }
    });
    out.0
}

pub(super) fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A message being encoded.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        encode_key(field, WireType::LengthDelimited, &mut self.0);
        encode_varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, field: u32, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    pub(super) fn texts(&mut self, field: u32, values: &Value) {
        for text in items(values).filter_map(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    pub(super) fn flag(&mut self, field: u32, value: &Value) {
        if value == &Value::Bool(true) {
            encode_key(field, WireType::Varint, &mut self.0);
            encode_varint(1, &mut self.0);
        }
    }

    pub(super) fn integer(&mut self, field: u32, value: &Value) {
        if let Some(number) = value.as_i64().filter(|number| *number != 0) {
            encode_key(field, WireType::Varint, &mut self.0);
            encode_varint(number as u64, &mut self.0);
        }
    }

    pub(super) fn double(&mut self, field: u32, value: &Value) {
        if let Some(number) = value.as_f64().filter(|number| *number != 0.0) {
            encode_key(field, WireType::SixtyFourBit, &mut self.0);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// Encodes a map entry.
    pub(super) fn named(&mut self, field: u32, name: &str, write: impl FnOnce(&mut Message)) {
        self.message(field, |entry| {
            entry.bytes(1, name.as_bytes());
            entry.message(2, write);
        });
    }

    /// Encodes any value as YAML, of which JSON is a subset.
    pub(super) fn any(&mut self, field: u32, value: &Value) {
        if !value.is_null() {
            self.message(field, |any| any.bytes(2, value.to_string().as_bytes()));
        }
    }

    pub(super) fn extensions(&mut self, field: u32, of: &Value) {
        for (name, value) in members(of).filter(|(name, _)| name.starts_with("x-")) {
            self.named(field, name, |any| {
                any.bytes(2, value.to_string().as_bytes());
            });
        }
    }
}

fn path_item(item: &Value, out: &mut Message) {
    for (field, method) in [
        (2, "get"),
        (3, "put"),
        (4, "post"),
        (5, "delete"),
        (8, "patch"),
    ] {
        if !item[method].is_null() {
            out.message(field, |out| operation(&item[method], out));
        }
    }
    parameters(9, &item["parameters"], out);
    out.extensions(10, item);
}

fn operation(operation: &Value, out: &mut Message) {
    out.texts(1, &operation["tags"]);
    out.text(3, &operation["description"]);
    out.text(5, &operation["operationId"]);
    out.texts(6, &operation["produces"]);
    out.texts(7, &operation["consumes"]);
    parameters(8, &operation["parameters"], out);
    out.message(9, |out| {
        for (code, response) in members(&operation["responses"]) {
            out.named(1, code, |value| {
                value.message(1, |out| {
                    out.text(1, &response["description"]);
                    if !response["schema"].is_null() {
                        out.message(2, |item| {
                            item.message(1, |s| schema(&response["schema"], s))
                        });
                    }
                });
            });
        }
    });
    out.texts(10, &operation["schemes"]);
    out.extensions(13, operation);
}

fn parameters(field: u32, all: &Value, out: &mut Message) {
    for one in items(all) {
        let write = |out: &mut Message| match one["in"].as_str() {
            Some("body") => out.message(1, |body| {
                body.text(1, &one["description"]);
                body.text(2, &one["name"]);
                body.text(3, &one["in"]);
                body.flag(4, &one["required"]);
                body.message(5, |out| schema(&one["schema"], out));
            }),
            place => out.message(2, |other| {
                let (kind, form, unique) = match place {
                    Some("path") => (4, 5, 19),
                    _ => (3, 6, 20),
                };
                other.message(kind, |out| {
                    out.flag(1, &one["required"]);
                    out.text(2, &one["in"]);
                    out.text(3, &one["description"]);
                    out.text(4, &one["name"]);
                    out.text(form, &one["type"]);
                    out.flag(unique, &one["uniqueItems"]);
                });
            }),
        };
        out.message(field, |item| item.message(1, write));
    }
}

fn schema(of: &Value, out: &mut Message) {
    out.text(1, &of["$ref"]);
    out.text(2, &of["format"]);
    out.text(3, &of["title"]);
    out.text(4, &of["description"]);
    out.any(5, &of["default"]);
    out.double(6, &of["multipleOf"]);
    out.double(7, &of["maximum"]);
    out.flag(8, &of["exclusiveMaximum"]);
    out.double(9, &of["minimum"]);
    out.flag(10, &of["exclusiveMinimum"]);
    out.integer(11, &of["maxLength"]);
    out.integer(12, &of["minLength"]);
    out.text(13, &of["pattern"]);
    out.integer(14, &of["maxItems"]);
    out.integer(15, &of["minItems"]);
    out.flag(16, &of["uniqueItems"]);
    out.integer(17, &of["maxProperties"]);
    out.integer(18, &of["minProperties"]);
    out.texts(19, &of["required"]);
    items(&of["enum"]).for_each(|value| out.any(20, value));
    match &of["additionalProperties"] {
        Value::Bool(allowed) => out.message(21, |item| item.flag(2, &(*allowed).into())),
        Value::Null => {}
        values => out.message(21, |item| item.message(1, |out| schema(values, out))),
    }
    if !of["type"].is_null() {
        out.message(22, |item| item.text(1, &of["type"]));
    }
    if !of["items"].is_null() {
        out.message(23, |item| item.message(1, |out| schema(&of["items"], out)));
    }
    items(&of["allOf"]).for_each(|one| out.message(24, |out| schema(one, out)));
    if !of["properties"].is_null() {
        out.message(25, |out| {
            for (name, property) in members(&of["properties"]) {
                out.named(1, name, |out| schema(property, out));
            }
        });
    }
    out.any(30, &of["example"]);
    out.extensions(31, of);
}

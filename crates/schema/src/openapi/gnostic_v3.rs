//! Encodes OpenAPI v3 documents in protobuf: the messages of gnostic's `openapi.v3`, as far as
//! these documents use them.

use serde_json::Value;

use super::gnostic::{Message, items, members};

/// Encodes a document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["openapi"]);
    out.message(2, |info| {
        info.text(1, &document["info"]["title"]);
        info.text(6, &document["info"]["version"]);
    });
    out.message(4, |paths| {
        for (path, item) in members(&document["paths"]) {
            paths.named(1, path, |out| path_item(item, out));
        }
    });
    out.message(5, |components| {
        components.message(1, |schemas| {
            for (name, one) in members(&document["components"]["schemas"]) {
                schemas.named(1, name, |out| schema_or_reference(one, out));
            }
        });
    });
    out.0
}

fn path_item(item: &Value, out: &mut Message) {
    for (field, method) in [
        (4, "get"),
        (5, "put"),
        (6, "post"),
        (7, "delete"),
        (8, "options"),
        (9, "head"),
        (10, "patch"),
    ] {
        if !item[method].is_null() {
            out.message(field, |out| operation(&item[method], out));
        }
    }
    parameters(13, &item["parameters"], out);
    out.extensions(14, item);
}

fn operation(operation: &Value, out: &mut Message) {
    out.texts(1, &operation["tags"]);
    out.text(3, &operation["description"]);
    out.text(5, &operation["operationId"]);
    parameters(6, &operation["parameters"], out);
    let body = &operation["requestBody"];
    if !body.is_null() {
        out.message(7, |either| {
            either.message(1, |out| {
                out.text(1, &body["description"]);
                content(2, &body["content"], out);
                out.flag(3, &body["required"]);
            });
        });
    }
    out.message(8, |out| {
        for (code, response) in members(&operation["responses"]) {
            out.named(2, code, |either| {
                either.message(1, |out| {
                    out.text(1, &response["description"]);
                    content(3, &response["content"], out);
                });
            });
        }
    });
    out.extensions(13, operation);
}

fn parameters(field: u32, all: &Value, out: &mut Message) {
    for one in items(all) {
        out.message(field, |either| {
            either.message(1, |out| {
                out.text(1, &one["name"]);
                out.text(2, &one["in"]);
                out.text(3, &one["description"]);
                out.flag(4, &one["required"]);
                if !one["schema"].is_null() {
                    out.message(10, |out| schema_or_reference(&one["schema"], out));
                }
            });
        });
    }
}

/// Encodes bodies by media type.
fn content(field: u32, content: &Value, out: &mut Message) {
    if content.is_null() {
        return;
    }
    out.message(field, |types| {
        for (media, body) in members(content) {
            types.named(1, media, |out| {
                if !body["schema"].is_null() {
                    out.message(1, |out| schema_or_reference(&body["schema"], out));
                }
            });
        }
    });
}

fn schema_or_reference(of: &Value, out: &mut Message) {
    match of["$ref"].is_string() {
        true => out.message(2, |out| out.text(1, &of["$ref"])),
        false => out.message(1, |out| schema(of, out)),
    }
}

fn schema(of: &Value, out: &mut Message) {
    out.flag(1, &of["nullable"]);
    out.any(7, &of["example"]);
    out.text(9, &of["title"]);
    out.double(10, &of["multipleOf"]);
    out.double(11, &of["maximum"]);
    out.flag(12, &of["exclusiveMaximum"]);
    out.double(13, &of["minimum"]);
    out.flag(14, &of["exclusiveMinimum"]);
    out.integer(15, &of["maxLength"]);
    out.integer(16, &of["minLength"]);
    out.text(17, &of["pattern"]);
    out.integer(18, &of["maxItems"]);
    out.integer(19, &of["minItems"]);
    out.flag(20, &of["uniqueItems"]);
    out.integer(21, &of["maxProperties"]);
    out.integer(22, &of["minProperties"]);
    out.texts(23, &of["required"]);
    items(&of["enum"]).for_each(|value| out.any(24, value));
    out.text(25, &of["type"]);
    for (field, list) in [(26, "allOf"), (27, "oneOf"), (28, "anyOf")] {
        items(&of[list]).for_each(|one| out.message(field, |out| schema_or_reference(one, out)));
    }
    if !of["not"].is_null() {
        out.message(29, |out| schema(&of["not"], out));
    }
    if !of["items"].is_null() {
        out.message(30, |item| {
            item.message(1, |out| schema_or_reference(&of["items"], out))
        });
    }
    if !of["properties"].is_null() {
        out.message(31, |out| {
            for (name, property) in members(&of["properties"]) {
                out.named(1, name, |out| schema_or_reference(property, out));
            }
        });
    }
    match &of["additionalProperties"] {
        Value::Null => {}
        allowed @ Value::Bool(_) => out.message(32, |item| item.flag(2, allowed)),
        values => out.message(32, |item| {
            item.message(1, |out| schema_or_reference(values, out));
        }),
    }
    // The format supports scalar defaults only.
    match &of["default"] {
        number @ Value::Number(_) => out.message(33, |out| out.double(1, number)),
        flag @ Value::Bool(_) => out.message(33, |out| out.flag(2, flag)),
        text @ Value::String(_) => out.message(33, |out| out.text(3, text)),
        _ => {}
    }
    out.text(34, &of["description"]);
    out.text(35, &of["format"]);
    out.extensions(36, of);
}

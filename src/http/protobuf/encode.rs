//! Objects as protobuf (§1.3, §8.2), by the same table as they are read: the inverse of the parent. JSON
//! members that the table does not have are left out, as Go's servers leave out what they do not know.
//! How answers are put together from objects is told in `list_body` and `watch_body`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{Field, Kind, MAGIC, Schema, Shape};

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

/// An object holds a value that its type cannot: it was stored by somebody who did not ask this server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: field {field:?} holds a value that its type cannot: {value}")]
pub(crate) struct Unencodable {
    /// `namespace/name`, as far as it is known.
    object: String,
    field: String,
    value: String,
}

impl Unencodable {
    /// A frame's length does not fit its four bytes.
    pub(super) fn too_large() -> Self {
        Self::new("object", &Value::from("too large"))
    }

    fn new(field: &str, value: &Value) -> Self {
        let mut value = value.to_string();
        value.truncate(value.floor_char_boundary(100));
        Self {
            object: String::new(),
            field: field.to_owned(),
            value,
        }
    }

    /// Says in which object.
    fn within(self, object: &Value) -> Self {
        let text = |name: &str| object["metadata"][name].as_str();
        let names = [text("namespace"), text("name")];
        let object = names.into_iter().flatten().collect::<Vec<_>>().join("/");
        Self { object, ..self }
    }

    /// The field and its value, for who knows the object.
    pub(crate) fn what(&self) -> String {
        format!("field {:?} cannot hold {}", self.field, self.value)
    }
}

impl Schema {
    /// Whether objects of this kind can be written.
    pub(crate) fn knows(&self, api_version: &str, kind: &str) -> bool {
        self.message_of(api_version, kind).is_some()
    }

    /// Appends the message of `object`, without an envelope.
    ///
    /// # Errors
    /// A value does not fit its field, or the kind is not [known](Self::knows).
    pub(crate) fn write_object(
        &self,
        api_version: &str,
        kind: &str,
        object: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        let unfit = || Unencodable::new("kind", &kind.into());
        let message = self.message_of(api_version, kind).ok_or_else(unfit)?;
        let members = object.as_object().ok_or_else(unfit)?;
        self.write(message, members, out)
            .map_err(|error| error.within(object))
    }

    fn write(
        &self,
        message: usize,
        object: &Map<String, Value>,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        for field in &self.messages[message].fields {
            if let (Kind::Message(inner), true) = (field.kind, field.inline) {
                let before = out.len();
                let begin = open(field.number, out);
                self.write(inner, object, out)?;
                match out.len() == begin {
                    true => out.truncate(before),
                    false => close(begin, out),
                }
                continue;
            }
            match object.get(&*field.name) {
                None | Some(Value::Null) => {}
                Some(value) => self.write_field(field, value, out)?,
            }
        }
        Ok(())
    }

    fn write_field(
        &self,
        field: &Field,
        value: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        let unfit = || Unencodable::new(&field.name, value);
        match field.shape {
            Shape::One => self.write_value(field, field.number, value, out),
            Shape::List => {
                let list = value.as_array().ok_or_else(unfit)?;
                list.iter()
                    .try_for_each(|item| self.write_value(field, field.number, item, out))
            }
            Shape::Map => {
                let map = value.as_object().ok_or_else(unfit)?;
                for (key, value) in map {
                    let begin = open(field.number, out);
                    bytes(1, key.as_bytes(), out);
                    self.write_value(field, 2, value, out)?;
                    close(begin, out);
                }
                Ok(())
            }
        }
    }

    /// One value as the field numbered `number`.
    fn write_value(
        &self,
        field: &Field,
        number: u32,
        value: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        let unfit = || Unencodable::new(&field.name, value);
        match (field.kind, value) {
            (Kind::String, Value::String(text)) => bytes(number, text.as_bytes(), out),
            (Kind::Bool, Value::Bool(flag)) => varint_field(number, (*flag).into(), out),
            (Kind::Integer, Value::Number(integer)) => {
                let integer = integer.as_i64().ok_or_else(unfit)?;
                varint_field(number, integer as u64, out);
            }
            (Kind::Double, Value::Number(double)) => {
                let double = double.as_f64().ok_or_else(unfit)?;
                varint(u64::from(number) << 3 | FIXED64, out);
                out.extend_from_slice(&double.to_bits().to_le_bytes());
            }
            (Kind::Bytes, Value::String(text)) => {
                let decoded = STANDARD.decode(text).map_err(|_| unfit())?;
                bytes(number, &decoded, out);
            }
            (Kind::Raw, value) => {
                let begin = open(number, out);
                bytes(1, value.to_string().as_bytes(), out);
                close(begin, out);
            }
            (kind, value) => {
                let begin = open(number, out);
                self.write_message(field, kind, value, out)?;
                close(begin, out);
            }
        }
        Ok(())
    }

    /// The inside of a value that is a message on the wire, whatever it is in JSON.
    fn write_message(
        &self,
        field: &Field,
        kind: Kind,
        value: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        let unfit = || Unencodable::new(&field.name, value);
        match (kind, value) {
            // An element of a list may be null, and is then the empty message.
            (_, Value::Null) => {}
            (Kind::Message(message), Value::Object(members)) => {
                self.write(message, members, out)?;
            }
            (Kind::Union(message), value) => self.write_union(message, value, out)?,
            (Kind::Time | Kind::MicroTime, Value::String(text)) => {
                let time: jiff::Timestamp = text.parse().map_err(|_| unfit())?;
                varint_field(1, time.as_second() as u64, out);
                varint_field(2, time.subsec_nanosecond() as u64, out);
            }
            (Kind::Quantity, Value::String(text)) => bytes(1, text.as_bytes(), out),
            (Kind::Quantity, Value::Number(number)) => {
                bytes(1, number.to_string().as_bytes(), out);
            }
            (Kind::IntOrString, Value::String(text)) => {
                varint_field(1, 1, out);
                bytes(3, text.as_bytes(), out);
            }
            (Kind::IntOrString, Value::Number(number)) => {
                varint_field(1, 0, out);
                varint_field(2, number.as_i64().ok_or_else(unfit)? as u64, out);
            }
            (Kind::Items, Value::Array(items)) => {
                for item in items {
                    bytes(1, item.as_str().ok_or_else(unfit)?.as_bytes(), out);
                }
            }
            _ => return Err(unfit()),
        }
        Ok(())
    }

    /// The alternatives of CRD schemas: a schema, a list of them or of names, or a flag.
    fn write_union(
        &self,
        message: usize,
        value: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        let fields = &self.messages[message].fields;
        let named = |name: &str| fields.iter().find(|field| &*field.name == name);
        let allows = named("allows");
        let chosen = match value {
            Value::Bool(_) => allows,
            Value::Array(_) => named("jSONSchemas").or_else(|| named("property")),
            _ => named("schema"),
        };
        // Go's reader of JSON sets the flag beside a schema.
        if let (Some(allows), Value::Object(_)) = (allows, value) {
            varint_field(allows.number, 1, out);
        }
        match chosen {
            Some(field) => self.write_field(field, value, out),
            None => Err(Unencodable::new("schema", value)),
        }
    }
}

/// Appends the beginning of an envelope around `length` bytes of an object, which follow.
pub(crate) fn envelope(api_version: &str, kind: &str, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    let begin = open(1, out);
    bytes(1, api_version.as_bytes(), out);
    bytes(2, kind.as_bytes(), out);
    close(begin, out);
    key(2, BYTES, out);
    varint(length as u64, out);
}

/// Appends a field of bytes, a string or a message that is encoded already.
pub(crate) fn bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    key(number, BYTES, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Begins a message field; returns where its inside begins.
pub(crate) fn open(number: u32, out: &mut Vec<u8>) -> usize {
    key(number, BYTES, out);
    out.len()
}

/// Ends a message field: its length goes before what was written since `begin`.
pub(crate) fn close(begin: usize, out: &mut Vec<u8>) {
    let length = (out.len() - begin) as u64;
    let mut head = Vec::with_capacity(4);
    varint(length, &mut head);
    out.splice(begin..begin, head);
}

fn varint_field(number: u32, value: u64, out: &mut Vec<u8>) {
    key(number, VARINT, out);
    varint(value, out);
}

fn key(number: u32, wire: u64, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | wire, out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn round_trip(schema: &Schema, object: &Value) -> Value {
        let text = |name: &str| object[name].as_str().unwrap();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let mut message = Vec::new();
        let written = schema.write_object(api_version, kind, object, &mut message);
        written.unwrap_or_else(|error| panic!("{error}: {object}"));
        let mut body = Vec::new();
        envelope(api_version, kind, message.len(), &mut body);
        body.extend_from_slice(&message);
        schema
            .object(&body)
            .unwrap_or_else(|error| panic!("{error}: {object}"))
    }

    /// A value of a field's type, made of `seed`; small and never empty, since some empty values are
    /// dropped when they are read.
    fn value_of(schema: &Schema, field: &Field, depth: usize, seed: &mut u64) -> Value {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = (*seed >> 33) as i64;
        match field.kind {
            Kind::String => format!("s{number}").into(),
            Kind::Bool => true.into(),
            Kind::Integer if number % 2 == 0 => (1 + number).into(),
            Kind::Integer => (-1 - number).into(),
            Kind::Double => (number as f64 + 0.5).into(),
            Kind::Bytes => STANDARD.encode(number.to_be_bytes()).into(),
            Kind::Message(message) => object_of(schema, message, depth + 1, seed),
            Kind::Union(message) => {
                let fields = &schema.messages[message].fields;
                let schema_field = fields.iter().find(|f| &*f.name == "schema").unwrap();
                value_of(schema, schema_field, depth + 1, seed)
            }
            Kind::Time => "2026-11-21T10:00:00Z".into(),
            Kind::MicroTime => "2026-11-21T10:00:00.123456Z".into(),
            Kind::Quantity => format!("{number}m").into(),
            Kind::IntOrString if number % 2 == 0 => number.into(),
            Kind::IntOrString => format!("{number}%").into(),
            Kind::Raw => json!({"raw": number}),
            Kind::Items => json!([format!("i{number}")]),
        }
    }

    fn object_of(schema: &Schema, message: usize, depth: usize, seed: &mut u64) -> Value {
        let mut object = Map::new();
        fill(schema, message, depth, seed, &mut object);
        Value::Object(object)
    }

    fn fill(
        schema: &Schema,
        message: usize,
        depth: usize,
        seed: &mut u64,
        object: &mut Map<String, Value>,
    ) {
        // Schemas hold schemas: deep down, only what holds nothing.
        let fields = &schema.messages[message].fields;
        for field in fields {
            let holds = matches!(field.kind, Kind::Message(_) | Kind::Union(_));
            if depth > 4 && holds {
                continue;
            }
            if let (Kind::Message(inner), true) = (field.kind, field.inline) {
                fill(schema, inner, depth + 1, seed, object);
                continue;
            }
            let mut value = || value_of(schema, field, depth, seed);
            let value = match field.shape {
                Shape::One => value(),
                Shape::List => json!([value(), value()]),
                Shape::Map => json!({"a": value(), "b": value()}),
            };
            object.insert(field.name.to_string(), value);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        /// Every kind with every field survives being written and read.
        #[test]
        fn what_is_written_can_be_read(seed: u64) {
            let schema = Schema::new();
            let mut kinds = 0;
            for (message, name) in schema.messages.iter().map(|m| &m.name).enumerate() {
                let parts: Vec<&str> = name.split('.').collect();
                let has_metadata = schema.messages[message].fields.first()
                    .is_some_and(|field| &*field.name == "metadata");
                let [group, version, kind] = parts[..] else { continue };
                if !has_metadata || kind.ends_with("Template") || kind.ends_with("TemplateSpec") {
                    continue;
                }
                let mut object = object_of(&schema, message, 0, &mut seed.clone());
                let api_version = match group {
                    "core" => version.to_owned(),
                    _ => format!("{group}/{version}"),
                };
                object["apiVersion"] = api_version.into();
                object["kind"] = kind.into();
                prop_assert_eq!(round_trip(&schema, &object), object);
                kinds += 1;
            }
            prop_assert!(kinds > 50, "{}", kinds);
        }
    }

    #[test]
    fn the_bytes_are_those_of_go() {
        // The fields of a Time, and the envelope, as the generated code of apimachinery writes them.
        let schema = Schema::new();
        let object =
            json!({"metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:05Z"}});
        let mut message = Vec::new();
        schema
            .write_object("v1", "ConfigMap", &object, &mut message)
            .unwrap();
        let metadata = b"\x0a\x01a\x42\x04\x08\x05\x10\x00";
        assert_eq!(
            message,
            [&[0x0a, metadata.len() as u8][..], metadata].concat()
        );
        let mut body = Vec::new();
        envelope("v1", "ConfigMap", 300, &mut body);
        assert_eq!(
            body,
            b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\xac\x02"
        );
    }

    #[test]
    fn values_that_do_not_fit_are_named() {
        let schema = Schema::new();
        let mut out = Vec::new();
        let object = json!({
            "metadata": {"namespace": "ns", "name": "a"}, "spec": {"replicas": "three"},
        });
        let error = schema.write_object("apps/v1", "Deployment", &object, &mut out);
        let error = error.unwrap_err().to_string();
        assert_eq!(
            error,
            r#"ns/a: field "replicas" holds a value that its type cannot: "three""#
        );
        let unknown = json!({"data": {"a": "b"}, "more": {"x": 1}, "binaryData": null});
        schema
            .write_object("v1", "ConfigMap", &unknown, &mut out)
            .unwrap();
    }
}

//! Encodes JSON objects as protobuf, by the same tables as the decoder. JSON members that are not in the tables are
//! left out, as Go's servers drop unknown fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::protobuf::error::Unencodable;
use crate::protobuf::schema::{MAGIC, Schema};
use watchet_schema::{Field, Node, ObjectId, Scalar};

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

impl Schema {
    /// Appends the message of `object`, without an envelope.
    ///
    /// # Errors
    /// A value does not fit its field, or the kind is not [known](Self::has_kind).
    pub(crate) fn write_object(
        &self,
        api_version: &str,
        kind: &str,
        object: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        let unfit = || Unencodable::new("kind", &kind.into());
        let message = self.0.object_of(api_version, kind).ok_or_else(unfit)?;
        let members = object.as_object().ok_or_else(unfit)?;
        self.write(message, members, out)
            .map_err(|error| error.within(object))
    }

    fn write(
        &self,
        message: ObjectId,
        object: &Map<String, Value>,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        for field in self.0.object_fields(message) {
            let Some(number) = field.number() else {
                continue;
            };
            if let (Node::Object { object: inner, .. }, true) =
                (self.node(field), field.is_inline())
            {
                let before = out.len();
                let begin = open(number, out);
                self.write(inner, object, out)?;
                match out.len() == begin {
                    true => out.truncate(before),
                    false => close(begin, out),
                }
                continue;
            }
            match object.get(field.name()) {
                None | Some(Value::Null) => {}
                Some(value) => self.write_field(field, number, value, out)?,
            }
        }
        Ok(())
    }

    fn write_field(
        &self,
        field: &Field,
        number: u32,
        value: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        let unfit = || Unencodable::new(field.name(), value);
        match self.node(field) {
            Node::List {
                item,
                wrapped: false,
                ..
            } => {
                let item = self.0.node(item);
                let list = value.as_array().ok_or_else(unfit)?;
                list.iter()
                    .try_for_each(|value| self.write_value(field, item, number, value, out))
            }
            Node::Map { value: node, .. } => {
                let node = self.0.node(node);
                let map = value.as_object().ok_or_else(unfit)?;
                for (key, value) in map {
                    let begin = open(number, out);
                    bytes(1, key.as_bytes(), out);
                    self.write_value(field, node, 2, value, out)?;
                    close(begin, out);
                }
                Ok(())
            }
            node => self.write_value(field, node, number, value, out),
        }
    }

    /// Appends a value as the field `number`.
    fn write_value(
        &self,
        field: &Field,
        node: Node,
        number: u32,
        value: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        let unfit = || Unencodable::new(field.name(), value);
        match (node, value) {
            (Node::Scalar(Scalar::String), Value::String(text)) => {
                bytes(number, text.as_bytes(), out)
            }
            (Node::Scalar(Scalar::Bool), Value::Bool(flag)) => {
                varint_field(number, (*flag).into(), out)
            }
            (Node::Scalar(size @ (Scalar::Int32 | Scalar::Int64)), Value::Number(integer)) => {
                let integer = integer.as_i64().ok_or_else(unfit)?;
                if size == Scalar::Int32 && i32::try_from(integer).is_err() {
                    return Err(unfit());
                }
                varint_field(number, integer as u64, out);
            }
            (Node::Scalar(Scalar::Number), Value::Number(double)) => {
                let double = double.as_f64().ok_or_else(unfit)?;
                varint(u64::from(number) << 3 | FIXED64, out);
                out.extend_from_slice(&double.to_bits().to_le_bytes());
            }
            (Node::Scalar(Scalar::Bytes), Value::String(text)) => {
                let decoded = STANDARD.decode(text).map_err(|_| unfit())?;
                bytes(number, &decoded, out);
            }
            (Node::Raw, value) => {
                let begin = open(number, out);
                bytes(1, value.to_string().as_bytes(), out);
                close(begin, out);
            }
            (node, value) => {
                let begin = open(number, out);
                self.write_message(field, node, value, out)?;
                close(begin, out);
            }
        }
        Ok(())
    }

    /// Appends the content of a value that is a message in protobuf, whatever it is in JSON.
    fn write_message(
        &self,
        field: &Field,
        node: Node,
        value: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        let unfit = || Unencodable::new(field.name(), value);
        match (node, value) {
            // A null element of a list is the empty message.
            (_, Value::Null) => {}
            (
                Node::Object {
                    object: message, ..
                },
                Value::Object(members),
            ) => {
                self.write(message, members, out)?;
            }
            (Node::Union(message), value) => self.write_union(message, value, out)?,
            (Node::Scalar(Scalar::Time | Scalar::MicroTime), Value::String(text)) => {
                let time: jiff::Timestamp = text.parse().map_err(|_| unfit())?;
                varint_field(1, time.as_second() as u64, out);
                varint_field(2, time.subsec_nanosecond() as u64, out);
            }
            (Node::Scalar(Scalar::Quantity), Value::String(text)) => bytes(1, text.as_bytes(), out),
            (Node::Scalar(Scalar::Quantity), Value::Number(number)) => {
                bytes(1, number.to_string().as_bytes(), out);
            }
            (Node::Scalar(Scalar::IntOrString), Value::String(text)) => {
                varint_field(1, 1, out);
                bytes(3, text.as_bytes(), out);
            }
            (Node::Scalar(Scalar::IntOrString), Value::Number(number)) => {
                varint_field(1, 0, out);
                varint_field(2, number.as_i64().ok_or_else(unfit)? as u64, out);
            }
            (Node::List { wrapped: true, .. }, Value::Array(items)) => {
                for item in items {
                    bytes(1, item.as_str().ok_or_else(unfit)?.as_bytes(), out);
                }
            }
            _ => return Err(unfit()),
        }
        Ok(())
    }

    /// Appends the union types of CRD schemas: a schema, or a list of schemas or names, or a
    /// boolean.
    fn write_union(
        &self,
        message: ObjectId,
        value: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable> {
        let fields = self.0.object_fields(message);
        let named = |name: &str| {
            let field = fields.iter().find(|field| field.name() == name)?;
            Some((field, field.number()?))
        };
        let allows = named("allows");
        let chosen = match value {
            Value::Bool(_) => allows,
            Value::Array(_) => named("jSONSchemas").or_else(|| named("property")),
            _ => named("schema"),
        };
        // Go's JSON decoder sets the boolean beside a schema.
        if let (Some((_, number)), Value::Object(_)) = (allows, value) {
            varint_field(number, 1, out);
        }
        match chosen {
            Some((field, number)) => self.write_field(field, number, value, out),
            None => Err(Unencodable::new("schema", value)),
        }
    }
}

/// Appends the start of an envelope; `length` bytes of an object must follow.
pub(crate) fn envelope(api_version: &str, kind: &str, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    let begin = open(1, out);
    bytes(1, api_version.as_bytes(), out);
    bytes(2, kind.as_bytes(), out);
    close(begin, out);
    key(2, BYTES, out);
    varint(length as u64, out);
}

/// Appends a field of bytes, a string or an encoded message.
pub(crate) fn bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    key(number, BYTES, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Begins a message field; returns the offset of its content.
pub(crate) fn open(number: u32, out: &mut Vec<u8>) -> usize {
    key(number, BYTES, out);
    out.len()
}

/// Ends a message field: inserts its length before the content written since `begin`.
pub(crate) fn close(begin: usize, out: &mut Vec<u8>) {
    let length = (out.len() - begin) as u64;
    let (head, used) = varint_bytes(length);
    out.splice(begin..begin, head[..used].iter().copied());
}

fn varint_field(number: u32, value: u64, out: &mut Vec<u8>) {
    key(number, VARINT, out);
    varint(value, out);
}

fn key(number: u32, wire: u64, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | wire, out);
}

fn varint(value: u64, out: &mut Vec<u8>) {
    let (bytes, used) = varint_bytes(value);
    out.extend_from_slice(&bytes[..used]);
}

/// Returns the varint encoding of a number and how many of the bytes are used.
fn varint_bytes(mut value: u64) -> ([u8; 10], usize) {
    let (mut bytes, mut used) = ([0; 10], 1);
    while value >= 0x80 {
        bytes[used - 1] = (value & 0x7f) as u8 | 0x80;
        value >>= 7;
        used += 1;
    }
    bytes[used - 1] = value as u8;
    (bytes, used)
}

#[cfg(test)]
mod tests;

//! Decodes protobuf request bodies to JSON values: the `runtime.Unknown` envelope of Go's clients,
//! and the messages of built-in types by the tables of `schema`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::protobuf::error::InvalidProtobuf;
use crate::protobuf::schema::{DEPTH_MAX, MAGIC, Schema};
use crate::protobuf::wire::{Reader, WireValue};
use watchet_schema::{Field, MemoryBudget, Node, ObjectId, Scalar, decode_untyped};

/// What the decoders of nested values share.
#[derive(Clone, Copy)]
struct Position<'m> {
    memory: &'m MemoryBudget,
    depth: usize,
}

impl Position<'_> {
    /// The position of a message in this one.
    fn inner(self) -> Self {
        Self {
            depth: self.depth + 1,
            ..self
        }
    }
}

impl Schema {
    /// Decodes the object in `body`, with its kind and apiVersion.
    ///
    /// # Errors
    /// The body is not valid, or takes more than `memory`.
    pub(crate) fn object(
        &self,
        body: &[u8],
        memory: &MemoryBudget,
    ) -> Result<Value, InvalidProtobuf> {
        let body = body
            .strip_prefix(MAGIC)
            .ok_or(InvalidProtobuf::NoEnvelope)?;
        let envelope = Envelope::read(body)?;
        let (api_version, kind) = (envelope.api_version, envelope.kind);
        let message = self.types.object_of(&api_version, &kind).ok_or_else(|| {
            InvalidProtobuf::UnknownKind {
                api_version: api_version.clone(),
                kind: kind.clone(),
            }
        })?;
        let mut object = Map::new();
        let position = Position { memory, depth: 0 };
        self.read(message, envelope.raw, position, &mut object)?;
        object.insert("apiVersion".to_owned(), api_version.into());
        object.insert("kind".to_owned(), kind.into());
        Ok(Value::Object(object))
    }

    /// Decodes a message into the members of `object`.
    fn read(
        &self,
        message: ObjectId,
        bytes: &[u8],
        position: Position<'_>,
        object: &mut Map<String, Value>,
    ) -> Result<(), InvalidProtobuf> {
        if position.depth > DEPTH_MAX {
            return Err(InvalidProtobuf::TooDeep);
        }
        let fields = self.types.object_fields(message);
        let mut reader = Reader(bytes);
        // Encoders write fields in about the order of the table, so the next one is near the previous one.
        let mut previous = 0;
        while let Some((number, wire)) = reader.field()? {
            let (before, after) = fields.split_at(previous);
            let mut candidates = after.iter().chain(before);
            // Unknown fields are dropped, as in kube-apiserver.
            let Some(at) = candidates.position(|field| field.number() == Some(number)) else {
                continue;
            };
            previous = (previous + at) % fields.len();
            let field = &fields[previous];
            if let (Node::Object { object: inner, .. }, true) =
                (self.node(field), field.is_inline())
            {
                let bytes = wire
                    .bytes()
                    .ok_or_else(|| self.wire_type(message, number))?;
                self.read(inner, bytes, position.inner(), object)?;
                continue;
            }
            self.read_field(message, field, wire, position, object)?;
        }
        Ok(())
    }

    fn read_field(
        &self,
        message: ObjectId,
        field: &Field,
        wire: WireValue<'_>,
        position: Position<'_>,
        object: &mut Map<String, Value>,
    ) -> Result<(), InvalidProtobuf> {
        let wrong = || self.wire_type(message, field.number().unwrap_or_default());
        let memory = position.memory;
        match self.node(field) {
            Node::List {
                item,
                wrapped: false,
                ..
            } => {
                let item = self.types.node(item);
                let Value::Array(list) =
                    member(object, field.name(), memory, || Value::Array(Vec::new()))?
                else {
                    return Err(wrong());
                };
                // Numbers may be packed: several in one field.
                if let (
                    Node::Scalar(scalar @ (Scalar::Int32 | Scalar::Int64)),
                    WireValue::Bytes(packed),
                ) = (item, wire)
                {
                    let mut reader = Reader(packed);
                    while !reader.0.is_empty() {
                        memory.count_item(list.is_empty())?;
                        list.push(integer(scalar, reader.varint()?));
                    }
                    return Ok(());
                }
                let value = self.value(field, item, wire, position)?.ok_or_else(wrong)?;
                memory.count_item(list.is_empty())?;
                if value.as_object().is_some_and(Map::is_empty) {
                    memory.count_empty_map()?;
                }
                list.push(value);
            }
            Node::Map { value, .. } => {
                let Value::Object(map) =
                    member(object, field.name(), memory, || Value::Object(Map::new()))?
                else {
                    return Err(wrong());
                };
                let entry = wire.bytes().ok_or_else(wrong)?;
                let (key, value) = self.entry(field, self.types.node(value), entry, position)?;
                memory.count_member(&key, map.is_empty())?;
                map.insert(key, value.ok_or_else(wrong)?);
            }
            node => {
                let value = self.value(field, node, wire, position)?.ok_or_else(wrong)?;
                if !(field.drops_empty() && is_empty(&value)) {
                    memory.count_member(field.name(), object.is_empty())?;
                    object.insert(field.name().to_owned(), value);
                }
            }
        }
        Ok(())
    }

    /// Decodes a map entry: a message of a key and a value.
    fn entry(
        &self,
        field: &Field,
        value: Node,
        bytes: &[u8],
        position: Position<'_>,
    ) -> Result<(String, Option<Value>), InvalidProtobuf> {
        let mut key = String::new();
        // An absent value is the type's zero value.
        let mut wire = WireValue::Bytes(&[]);
        let mut reader = Reader(bytes);
        while let Some((number, part)) = reader.field()? {
            match number {
                1 => key = text(field.name(), part.bytes().unwrap_or_default())?,
                2 => wire = part,
                _ => {}
            }
        }
        Ok((key, self.value(field, value, wire, position)?))
    }

    /// Decodes a value; `None` if its wire type does not fit the field.
    fn value(
        &self,
        field: &Field,
        node: Node,
        wire: WireValue<'_>,
        position: Position<'_>,
    ) -> Result<Option<Value>, InvalidProtobuf> {
        let name = field.name();
        Ok(Some(match (node, wire) {
            (Node::Scalar(Scalar::String), WireValue::Bytes(bytes)) => {
                let text = text(name, bytes)?;
                position.memory.count_text(&text)?;
                text.into()
            }
            (Node::Scalar(Scalar::Bool), WireValue::Varint(number)) => (number != 0).into(),
            (Node::Scalar(scalar @ (Scalar::Int32 | Scalar::Int64)), WireValue::Varint(number)) => {
                integer(scalar, number)
            }
            (Node::Scalar(Scalar::Number), WireValue::Fixed64(bits)) => f64::from_bits(bits).into(),
            (Node::Scalar(Scalar::Bytes), WireValue::Bytes(bytes)) => STANDARD.encode(bytes).into(),
            (
                Node::Object {
                    object: message, ..
                },
                WireValue::Bytes(bytes),
            ) => {
                let mut object = Map::new();
                self.read(message, bytes, position.inner(), &mut object)?;
                Value::Object(object)
            }
            (Node::Union(message), WireValue::Bytes(bytes)) => {
                let mut object = Map::new();
                self.read(message, bytes, position.inner(), &mut object)?;
                let given = ["schema", "jSONSchemas", "property", "allows"];
                let given = given.iter().find_map(|name| object.remove(*name));
                given.unwrap_or(Value::Null)
            }
            (Node::Scalar(Scalar::Time), WireValue::Bytes(bytes)) => time(name, bytes, 0)?,
            (Node::Scalar(Scalar::MicroTime), WireValue::Bytes(bytes)) => time(name, bytes, 6)?,
            (Node::Scalar(Scalar::Quantity), WireValue::Bytes(bytes)) => {
                match Reader(bytes).find(1)? {
                    Some(WireValue::Bytes(quantity)) => text(name, quantity)?.into(),
                    _ => "0".into(),
                }
            }
            (Node::Scalar(Scalar::IntOrString), WireValue::Bytes(bytes)) => {
                int_or_string(name, bytes)?
            }
            (Node::Raw, WireValue::Bytes(bytes)) => match Reader(bytes).find(1)? {
                Some(WireValue::Bytes(raw)) if !raw.is_empty() => {
                    raw_json(name, raw, position.memory)?
                }
                _ => Value::Null,
            },
            (Node::List { wrapped: true, .. }, WireValue::Bytes(bytes)) => {
                let mut items = Vec::new();
                let mut reader = Reader(bytes);
                while let Some((_, item)) = reader.field()? {
                    position.memory.count_item(items.is_empty())?;
                    items.push(text(name, item.bytes().unwrap_or_default())?.into());
                }
                Value::Array(items)
            }
            _ => return Ok(None),
        }))
    }

    fn wire_type(&self, message: ObjectId, field: u32) -> InvalidProtobuf {
        InvalidProtobuf::WireType {
            message: self.types.object_name(message).to_owned(),
            field,
        }
    }
}

/// The `runtime.Unknown` envelope around an object.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(body: &'a [u8]) -> Result<Self, InvalidProtobuf> {
        let mut envelope = Self::default();
        // Go writes the `raw` field even if it is empty: without it the body was truncated.
        let mut whole = false;
        let mut reader = Reader(body);
        while let Some((number, wire)) = reader.field()? {
            let bytes = wire.bytes().ok_or(InvalidProtobuf::Malformed)?;
            match number {
                1 => {
                    let mut reader = Reader(bytes);
                    while let Some((number, wire)) = reader.field()? {
                        let bytes = wire.bytes().ok_or(InvalidProtobuf::Malformed)?;
                        match number {
                            1 => envelope.api_version = text("apiVersion", bytes)?,
                            2 => envelope.kind = text("kind", bytes)?,
                            _ => {}
                        }
                    }
                }
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
}

/// Returns a member, which is `new` if there is none. Copies the name only then, because a list has a field for each item.
///
/// # Errors
/// The member exceeds `memory`.
fn member<'o>(
    object: &'o mut Map<String, Value>,
    name: &str,
    memory: &MemoryBudget,
    new: impl FnOnce() -> Value,
) -> Result<&'o mut Value, InvalidProtobuf> {
    if !object.contains_key(name) {
        memory.count_member(name, object.is_empty())?;
        object.insert(name.to_owned(), new());
    }
    Ok(&mut object[name])
}

fn bad(name: &str, problem: impl ToString) -> InvalidProtobuf {
    InvalidProtobuf::Value {
        name: name.to_owned(),
        problem: problem.to_string(),
    }
}

fn text(name: &str, bytes: &[u8]) -> Result<String, InvalidProtobuf> {
    String::from_utf8(bytes.to_vec()).map_err(|error| bad(name, error))
}

/// Decodes a signed number; negative ones are encoded as 64-bit two's complement. A value that is
/// too large is truncated, as by Go's decoder.
fn integer(of: Scalar, number: u64) -> Value {
    match of {
        Scalar::Int32 => (number as i32).into(),
        _ => (number as i64).into(),
    }
}

fn raw_json(name: &str, bytes: &[u8], memory: &MemoryBudget) -> Result<Value, InvalidProtobuf> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let decoded = decode_untyped(&mut reader, memory);
    let decoded = decoded.and_then(|decoded| reader.end().map(|()| decoded.value));
    decoded.map_err(|error| bad(name, error))
}

/// Decodes seconds and nanoseconds; an empty message is null.
fn time(name: &str, bytes: &[u8], digits: u8) -> Result<Value, InvalidProtobuf> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let number = |field| -> Result<i64, InvalidProtobuf> {
        Ok(match Reader(bytes).find(field)? {
            Some(WireValue::Varint(number)) => number as i64,
            _ => 0,
        })
    };
    let nanoseconds = match digits {
        0 => 0,
        _ => i32::try_from(number(2)?).map_err(|error| bad(name, error))?,
    };
    let time = jiff::Timestamp::new(number(1)?, nanoseconds).map_err(|error| bad(name, error))?;
    Ok(format!("{time:.*}", usize::from(digits)).into())
}

fn int_or_string(name: &str, bytes: &[u8]) -> Result<Value, InvalidProtobuf> {
    const STRING: u64 = 1;
    match Reader(bytes).find(1)? {
        Some(WireValue::Varint(STRING)) => match Reader(bytes).find(3)? {
            Some(WireValue::Bytes(value)) => Ok(text(name, value)?.into()),
            _ => Ok("".into()),
        },
        _ => match Reader(bytes).find(2)? {
            Some(WireValue::Varint(number)) => Ok(integer(Scalar::Int32, number)),
            _ => Ok(0.into()),
        },
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    }
}

#[cfg(test)]
mod tests;

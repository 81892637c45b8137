//! Protobuf bodies as JSON values (§1.3): the envelope that Go's clients put around built-in objects,
//! and what is in it by a table of fields. The way back, to answers, is in `encode` and `answer`.
//!
//! # The table
//!
//! `protobuf/schema.txt` has a line for each message: its name, then `number=name:type` for each
//! field, with the names of JSON. Types are `s`tring, `b`oolean, `i`nteger, `d`ouble, `B`ytes, another
//! message, or a special form (`!time`, `!raw`, …); `*` makes a list of it and `%` a map from strings.
//! A name after `^` stands for members that are the outer object's own in JSON. A trailing `?` says
//! that the empty value means "not given": Go always writes such a field, and its JSON never has it.

mod answer;
mod encode;
mod wire;

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

pub(crate) use self::encode::Unencodable;
use self::wire::{Reader, Wire};

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Objects are no deeper than this; a body that is was made to exhaust the stack.
const DEPTH_MAX: usize = 100;

/// Why a body is not understood; 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidProtobuf {
    #[error("it does not begin with the envelope of Kubernetes")]
    NoEnvelope,
    #[error("it is cut short or not protobuf")]
    Malformed,
    #[error("it is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("kind {kind:?} of {api_version:?} is not known as protobuf: send JSON")]
    UnknownKind { api_version: String, kind: String },
    #[error("field {field} of {message} has an unexpected wire type")]
    WireType { message: String, field: u32 },
    #[error("field {name:?} has a bad value: {problem}")]
    Value { name: String, problem: String },
}

/// The known messages.
#[derive(Debug)]
pub(crate) struct Schema {
    messages: Vec<Message>,
    by_name: HashMap<Box<str>, usize>,
}

#[derive(Debug)]
struct Message {
    name: Box<str>,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    number: u32,
    name: Box<str>,
    inline: bool,
    shape: Shape,
    kind: Kind,
    /// The empty value means that it is not given.
    drop_empty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    List,
    Map,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    String,
    Bool,
    Integer,
    Double,
    Bytes,
    Message(usize),
    /// A message of which JSON shows the one member that is given.
    Union(usize),
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON in a message.
    Raw,
    /// A list of strings in a message.
    Items,
}

impl Schema {
    /// The table of this crate.
    pub(crate) fn new() -> Self {
        let lines: Vec<&str> = include_str!("protobuf/schema.txt").lines().collect();
        let name_of = |line: &str| line.split(' ').next().unwrap_or_default().into();
        let by_name: HashMap<Box<str>, usize> = lines
            .iter()
            .enumerate()
            .map(|(at, line)| (name_of(line), at))
            .collect();
        let messages = lines.iter().map(|line| Message {
            name: name_of(line),
            fields: line
                .split(' ')
                .skip(1)
                .filter_map(|text| Field::parse(text, &by_name))
                .collect(),
        });
        Self {
            messages: messages.collect(),
            by_name,
        }
    }

    /// The object in `body`, with its kind and apiVersion.
    pub(crate) fn object(&self, body: &[u8]) -> Result<Value, InvalidProtobuf> {
        let body = body
            .strip_prefix(MAGIC)
            .ok_or(InvalidProtobuf::NoEnvelope)?;
        let envelope = Envelope::read(body)?;
        if matches!(envelope.content_type, b"application/json") {
            return raw_json("raw", envelope.raw);
        }
        let (api_version, kind) = (envelope.api_version, envelope.kind);
        let message =
            self.message_of(&api_version, &kind)
                .ok_or_else(|| InvalidProtobuf::UnknownKind {
                    api_version: api_version.clone(),
                    kind: kind.clone(),
                })?;
        let mut object = Map::new();
        self.read(message, envelope.raw, 0, &mut object)?;
        object.insert("apiVersion".to_owned(), api_version.into());
        object.insert("kind".to_owned(), kind.into());
        Ok(Value::Object(object))
    }

    /// `apps/v1` and `Deployment` are `apps.v1.Deployment`; the first word of a group names it.
    fn message_of(&self, api_version: &str, kind: &str) -> Option<usize> {
        if let "DeleteOptions" | "Status" = kind {
            return self.by_name.get(&*format!("meta.v1.{kind}")).copied();
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
        let group = group.split('.').next().unwrap_or_default();
        let name = format!("{group}.{version}.{kind}");
        self.by_name.get(&*name).copied()
    }

    /// Reads the message numbered `message` into the members of `object`.
    fn read(
        &self,
        message: usize,
        bytes: &[u8],
        depth: usize,
        object: &mut Map<String, Value>,
    ) -> Result<(), InvalidProtobuf> {
        if depth > DEPTH_MAX {
            return Err(InvalidProtobuf::TooDeep);
        }
        let message = &self.messages[message];
        let mut reader = Reader(bytes);
        while let Some((number, wire)) = reader.field()? {
            // A field of a newer version is dropped, as Go's servers do.
            let Some(field) = message.fields.iter().find(|f| f.number == number) else {
                continue;
            };
            if let (Kind::Message(inner), true) = (field.kind, field.inline) {
                let bytes = wire.bytes().ok_or_else(|| message.wire_type(number))?;
                self.read(inner, bytes, depth + 1, object)?;
                continue;
            }
            self.read_field(message, field, wire, depth, object)?;
        }
        Ok(())
    }

    fn read_field(
        &self,
        message: &Message,
        field: &Field,
        wire: Wire<'_>,
        depth: usize,
        object: &mut Map<String, Value>,
    ) -> Result<(), InvalidProtobuf> {
        let wrong = || message.wire_type(field.number);
        let name = || field.name.to_string();
        match field.shape {
            Shape::One => {
                let value = self.value(field, wire, depth)?.ok_or_else(wrong)?;
                if !(field.drop_empty && is_empty(&value)) {
                    object.insert(name(), value);
                }
            }
            Shape::List => {
                let list = object
                    .entry(name())
                    .or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(list) = list else {
                    return Err(wrong());
                };
                // Numbers may come packed: several in one field.
                if let (Kind::Integer, Wire::Bytes(packed)) = (field.kind, wire) {
                    let mut reader = Reader(packed);
                    while !reader.0.is_empty() {
                        list.push(integer(reader.varint()?));
                    }
                    return Ok(());
                }
                list.push(self.value(field, wire, depth)?.ok_or_else(wrong)?);
            }
            Shape::Map => {
                let map = object
                    .entry(name())
                    .or_insert_with(|| Value::Object(Map::new()));
                let Value::Object(map) = map else {
                    return Err(wrong());
                };
                let entry = wire.bytes().ok_or_else(wrong)?;
                let (key, value) = self.entry(field, entry, depth)?;
                map.insert(key, value.ok_or_else(wrong)?);
            }
        }
        Ok(())
    }

    /// One entry of a map: a message of a key and a value.
    fn entry(
        &self,
        field: &Field,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(String, Option<Value>), InvalidProtobuf> {
        let mut key = String::new();
        // An absent value is the empty one.
        let mut wire = Wire::Bytes(&[]);
        let mut reader = Reader(bytes);
        while let Some((number, part)) = reader.field()? {
            match number {
                1 => key = text(&field.name, part.bytes().unwrap_or_default())?,
                2 => wire = part,
                _ => {}
            }
        }
        Ok((key, self.value(field, wire, depth)?))
    }

    /// One value; `None` when its wire type is not that of the field.
    fn value(
        &self,
        field: &Field,
        wire: Wire<'_>,
        depth: usize,
    ) -> Result<Option<Value>, InvalidProtobuf> {
        let name = &*field.name;
        Ok(Some(match (field.kind, wire) {
            (Kind::String, Wire::Bytes(bytes)) => text(name, bytes)?.into(),
            (Kind::Bool, Wire::Varint(number)) => (number != 0).into(),
            (Kind::Integer, Wire::Varint(number)) => integer(number),
            (Kind::Double, Wire::Fixed64(bits)) => f64::from_bits(bits).into(),
            (Kind::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
            (Kind::Message(message), Wire::Bytes(bytes)) => {
                let mut object = Map::new();
                self.read(message, bytes, depth + 1, &mut object)?;
                Value::Object(object)
            }
            (Kind::Union(message), Wire::Bytes(bytes)) => {
                let mut object = Map::new();
                self.read(message, bytes, depth + 1, &mut object)?;
                let given = ["schema", "jSONSchemas", "property", "allows"];
                let given = given.iter().find_map(|name| object.remove(*name));
                given.unwrap_or(Value::Null)
            }
            (Kind::Time, Wire::Bytes(bytes)) => time(name, bytes, 0)?,
            (Kind::MicroTime, Wire::Bytes(bytes)) => time(name, bytes, 6)?,
            (Kind::Quantity, Wire::Bytes(bytes)) => match Reader(bytes).find(1)? {
                Some(Wire::Bytes(quantity)) => text(name, quantity)?.into(),
                _ => "0".into(),
            },
            (Kind::IntOrString, Wire::Bytes(bytes)) => int_or_string(name, bytes)?,
            (Kind::Raw, Wire::Bytes(bytes)) => match Reader(bytes).find(1)? {
                Some(Wire::Bytes(raw)) if !raw.is_empty() => raw_json(name, raw)?,
                _ => Value::Null,
            },
            (Kind::Items, Wire::Bytes(bytes)) => {
                let mut items = Vec::new();
                let mut reader = Reader(bytes);
                while let Some((_, item)) = reader.field()? {
                    items.push(text(name, item.bytes().unwrap_or_default())?.into());
                }
                Value::Array(items)
            }
            _ => return Ok(None),
        }))
    }
}

impl Message {
    fn wire_type(&self, field: u32) -> InvalidProtobuf {
        InvalidProtobuf::WireType {
            message: self.name.to_string(),
            field,
        }
    }
}

impl Field {
    /// Reads `number=name:type`; `None` for what the table cannot have (a test reads all of it).
    fn parse(text: &str, messages: &HashMap<Box<str>, usize>) -> Option<Self> {
        let (number, rest) = text.split_once('=')?;
        let (name, kind) = rest.split_once(':')?;
        let (shape, kind) = match kind.as_bytes().first()? {
            b'*' => (Shape::List, &kind[1..]),
            b'%' => (Shape::Map, &kind[1..]),
            _ => (Shape::One, kind),
        };
        let (drop_empty, kind) = match kind.strip_suffix('?') {
            Some(kind) => (true, kind),
            None => (false, kind),
        };
        let kind = match kind {
            "s" => Kind::String,
            "b" => Kind::Bool,
            "i" => Kind::Integer,
            "d" => Kind::Double,
            "B" => Kind::Bytes,
            "!time" => Kind::Time,
            "!micro" => Kind::MicroTime,
            "!quantity" => Kind::Quantity,
            "!intstr" => Kind::IntOrString,
            "!raw" => Kind::Raw,
            "!items" => Kind::Items,
            _ => match kind.strip_prefix('|') {
                Some(union) => Kind::Union(*messages.get(union)?),
                None => Kind::Message(*messages.get(kind)?),
            },
        };
        Some(Self {
            number: number.parse().ok()?,
            name: name.trim_start_matches('^').into(),
            inline: name.starts_with('^'),
            shape,
            kind,
            drop_empty,
        })
    }
}

/// What is around an object.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
    content_type: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(body: &'a [u8]) -> Result<Self, InvalidProtobuf> {
        let mut envelope = Self::default();
        // Go writes the object's bytes even when there are none: without them the body was cut.
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
                4 => envelope.content_type = bytes,
                _ => {}
            }
        }
        whole.then_some(envelope).ok_or(InvalidProtobuf::Malformed)
    }
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

/// Numbers are signed; a negative one comes as its 64-bit complement.
fn integer(number: u64) -> Value {
    (number as i64).into()
}

fn raw_json(name: &str, bytes: &[u8]) -> Result<Value, InvalidProtobuf> {
    serde_json::from_slice(bytes).map_err(|error| bad(name, error))
}

/// Seconds and nanoseconds; nothing at all is no time.
fn time(name: &str, bytes: &[u8], digits: u8) -> Result<Value, InvalidProtobuf> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let number = |wanted| match Reader(bytes).find(wanted)? {
        Some(Wire::Varint(number)) => Ok(number as i64),
        _ => Ok(0),
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
        Some(Wire::Varint(STRING)) => match Reader(bytes).find(3)? {
            Some(Wire::Bytes(value)) => Ok(text(name, value)?.into()),
            _ => Ok("".into()),
        },
        _ => match Reader(bytes).find(2)? {
            Some(Wire::Varint(number)) => Ok(integer(number)),
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

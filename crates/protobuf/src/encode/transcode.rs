//! Reads JSON into a [`Tape`]: one pass of serde_json over the bytes, directed by the plan. Members that the type does not
//! have are skipped, as Go's servers drop unknown fields; of duplicate members the last one counts.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use watchet_schema::ObjectId;

use crate::encode::member_name::Name;
use crate::encode::scalars::{
    push_int_or_string, push_quantity, push_raw, push_text, push_time, push_unescaped, push_zero,
};
use crate::encode::tape::{Content, NodeIndex, Tape};
use crate::plan::{FieldPlan, Shape, Value};
use crate::write::bytes;

/// Reads the members of an object into the message `into`.
///
/// # Errors
/// `json` is not a JSON object, or a value does not fit its field (a data error).
pub(super) fn read_object<'p>(
    tape: &mut Tape<'p>,
    message: ObjectId,
    json: &[u8],
) -> Result<NodeIndex, serde_json::Error> {
    // One UTF-8 validation of the document is faster than one per string.
    match std::str::from_utf8(json) {
        Ok(text) => {
            let deserializer = serde_json::Deserializer::from_str(text);
            read_root(tape, message, json, deserializer)
        }
        // Not UTF-8: `from_slice` reports the line and column, or succeeds if the invalid bytes are only in skipped members.
        Err(_) => {
            let deserializer = serde_json::Deserializer::from_slice(json);
            read_root(tape, message, json, deserializer)
        }
    }
}

/// Reads an object from `deserializer`, which must borrow from `json`: the tape has strings as offsets into it.
fn read_root<'p, 'j, R: serde_json::de::Read<'j>>(
    tape: &mut Tape<'p>,
    message: ObjectId,
    json: &'j [u8],
    mut deserializer: serde_json::Deserializer<R>,
) -> Result<NodeIndex, serde_json::Error> {
    let seed = ValueSeed {
        tape,
        json,
        value: Value::Message(message),
        field: "object",
    };
    let root = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    match root {
        0 => Err(serde_json::Error::invalid_type(
            serde::de::Unexpected::Unit,
            &"an object",
        )),
        root => Ok(root),
    }
}

/// Reads one value; returns its node, 0 for null.
struct ValueSeed<'t, 'p, 'j> {
    tape: &'t mut Tape<'p>,
    json: &'j [u8],
    value: Value,
    /// The JSON name of the field, for errors.
    field: &'p str,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_, 'de> {
    type Value = NodeIndex;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<NodeIndex, D::Error> {
        match self.value {
            Value::Raw => {
                let raw = <&RawValue>::deserialize(deserializer)?.get();
                if raw == "null" {
                    return Ok(0);
                }
                Ok(push_raw(self.tape, raw))
            }
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_, 'de> {
    type Value = NodeIndex;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = match self.value {
            Value::String => "a string",
            Value::Bool => "a boolean",
            Value::Int32 => "an integer of 32 bits",
            Value::Int64 => "an integer",
            Value::Double => "a number",
            Value::Bytes => "a base64 string",
            Value::Time | Value::MicroTime => "a time",
            Value::Quantity => "a quantity",
            Value::IntOrString => "an integer or a string",
            Value::Raw => "a value",
            Value::StringList => "a list of strings",
            Value::Message(_) => "an object",
            Value::Union(_) => "a schema",
        };
        write!(f, "{expected} in field {:?}", self.field)
    }

    fn visit_unit<E: Error>(self) -> Result<NodeIndex, E> {
        Ok(0)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<NodeIndex, E> {
        let varint = Content::Varint(flag.into());
        match self.value {
            Value::Bool => Ok(self.tape.push(varint, 0)),
            Value::Union(message) => {
                let slot = self
                    .slot(message, "allows")
                    .ok_or_else(|| self.unfit(flag))?;
                let union = self.tape.push_message(message);
                let allows = self.tape.push(varint, 0);
                self.tape.set(union, slot, allows);
                self.tape.finish(union);
                Ok(union)
            }
            _ => Err(self.unfit(flag)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<NodeIndex, E> {
        let int32 = || i32::try_from(number).map_err(|_| self.unfit(number));
        match self.value {
            Value::Int32 => {
                int32()?;
                Ok(self.tape.push(Content::Varint(number as u64), 0))
            }
            Value::Int64 => Ok(self.tape.push(Content::Varint(number as u64), 0)),
            Value::Double => Ok(self
                .tape
                .push(Content::Fixed64((number as f64).to_bits()), 0)),
            Value::Quantity => Ok(push_quantity(self.tape, &number.to_string())),
            Value::IntOrString => {
                int32()?;
                Ok(push_int_or_string(self.tape, number as u64, None))
            }
            _ => Err(self.unfit(number)),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<NodeIndex, E> {
        match (i64::try_from(number), self.value) {
            (Ok(number), _) => self.visit_i64(number),
            (Err(_), Value::Double) => self.visit_f64(number as f64),
            (Err(_), Value::Quantity) => Ok(push_quantity(self.tape, &number.to_string())),
            (Err(_), _) => Err(self.unfit(number)),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<NodeIndex, E> {
        match self.value {
            Value::Double => Ok(self.tape.push(Content::Fixed64(number.to_bits()), 0)),
            Value::Quantity => {
                let text = serde_json::Value::from(number).to_string();
                Ok(push_quantity(self.tape, &text))
            }
            _ => Err(self.unfit(number)),
        }
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<NodeIndex, E> {
        match self.value {
            Value::String => Ok(push_text(self.tape, self.json, text)),
            _ => self.visit_str(text),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NodeIndex, E> {
        match self.value {
            Value::String => Ok(push_unescaped(self.tape, text)),
            Value::Bytes => {
                let decoded = STANDARD.decode(text);
                let decoded = decoded
                    .map_err(|error| E::custom(format_args!("field {:?}: {error}", self.field)))?;
                Ok(self.tape.push_aside(|out| out.extend_from_slice(&decoded)))
            }
            Value::Time => push_time(self.tape, text, false).ok_or_else(|| self.unfit(text)),
            Value::MicroTime => push_time(self.tape, text, true).ok_or_else(|| self.unfit(text)),
            Value::Quantity => Ok(push_quantity(self.tape, text)),
            Value::IntOrString => Ok(push_int_or_string(self.tape, 0, Some(text))),
            _ => Err(self.unfit(text)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<NodeIndex, A::Error> {
        match self.value {
            Value::StringList => {
                let mut list = Vec::new();
                while let Some(item) = items.next_element::<Cow<'_, str>>()? {
                    bytes(1, item.as_bytes(), &mut list);
                }
                Ok(self.tape.push_aside(|out| out.extend_from_slice(&list)))
            }
            Value::Union(message) => {
                let slot = self
                    .slot(message, "jSONSchemas")
                    .or_else(|| self.slot(message, "property"));
                let slot =
                    slot.ok_or_else(|| A::Error::invalid_type(serde::de::Unexpected::Seq, &self))?;
                let union = self.tape.push_message(message);
                let field = &self.tape.plan.message(message).fields[slot];
                let list = read_items(self.tape, self.json, field, items)?;
                self.tape.set(union, slot, list);
                self.tape.finish(union);
                Ok(union)
            }
            _ => Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<NodeIndex, A::Error> {
        match self.value {
            Value::Message(message) => read_message(self.tape, self.json, message, members),
            Value::Union(message) => self.union_of_schema(message, members),
            _ => Err(A::Error::invalid_type(serde::de::Unexpected::Map, &self)),
        }
    }
}

impl<'de> ValueSeed<'_, '_, 'de> {
    fn unfit<E: Error>(&self, value: impl fmt::Debug) -> E {
        let mut value = format!("{value:?}");
        value.truncate(value.floor_char_boundary(100));
        let field = self.field;
        E::custom(format_args!(
            "field {field:?} has a value that its type cannot hold: {value}"
        ))
    }

    fn slot(&self, message: ObjectId, name: &str) -> Option<usize> {
        self.tape.plan.message(message).slot(name)
    }

    /// Adds a union whose JSON is a schema. Go's JSON decoder sets the boolean beside it.
    fn union_of_schema<A: MapAccess<'de>>(
        self,
        message: ObjectId,
        members: A,
    ) -> Result<NodeIndex, A::Error> {
        let plan = self.tape.plan.message(message);
        let slot = plan.slot("schema");
        let Some((slot, Shape::One(Value::Message(schema)))) =
            slot.map(|slot| (slot, plan.fields[slot].shape))
        else {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Map, &self));
        };
        let union = self.tape.push_message(message);
        if let Some(allows) = plan.slot("allows") {
            let flag = self.tape.push(Content::Varint(1), 0);
            self.tape.set(union, allows, flag);
        }
        let schema = read_message(self.tape, self.json, schema, members)?;
        self.tape.set(union, slot, schema);
        self.tape.finish(union);
        Ok(union)
    }
}

/// Reads the members of a message.
fn read_message<'de, A: MapAccess<'de>>(
    tape: &mut Tape<'_>,
    json: &'de [u8],
    message: ObjectId,
    mut members: A,
) -> Result<NodeIndex, A::Error> {
    let node = tape.push_message(message);
    while let Some(name) = members.next_key_seed(Name)? {
        match place(tape, message, node, &name) {
            Some((holder, slot, field)) => {
                let value = members.next_value_seed(FieldSeed { tape, json, field })?;
                tape.set(holder, slot, value);
            }
            None => {
                members.next_value::<IgnoredAny>()?;
            }
        }
    }
    tape.finish(node);
    Ok(node)
}

/// Finds the field of a JSON member: the message that holds it, which is an inlined one or `node`, its slot, and its plan.
fn place<'p>(
    tape: &mut Tape<'p>,
    mut message: ObjectId,
    mut node: NodeIndex,
    name: &str,
) -> Option<(NodeIndex, usize, &'p FieldPlan)> {
    loop {
        let plan = tape.plan.message(message);
        let slot = plan.slot(name)?;
        let field = &plan.fields[slot];
        match field.shape {
            Shape::One(Value::Message(inner)) if field.inline => {
                let holder = match tape.get(node, slot) {
                    0 => {
                        let holder = tape.push_message(inner);
                        tape.set(node, slot, holder);
                        holder
                    }
                    holder => holder,
                };
                (message, node) = (inner, holder);
            }
            _ => return Some((node, slot, field)),
        }
    }
}

/// Reads the value of a field; returns its node, or the first of a list or map.
struct FieldSeed<'t, 'p, 'j> {
    tape: &'t mut Tape<'p>,
    json: &'j [u8],
    field: &'p FieldPlan,
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_, '_, 'de> {
    type Value = NodeIndex;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<NodeIndex, D::Error> {
        match self.field.shape {
            Shape::One(value) => {
                let Self { tape, json, field } = self;
                let field = &*field.name;
                ValueSeed {
                    tape,
                    json,
                    value,
                    field,
                }
                .deserialize(deserializer)
            }
            Shape::Repeated(_) | Shape::Map(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_, '_, 'de> {
    type Value = NodeIndex;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = match self.field.shape {
            Shape::Map(_) => "an object",
            _ => "a list",
        };
        write!(f, "{expected} in field {:?}", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<NodeIndex, E> {
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<NodeIndex, A::Error> {
        match self.field.shape {
            Shape::Repeated(_) => read_items(self.tape, self.json, self.field, items),
            _ => Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<NodeIndex, A::Error> {
        match self.field.shape {
            Shape::Map(value) => {
                read_entries(self.tape, self.json, value, &self.field.name, entries)
            }
            _ => Err(A::Error::invalid_type(serde::de::Unexpected::Map, &self)),
        }
    }
}

/// Reads the items of a list; returns the first one.
fn read_items<'de, 'p, A: SeqAccess<'de>>(
    tape: &mut Tape<'p>,
    json: &'de [u8],
    field: &'p FieldPlan,
    mut items: A,
) -> Result<NodeIndex, A::Error> {
    let Shape::Repeated(value) = field.shape else {
        return Err(A::Error::custom(format_args!(
            "field {:?} is no list",
            field.name
        )));
    };
    let (mut first, mut last) = (0, 0);
    loop {
        let seed = ValueSeed {
            tape: &mut *tape,
            json,
            value,
            field: &field.name,
        };
        let Some(item) = items.next_element_seed(seed)? else {
            return Ok(first);
        };
        let item = match item {
            0 => push_zero(tape, value),
            item => item,
        };
        match last {
            0 => first = item,
            last => tape.link(last, item),
        }
        last = item;
    }
}

/// Reads the entries of a map, sorts them by key as Go does, and returns the first one.
fn read_entries<'de, 'p, A: MapAccess<'de>>(
    tape: &mut Tape<'p>,
    json: &'de [u8],
    value: Value,
    field: &'p str,
    mut entries: A,
) -> Result<NodeIndex, A::Error> {
    let mut found: Vec<(Cow<'de, str>, NodeIndex)> = Vec::new();
    while let Some(name) = entries.next_key_seed(Name)? {
        let seed = ValueSeed {
            tape: &mut *tape,
            json,
            value,
            field,
        };
        let node = match entries.next_value_seed(seed)? {
            // A nil slice is left out.
            0 if matches!(value, Value::Bytes) => 0,
            0 => push_zero(tape, value),
            node => node,
        };
        let key = match &name {
            Cow::Borrowed(name) => push_text(tape, json, name),
            Cow::Owned(name) => push_unescaped(tape, name),
        };
        let entry = tape.push_entry(key, node);
        found.push((name, entry));
    }
    // Stored objects have sorted maps; the sort is stable, so that the last of equal keys is the last one read.
    if !found.is_sorted_by(|(a, _), (b, _)| a < b) {
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.reverse();
        found.dedup_by(|(a, _), (b, _)| a == b);
        found.reverse();
    }
    for pair in found.windows(2) {
        tape.link(pair[0].1, pair[1].1);
    }
    Ok(found.first().map_or(0, |(_, entry)| *entry))
}

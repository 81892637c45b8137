//! Reads the values without members: texts, numbers, times, and what has a message of its own but no members in JSON.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use watchet_api::write_json_string;
use watchet_schema::{Node, Scalar};

use crate::error::InvalidProtobuf;
use crate::wire::{Reader, WireValue};

/// A value without members.
pub(super) enum ScalarValue<'t, 'b> {
    Null,
    Bool(bool),
    Integer(i64),
    /// A finite number.
    Float(f64),
    Text(Cow<'b, str>),
    /// Base64 in JSON.
    Bytes(&'b [u8]),
    Texts(Vec<&'b str>),
    Raw(RawJson<'t, 'b>),
}

/// JSON in a message, not yet parsed.
#[derive(Clone, Copy)]
pub(super) struct RawJson<'t, 'b> {
    /// The name of the member.
    pub(super) name: &'t str,
    /// Without white space around it.
    pub(super) json: &'b [u8],
}

impl ScalarValue<'_, '_> {
    pub(super) fn is_null(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Raw(raw) => raw.json == b"null",
            _ => false,
        }
    }

    /// Returns true for the value that Go omits from a member with `omitempty`.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Bool(value) => !value,
            Self::Integer(value) => *value == 0,
            Self::Float(value) => value.to_bits() == 0,
            Self::Text(value) => value.is_empty(),
            Self::Bytes(value) => value.is_empty(),
            Self::Raw(raw) => matches!(raw.json, b"\"\"" | b"false" | b"0" | b"0.0"),
            Self::Null | Self::Texts(_) => false,
        }
    }
}

/// Returns the text in `bytes`.
pub(super) fn text<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, InvalidProtobuf> {
    std::str::from_utf8(bytes).map_err(|error| invalid(name, error))
}

/// Returns the value of the field `name`; `None` if its wire type does not fit.
pub(super) fn read<'t, 'b>(
    name: &'t str,
    node: Node,
    wire: WireValue<'b>,
) -> Result<Option<ScalarValue<'t, 'b>>, InvalidProtobuf> {
    let borrowed = |bytes| Ok(ScalarValue::Text(Cow::Borrowed(text(name, bytes)?)));
    let value = match (node, wire) {
        (Node::Scalar(Scalar::String), WireValue::Bytes(bytes)) => borrowed(bytes)?,
        (Node::Scalar(Scalar::Bool), WireValue::Varint(number)) => ScalarValue::Bool(number != 0),
        // A number that is too large is truncated, as by Go's decoder.
        (Node::Scalar(Scalar::Int32), WireValue::Varint(number)) => int32(number),
        (Node::Scalar(Scalar::Int64), WireValue::Varint(number)) => {
            ScalarValue::Integer(number as i64)
        }
        (Node::Scalar(Scalar::Number), WireValue::Fixed64(bits)) => match f64::from_bits(bits) {
            number if number.is_finite() => ScalarValue::Float(number),
            _ => ScalarValue::Null,
        },
        (Node::Scalar(Scalar::Bytes), WireValue::Bytes(bytes)) => ScalarValue::Bytes(bytes),
        (Node::Scalar(Scalar::Time), WireValue::Bytes(bytes)) => time(name, bytes, 0)?,
        (Node::Scalar(Scalar::MicroTime), WireValue::Bytes(bytes)) => time(name, bytes, 6)?,
        (Node::Scalar(Scalar::Quantity), WireValue::Bytes(bytes)) => match Reader(bytes).find(1)? {
            Some(WireValue::Bytes(quantity)) => borrowed(quantity)?,
            _ => ScalarValue::Text(Cow::Borrowed("0")),
        },
        (Node::Scalar(Scalar::IntOrString), WireValue::Bytes(bytes)) => {
            const STRING: u64 = 1;
            match Reader(bytes).find(1)? {
                Some(WireValue::Varint(STRING)) => match Reader(bytes).find(3)? {
                    Some(WireValue::Bytes(value)) => borrowed(value)?,
                    _ => ScalarValue::Text(Cow::Borrowed("")),
                },
                _ => match Reader(bytes).find(2)? {
                    Some(WireValue::Varint(number)) => int32(number),
                    _ => ScalarValue::Integer(0),
                },
            }
        }
        (Node::Raw, WireValue::Bytes(bytes)) => match Reader(bytes).find(1)? {
            Some(WireValue::Bytes(raw)) if !raw.is_empty() => ScalarValue::Raw(RawJson {
                name,
                json: trim(raw),
            }),
            _ => ScalarValue::Null,
        },
        (Node::List { wrapped: true, .. }, WireValue::Bytes(bytes)) => {
            let mut items = Vec::new();
            let mut reader = Reader(bytes);
            while let Some((_, item)) = reader.field()? {
                items.push(text(name, item.bytes().unwrap_or_default())?);
            }
            ScalarValue::Texts(items)
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// Returns JSON without white space around it.
fn trim(mut json: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..]
    | [rest @ .., b' ' | b'\t' | b'\n' | b'\r'] = json
    {
        json = rest;
    }
    json
}

fn int32<'t, 'b>(number: u64) -> ScalarValue<'t, 'b> {
    ScalarValue::Integer(i64::from(number as i32))
}

/// Reads seconds and nanoseconds; null for an empty message.
fn time<'t, 'b>(
    name: &str,
    bytes: &[u8],
    digits: usize,
) -> Result<ScalarValue<'t, 'b>, InvalidProtobuf> {
    if bytes.is_empty() {
        return Ok(ScalarValue::Null);
    }
    let number = |field| -> Result<i64, InvalidProtobuf> {
        Ok(match Reader(bytes).find(field)? {
            Some(WireValue::Varint(number)) => number as i64,
            _ => 0,
        })
    };
    let nanoseconds = match digits {
        0 => 0,
        _ => i32::try_from(number(2)?).map_err(|error| invalid(name, error))?,
    };
    let time =
        jiff::Timestamp::new(number(1)?, nanoseconds).map_err(|error| invalid(name, error))?;
    Ok(ScalarValue::Text(Cow::Owned(format!("{time:.digits$}"))))
}

/// Appends a value as JSON.
pub(super) fn write(value: &ScalarValue<'_, '_>, out: &mut Vec<u8>) -> Result<(), InvalidProtobuf> {
    match value {
        ScalarValue::Null => out.extend_from_slice(b"null"),
        ScalarValue::Bool(value) => push_json(value, out),
        ScalarValue::Integer(value) => push_json(value, out),
        ScalarValue::Float(value) => push_json(value, out),
        ScalarValue::Text(value) => write_json_string(value, out),
        ScalarValue::Bytes(value) => push_base64(value, out),
        ScalarValue::Texts(value) => push_json(value, out),
        ScalarValue::Raw(RawJson { name, json }) => {
            let json: &RawValue =
                serde_json::from_slice(json).map_err(|error| invalid(name, error))?;
            out.extend_from_slice(json.get().as_bytes());
        }
    }
    Ok(())
}

fn push_json<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("writing JSON to a Vec cannot fail");
}

fn push_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let begin = out.len();
    out.resize(begin + bytes.len().div_ceil(3) * 4, 0);
    STANDARD
        .encode_slice(bytes, &mut out[begin..])
        .expect("base64 has four characters for three bytes");
    out.push(b'"');
}

/// Returns the error for a value that its type does not have.
pub(super) fn invalid(name: &str, problem: impl ToString) -> InvalidProtobuf {
    InvalidProtobuf::Value {
        name: name.to_owned(),
        problem: problem.to_string(),
    }
}

//! Converts the values without members: texts, numbers, times, and what has a message of its own but no members in JSON.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use watchet_api::write_json_string;
use watchet_schema::{Node, Scalar};

use crate::error::InvalidProtobuf;
use crate::wire::{Reader, WireValue};

/// Appends a number, a boolean or a list of strings as JSON.
pub(super) fn push_json<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("writing JSON to a Vec cannot fail");
}

/// Returns the text in `bytes`.
pub(super) fn text<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, InvalidProtobuf> {
    std::str::from_utf8(bytes).map_err(|error| invalid(name, error))
}

/// Appends the value of the field `name`; returns false if its wire type does not fit.
pub(super) fn push(
    name: &str,
    node: Node,
    wire: WireValue<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, InvalidProtobuf> {
    match (node, wire) {
        (Node::Scalar(Scalar::String), WireValue::Bytes(bytes)) => {
            write_json_string(text(name, bytes)?, out)
        }
        (Node::Scalar(Scalar::Bool), WireValue::Varint(number)) => push_json(&(number != 0), out),
        // A number that is too large is truncated, as by Go's decoder.
        (Node::Scalar(Scalar::Int32), WireValue::Varint(number)) => {
            push_json(&(number as i32), out)
        }
        (Node::Scalar(Scalar::Int64), WireValue::Varint(number)) => {
            push_json(&(number as i64), out)
        }
        (Node::Scalar(Scalar::Number), WireValue::Fixed64(bits)) => {
            push_json(&f64::from_bits(bits), out);
        }
        (Node::Scalar(Scalar::Bytes), WireValue::Bytes(bytes)) => push_base64(bytes, out),
        (Node::Scalar(Scalar::Time), WireValue::Bytes(bytes)) => push_time(name, bytes, 0, out)?,
        (Node::Scalar(Scalar::MicroTime), WireValue::Bytes(bytes)) => {
            push_time(name, bytes, 6, out)?;
        }
        (Node::Scalar(Scalar::Quantity), WireValue::Bytes(bytes)) => {
            match Reader(bytes).find(1)? {
                Some(WireValue::Bytes(quantity)) => write_json_string(text(name, quantity)?, out),
                _ => write_json_string("0", out),
            }
        }
        (Node::Scalar(Scalar::IntOrString), WireValue::Bytes(bytes)) => {
            push_int_or_string(name, bytes, out)?;
        }
        (Node::Raw, WireValue::Bytes(bytes)) => push_raw(name, bytes, out)?,
        (Node::List { wrapped: true, .. }, WireValue::Bytes(bytes)) => {
            let mut items = Vec::new();
            let mut reader = Reader(bytes);
            while let Some((_, item)) = reader.field()? {
                items.push(text(name, item.bytes().unwrap_or_default())?);
            }
            push_json(&items, out);
        }
        _ => return Ok(false),
    }
    Ok(true)
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

/// Appends seconds and nanoseconds; null for an empty message.
fn push_time(
    name: &str,
    bytes: &[u8],
    digits: usize,
    out: &mut Vec<u8>,
) -> Result<(), InvalidProtobuf> {
    if bytes.is_empty() {
        out.extend_from_slice(b"null");
        return Ok(());
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
    write!(out, "\"{time:.digits$}\"").expect("a vector grows");
    Ok(())
}

fn push_int_or_string(name: &str, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidProtobuf> {
    const STRING: u64 = 1;
    match Reader(bytes).find(1)? {
        Some(WireValue::Varint(STRING)) => match Reader(bytes).find(3)? {
            Some(WireValue::Bytes(value)) => write_json_string(text(name, value)?, out),
            _ => write_json_string("", out),
        },
        _ => match Reader(bytes).find(2)? {
            Some(WireValue::Varint(number)) => push_json(&(number as i32), out),
            _ => push_json(&0, out),
        },
    }
    Ok(())
}

/// Appends the JSON in a message; null if there is none.
fn push_raw(name: &str, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidProtobuf> {
    let raw = match Reader(bytes).find(1)? {
        Some(WireValue::Bytes(raw)) if !raw.is_empty() => raw,
        _ => b"null",
    };
    let json: &RawValue = serde_json::from_slice(raw).map_err(|error| invalid(name, error))?;
    out.extend_from_slice(json.get().as_bytes());
    Ok(())
}

fn invalid(name: &str, problem: impl ToString) -> InvalidProtobuf {
    InvalidProtobuf::Value {
        name: name.to_owned(),
        problem: problem.to_string(),
    }
}

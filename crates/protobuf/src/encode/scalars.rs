//! Adds values without parts to a [`Tape`].

use crate::encode::tape::{Content, NodeIndex, Tape, narrow};
use crate::plan::Value;
use crate::write::{bytes, varint_field};

/// Adds a string that is a slice of `json`.
pub(super) fn push_text(tape: &mut Tape<'_>, json: &[u8], text: &str) -> NodeIndex {
    let at = match text.is_empty() {
        true => 0,
        false => text.as_ptr() as usize - json.as_ptr() as usize,
    };
    tape.push(Content::Json(narrow(at)), text.len())
}

/// Adds a string that has escapes in the JSON.
pub(super) fn push_unescaped(tape: &mut Tape<'_>, text: &str) -> NodeIndex {
    tape.push_aside(|out| out.extend_from_slice(text.as_bytes()))
}

/// Adds JSON, a message with one field.
pub(super) fn push_raw(tape: &mut Tape<'_>, json: &str) -> NodeIndex {
    tape.push_aside(|out| bytes(1, json.as_bytes(), out))
}

/// Adds a quantity, a message with one field.
pub(super) fn push_quantity(tape: &mut Tape<'_>, text: &str) -> NodeIndex {
    tape.push_aside(|out| bytes(1, text.as_bytes(), out))
}

/// Adds an IntOrString, all three fields of which Go encodes; `text` is `None` for a number.
pub(super) fn push_int_or_string(
    tape: &mut Tape<'_>,
    number: u64,
    text: Option<&str>,
) -> NodeIndex {
    tape.push_aside(|out| {
        varint_field(1, text.is_some().into(), out);
        varint_field(2, number, out);
        bytes(3, text.unwrap_or_default().as_bytes(), out);
    })
}

/// Adds a time: seconds and nanoseconds; `None` if `text` is no time. Go encodes fractions of a second for a MicroTime
/// only, in microseconds.
pub(super) fn push_time(tape: &mut Tape<'_>, text: &str, is_micro: bool) -> Option<NodeIndex> {
    const SECOND: i128 = 1_000_000_000;
    let time: jiff::Timestamp = text.parse().ok()?;
    // Before 1970 a fraction is negative in jiff, and counts from the second below in protobuf.
    let nanoseconds = time.as_nanosecond();
    let fraction = match is_micro {
        true => nanoseconds.rem_euclid(SECOND) / 1_000 * 1_000,
        false => 0,
    };
    Some(tape.push_aside(|out| {
        varint_field(1, nanoseconds.div_euclid(SECOND) as u64, out);
        varint_field(2, fraction as u64, out);
    }))
}

/// Adds the zero value, which a null item of a list is in Go.
pub(super) fn push_zero(tape: &mut Tape<'_>, value: Value) -> NodeIndex {
    match value {
        Value::Bool | Value::Int32 | Value::Int64 => tape.push(Content::Varint(0), 0),
        Value::Double => tape.push(Content::Fixed64(0), 0),
        Value::Message(message) | Value::Union(message) => {
            let node = tape.push_message(message);
            tape.finish(node);
            node
        }
        _ => tape.push_aside(|out| value.write_zero_text(out)),
    }
}

//! Type errors: values that their type cannot represent, with the messages of Go's decoders.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::quantity::{QUANTITY_FORM, Quantity};
use crate::types::{Scalar, Shape, TypeRef};

/// Returns the name of a value in Go's error messages; includes a number's value only if another
/// kind of number was expected.
pub(super) fn describe(value: &Value, expected_integer: bool) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if expected_integer => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

/// Returns Go's name of a type. Strings with a named Go type are strings here.
pub(super) fn go_type(of: TypeRef<'_>) -> String {
    match of.shape() {
        Shape::Any => "interface {}".to_owned(),
        Shape::Scalar(scalar) => match scalar {
            Scalar::String => "string",
            Scalar::Bool => "bool",
            Scalar::Int32 => "int32",
            Scalar::Int64 => "int64",
            Scalar::Number => "float64",
            Scalar::Bytes => "[]uint8",
            Scalar::Time => "v1.Time",
            Scalar::MicroTime => "v1.MicroTime",
            Scalar::Quantity => "resource.Quantity",
            Scalar::IntOrString => "intstr.IntOrString",
        }
        .to_owned(),
        Shape::List { item, .. } => format!("[]{}", go_type(item)),
        Shape::Map { value, .. } => format!("map[string]{}", go_type(value)),
        Shape::Object { fields, .. } => {
            // `core.v1.PodSpec`: Go's package name is the version.
            let name = fields.type_name();
            name.split_once('.')
                .map_or(name, |(_, name)| name)
                .to_owned()
        }
    }
}

/// Returns `Some` if `value` does not have this type; the inner value is the message of the type's
/// own decoder, if it has one.
pub(super) fn problem(scalar: Scalar, value: &Value) -> Option<Option<String>> {
    let not = |expected| Some(Some(not_a(value, expected)));
    match (scalar, value) {
        (Scalar::String, Value::String(_))
        | (Scalar::Bool, Value::Bool(_))
        | (Scalar::Number, Value::Number(_)) => None,
        (Scalar::Int32, Value::Number(number)) => {
            let fits = number.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
            (!fits).then_some(None)
        }
        (Scalar::Int64, Value::Number(number)) => number.as_i64().is_none().then_some(None),
        (Scalar::Bytes, Value::String(text)) => {
            let error = STANDARD.decode(text).err()?;
            Some(Some(match error {
                base64::DecodeError::InvalidByte(at, _)
                | base64::DecodeError::InvalidLastSymbol(at, _) => {
                    format!("illegal base64 data at input byte {at}")
                }
                _ => format!("illegal base64 data at input byte {}", text.len() / 4 * 4),
            }))
        }
        (Scalar::Time, Value::String(text)) => bad_time(text, "Z07:00", ""),
        (Scalar::MicroTime, Value::String(text)) => bad_time(text, "Z07:00", ".000000"),
        (Scalar::Time | Scalar::MicroTime, value) => Some(Some(not_a(value, "string"))),
        (Scalar::Quantity, Value::Number(_)) => None,
        (Scalar::Quantity, Value::String(text)) => bad_quantity(text),
        (Scalar::Quantity, _) => Some(Some(QUANTITY_FORM.to_owned())),
        (Scalar::IntOrString, Value::String(_)) => None,
        (Scalar::IntOrString, Value::Number(number)) => {
            let fits = number.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
            if fits { None } else { not("int32") }
        }
        (Scalar::IntOrString, _) => not("int32"),
        _ => Some(None),
    }
}

fn not_a(value: &Value, expected: &str) -> String {
    let description = describe(value, expected == "int32");
    format!("json: cannot unmarshal {description} into Go value of type {expected}")
}

/// Checks a time of RFC 3339, whose `fraction` of a second has exactly as many digits, or any number if it is empty. Returns the
/// error of Go's parser, which names the first element of the layout that does not fit.
fn bad_time(text: &str, zone: &str, fraction: &str) -> Option<Option<String>> {
    let layout = [
        "2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05",
    ];
    let mut rest = text;
    let mut element = layout.into_iter().chain([fraction, zone]);
    let wrong = element.find(|element| match rest_after(element, rest) {
        Some(after) => {
            rest = after;
            false
        }
        None => true,
    });
    let problem = match wrong {
        Some(element) => format!("cannot parse {rest:?} as {element:?}"),
        None if !rest.is_empty() => format!("extra text: {rest:?}"),
        None if text.parse::<jiff::Timestamp>().is_err() => "value out of range".to_owned(),
        None => return None,
    };
    let layout: String = layout.into_iter().chain([fraction, zone]).collect();
    Some(Some(match wrong {
        Some(_) => format!("parsing time {text:?} as {layout:?}: {problem}"),
        None => format!("parsing time {text:?}: {problem}"),
    }))
}

/// Returns what follows an element of a layout of Go in `text`, if `text` starts with it.
fn rest_after<'a>(element: &str, text: &'a str) -> Option<&'a str> {
    let digits = |text: &'a str, count: usize| {
        let (number, rest) = text.split_at_checked(count)?;
        number
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then_some(rest)
    };
    match element {
        "" => Some(match text.strip_prefix('.') {
            Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
            None => text,
        }),
        "Z07:00" => text.strip_prefix('Z').or_else(|| {
            let hours = digits(text.strip_prefix(['+', '-'])?, 2)?;
            digits(hours.strip_prefix(':')?, 2)
        }),
        "-" | "T" | ":" => text.strip_prefix(element),
        element => match element.strip_prefix('.') {
            Some(fraction) => digits(text.strip_prefix('.')?, fraction.len()),
            None => digits(text, element.len()),
        },
    }
}

fn bad_quantity(text: &str) -> Option<Option<String>> {
    let bad = Quantity::parse_json(text).err()?;
    Some(Some(bad.to_string()))
}

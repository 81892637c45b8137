//! Type errors: values that their type cannot represent, with the messages of Go's decoders.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::go_time;
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
        (Scalar::Time, Value::String(text)) => go_time::parse(text, "").err().map(Some),
        (Scalar::MicroTime, Value::String(text)) => go_time::parse(text, ".000000").err().map(Some),
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

fn bad_quantity(text: &str) -> Option<Option<String>> {
    let bad = Quantity::parse_string(text).err()?;
    Some(Some(bad.to_string()))
}

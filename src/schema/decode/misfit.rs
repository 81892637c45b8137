//! Values that their type cannot hold, in the words of Go's decoders. Which are valid beyond their type is
//! told by validation.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::schema::quantity::{QUANTITY_FORM, Quantity};
use crate::schema::types::{Scalar, Shape, TypeRef};

/// How Go's decoder calls a value that it cannot use; of a number it says which it is only when it
/// wanted another one.
pub(super) fn describe(value: &Value, wanted_integer: bool) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if wanted_integer => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

/// How Go calls a type. Strings that have a type of their own there are strings here.
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
            // `core.v1.PodSpec`: a package is called as its version.
            let name = fields.type_name();
            name.split_once('.')
                .map_or(name, |(_, name)| name)
                .to_owned()
        }
    }
}

/// Why `value` is not of this type, if it is not; the inner one is what the type's own decoder says,
/// where it has one.
pub(super) fn problem(scalar: Scalar, value: &Value) -> Option<Option<String>> {
    let not = |wanted| Some(Some(not_a(value, wanted)));
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
        (Scalar::Time, Value::String(text)) => bad_time(text, "2006-01-02T15:04:05Z07:00"),
        (Scalar::MicroTime, Value::String(text)) => {
            bad_time(text, "2006-01-02T15:04:05.000000Z07:00")
        }
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

fn not_a(value: &Value, wanted: &str) -> String {
    let given = describe(value, wanted == "int32");
    format!("json: cannot unmarshal {given} into Go value of type {wanted}")
}

fn bad_time(text: &str, layout: &str) -> Option<Option<String>> {
    let parsed: Result<jiff::Timestamp, _> = text.parse();
    parsed.err().map(|_| {
        Some(format!(
            "parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\""
        ))
    })
}

fn bad_quantity(text: &str) -> Option<Option<String>> {
    let bad = Quantity::parse(text.trim()).err()?;
    Some(Some(bad.to_string()))
}

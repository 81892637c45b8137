//! Conversion of values between JSON and CEL, as upstream binds objects
//! ([`UnstructuredToVal`](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/cel/common/values.go)).

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, Value as CelValue};
use serde_json::{Number, Value};

use crate::escaping::{escape, is_reserved};
use crate::messages::is_message_type_key;

/// The properties of a declared type that the conversion of a JSON value uses.
pub trait TypeDeclaration {
    /// Returns true for the type `number`, whose integers are converted to doubles.
    fn is_number(&self) -> bool;

    /// Returns the `format`; empty if it has none.
    fn format(&self) -> &str;

    /// Returns the type of the items of a list.
    fn items(&self) -> Option<&Self>;

    /// Returns the type of the property `name` of an object, or of the values of a map.
    fn property(&self, name: &str) -> Option<&Self>;

    /// Returns true for a map. Its keys are data and are not escaped.
    fn is_map(&self) -> bool;
}

/// Converts a JSON value without a declared type: does not escape keys, and converts whole numbers to ints.
pub fn from_json(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => from_number(number),
        Value::String(text) => from_text(text),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(from_json).collect())),
        Value::Object(fields) => from_fields(fields.iter().map(|(k, v)| (k.clone(), from_json(v)))),
    }
}

/// Converts a JSON value by its declared type: escapes the names of properties, and parses times and durations.
pub fn from_json_with_type<T: TypeDeclaration>(value: &Value, declared: Option<&T>) -> CelValue {
    match value {
        Value::Null | Value::Bool(_) => from_json(value),
        Value::Number(number) => match number.as_i64() {
            Some(int) if !declared.is_some_and(T::is_number) => CelValue::Int(int),
            _ => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => from_formatted(text, declared.map_or("", T::format)),
        Value::Array(items) => {
            let declared = declared.and_then(T::items);
            let items = items.iter().map(|item| from_json_with_type(item, declared));
            CelValue::List(Arc::new(items.collect()))
        }
        Value::Object(properties) => {
            let is_map = declared.is_some_and(T::is_map);
            let properties = properties.iter().flat_map(|(name, value)| {
                let declared = declared.and_then(|declared| declared.property(name));
                let value = from_json_with_type(value, declared);
                // A property whose name is a reserved word can be selected by both names.
                let unescaped =
                    (is_map || is_reserved(name)).then(|| (name.clone(), value.clone()));
                let escaped = (!is_map).then(|| (escape(name), value));
                unescaped.into_iter().chain(escaped)
            });
            from_fields(properties)
        }
    }
}

/// Returns the map with these entries.
pub fn from_fields(fields: impl Iterator<Item = (String, CelValue)>) -> CelValue {
    let key = |name: String| Key::String(Arc::new(name));
    let map: HashMap<Key, CelValue> = fields.map(|(name, value)| (key(name), value)).collect();
    CelValue::Map(Map { map: Arc::new(map) })
}

/// Returns an optional that contains `value`, or the empty one.
pub fn optional(value: Option<CelValue>) -> CelValue {
    let value = value.map_or_else(OptionalValue::none, OptionalValue::of);
    CelValue::Opaque(Arc::new(value))
}

fn from_number(number: &Number) -> CelValue {
    match (number.as_i64(), number.as_u64()) {
        (Some(int), _) => CelValue::Int(int),
        (None, Some(uint)) => CelValue::UInt(uint),
        (None, None) => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

fn from_text(text: &str) -> CelValue {
    CelValue::String(Arc::new(text.to_owned()))
}

/// Converts a string of this format. A string that does not match its format remains a string.
fn from_formatted(text: &str, format: &str) -> CelValue {
    let function = match format {
        "date-time" => "timestamp",
        "duration" => "duration",
        _ => return from_text(text),
    };
    let plain = |expr| IdedExpr { id: 0, expr };
    let call = plain(Expr::Call(CallExpr {
        func_name: function.to_owned(),
        target: None,
        args: vec![plain(Expr::Ident("text".to_owned()))],
    }));
    let mut context = Context::default();
    context.add_variable_from_value("text", from_text(text));
    context.resolve(&call).unwrap_or_else(|_| from_text(text))
}

/// Returns the approximate size of a value in bytes. Stops counting shortly after `max`.
pub(crate) fn size(value: &CelValue, max: usize) -> usize {
    const BASE_BYTES: usize = 32;
    let mut total = BASE_BYTES;
    match value {
        CelValue::String(text) => total += text.len(),
        CelValue::Bytes(bytes) => total += bytes.len(),
        CelValue::List(items) => {
            for item in items.iter() {
                if total > max {
                    break;
                }
                total += size(item, max - total);
            }
        }
        CelValue::Map(map) => {
            for (key, item) in map.map.iter() {
                if total > max {
                    break;
                }
                if let Key::String(key) = key {
                    total += key.len();
                }
                total += BASE_BYTES + size(item, max.saturating_sub(total));
            }
        }
        _ => {}
    }
    total
}

/// Converts a value to JSON. The types of messages are omitted.
///
/// # Errors
/// The value has no representation in JSON.
pub fn to_json(value: &CelValue) -> Result<Value, String> {
    Ok(match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(flag) => Value::Bool(*flag),
        CelValue::Int(int) => Value::from(*int),
        CelValue::UInt(uint) => Value::from(*uint),
        CelValue::Float(float) => from_float(*float)?,
        CelValue::String(text) => Value::String(text.as_ref().clone()),
        CelValue::Bytes(bytes) => Value::String(STANDARD.encode(bytes.as_slice())),
        CelValue::List(items) => {
            let items: Result<Vec<Value>, String> = items.iter().map(to_json).collect();
            Value::Array(items?)
        }
        CelValue::Map(map) => {
            let fields = map.map.iter().filter(|(key, _)| !is_message_type_key(key));
            let field = |(key, value): (&Key, &CelValue)| match key {
                Key::String(name) => Ok((name.as_ref().clone(), to_json(value)?)),
                other => Err(format!(
                    "map key \"{other}\" is of type {}, not string",
                    type_name(&CelValue::from(other.clone()))
                )),
            };
            let fields: Result<serde_json::Map<String, Value>, String> =
                fields.map(field).collect();
            Value::Object(fields?)
        }
        other => {
            let name = type_name(other);
            return Err(format!(
                "a value of type {name} cannot be converted to JSON"
            ));
        }
    })
}

fn from_float(float: f64) -> Result<Value, String> {
    /// The largest float up to which every integer is exact.
    const EXACT_MAX: f64 = (1_u64 << 53) as f64;
    // As in Go, whole numbers are written without a fraction.
    if float.fract() == 0.0 && float.abs() <= EXACT_MAX {
        return Ok(Value::from(float as i64));
    }
    let number = Number::from_f64(float).map(Value::Number);
    number.ok_or_else(|| format!("{float} cannot be converted to JSON"))
}

/// Returns the name of the type of `value` in CEL.
pub fn type_name(value: &CelValue) -> &'static str {
    match value {
        CelValue::Bool(_) => "bool",
        CelValue::String(_) => "string",
        CelValue::Int(_) => "int",
        CelValue::UInt(_) => "uint",
        CelValue::Float(_) => "double",
        CelValue::Bytes(_) => "bytes",
        CelValue::List(_) => "list",
        CelValue::Map(_) => "map",
        CelValue::Null => "null_type",
        _ => "dyn",
    }
}

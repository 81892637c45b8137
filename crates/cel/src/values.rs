//! Values: JSON made CEL's, as upstream binds objects that have no schema: keys as they are, whole
//! numbers as int.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::Value as CelValue;
use kube_cel::cel::objects::{Key, Map};
use serde_json::{Number, Value};

use super::objects::TYPE;

pub(super) fn of_json(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => of_number(number),
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(of_json).collect())),
        Value::Object(fields) => of_fields(fields.iter().map(|(k, v)| (k.clone(), of_json(v)))),
    }
}

/// A map of these fields.
pub(in crate::admission) fn of_fields(
    fields: impl Iterator<Item = (String, CelValue)>,
) -> CelValue {
    let key = |name: String| Key::String(Arc::new(name));
    let map: HashMap<Key, CelValue> = fields.map(|(name, value)| (key(name), value)).collect();
    CelValue::Map(Map { map: Arc::new(map) })
}

fn of_number(number: &Number) -> CelValue {
    match (number.as_i64(), number.as_u64()) {
        (Some(int), _) => CelValue::Int(int),
        (None, Some(uint)) => CelValue::UInt(uint),
        (None, None) => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// How many bytes a value takes about, counted no further than `max`.
pub(super) fn size(value: &CelValue, max: usize) -> usize {
    const OF_ANY: usize = 16;
    let mut total = OF_ANY;
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
                total += OF_ANY + size(item, max.saturating_sub(total));
            }
        }
        _ => {}
    }
    total
}

/// The JSON of a value; the types of messages are left out.
///
/// # Errors
/// JSON has no such value.
pub(super) fn to_json(value: &CelValue) -> Result<Value, String> {
    Ok(match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(flag) => Value::Bool(*flag),
        CelValue::Int(int) => Value::from(*int),
        CelValue::UInt(uint) => Value::from(*uint),
        CelValue::Float(float) => of_float(*float)?,
        CelValue::String(text) => Value::String(text.as_ref().clone()),
        CelValue::Bytes(bytes) => Value::String(STANDARD.encode(bytes.as_slice())),
        CelValue::List(items) => {
            let items: Result<Vec<Value>, String> = items.iter().map(to_json).collect();
            Value::Array(items?)
        }
        CelValue::Map(map) => {
            let fields = map.map.iter().filter(|(key, _)| **key != TYPE);
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

fn of_float(float: f64) -> Result<Value, String> {
    /// The integers up to here have a float of their own.
    const EXACT_MAX: f64 = (1_u64 << 53) as f64;
    // Integers are written without a fraction, as Go writes them.
    if float.fract() == 0.0 && float.abs() <= EXACT_MAX {
        return Ok(Value::from(float as i64));
    }
    let number = Number::from_f64(float).map(Value::Number);
    number.ok_or_else(|| format!("{float} cannot be converted to JSON"))
}

/// CEL's name of the type.
pub(super) fn type_name(value: &CelValue) -> &'static str {
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

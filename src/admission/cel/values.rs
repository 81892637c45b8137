//! Values: JSON made CEL's, as upstream binds objects that have no schema: keys as they are, whole
//! numbers as int.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value as CelValue;
use kube_cel::cel::objects::{Key, Map};
use serde_json::{Number, Value};

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

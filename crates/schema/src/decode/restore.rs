//! Checks whether the result of a strategic merge patch can be converted to its type. Upstream
//! converts untyped values with other messages than those of the JSON decoder: `cannot restore map
//! from string`.

use serde_json::Value;

use super::KindType;
use super::type_error::problem;
use crate::types::{Scalar, Shape, TypeRef};

impl KindType {
    /// Returns why `object` cannot be converted to this kind; `None` if it can.
    pub fn restore_problem(&self, object: &Value) -> Option<String> {
        restore_problem(self.root(), object)
    }
}

fn restore_problem(of: TypeRef<'_>, value: &Value) -> Option<String> {
    match (of.shape(), value) {
        (_, Value::Null) | (Shape::Any, _) => None,
        (Shape::Object { fields, .. }, Value::Object(members)) => {
            let mut actual = fields
                .iter()
                .filter_map(|(name, of)| Some((of, members.get(name)?)));
            actual.find_map(|(of, value)| restore_problem(of, value))
        }
        (Shape::Object { .. }, _) => Some(format!("cannot restore struct from: {}", kind(value))),
        (Shape::Map { value: of, .. }, Value::Object(members)) => {
            let mut values = members.values();
            values.find_map(|value| restore_problem(of, value))
        }
        (Shape::Map { .. }, _) => Some(format!("cannot restore map from {}", kind(value))),
        (Shape::List { item, .. }, Value::Array(items)) => {
            items.iter().find_map(|value| restore_problem(item, value))
        }
        (Shape::List { .. }, _) => Some(format!("cannot restore slice from {}", kind(value))),
        (Shape::Scalar(scalar), value) => {
            let own = problem(scalar, value)?;
            scalar_problem(scalar, value, own)
        }
    }
}

/// Returns why a value is not this scalar; `own` is the message of the type's decoder. Integer
/// overflow is left to the JSON decoder, whose message contains the number.
fn scalar_problem(scalar: Scalar, value: &Value, own: Option<String>) -> Option<String> {
    let go_type = match scalar {
        Scalar::String => "string",
        Scalar::Bool => "bool",
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Number => "float64",
        Scalar::Bytes => {
            return Some(match (value, own) {
                (Value::String(_), Some(own)) => format!("error decoding from json: {own}"),
                _ => format!("cannot restore slice from {}", kind(value)),
            });
        }
        Scalar::Time | Scalar::MicroTime | Scalar::Quantity | Scalar::IntOrString => return own,
    };
    // Go can convert numbers to each other, and integers to strings as code points: the converter
    // names both types of such a pair, and otherwise only the expected type.
    match (scalar, value, kind(value)) {
        (Scalar::Int32 | Scalar::Int64, Value::Number(_), "int64") => None,
        (Scalar::Int32 | Scalar::Int64, Value::Number(number), _)
            if number.as_f64().is_some_and(|number| number.fract() == 0.0) =>
        {
            None
        }
        (Scalar::Int32 | Scalar::Int64, Value::Number(_), actual)
        | (Scalar::String, Value::Number(_), actual @ "int64") => {
            Some(format!("cannot convert {actual} to {go_type}"))
        }
        _ => Some(format!("unrecognized type: {go_type}")),
    }
}

/// Returns Go's name of the kind of an untyped value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Types;

    /// Expected messages of apimachinery's unstructured converter.
    #[test]
    fn messages_equal_upstream() {
        let pod = KindType::builtin(&Types::builtins(), "v1", "Pod").unwrap();
        for (object, text) in [
            (
                json!({"metadata": {"labels": "x"}}),
                "cannot restore map from string",
            ),
            (
                json!({"metadata": {"labels": [1]}}),
                "cannot restore map from slice",
            ),
            (json!({"metadata": 5}), "cannot restore struct from: int64"),
            (json!({"spec": "x"}), "cannot restore struct from: string"),
            (
                json!({"spec": {"containers": {}}}),
                "cannot restore slice from map",
            ),
            (
                json!({"spec": {"containers": [true]}}),
                "cannot restore struct from: bool",
            ),
            (
                json!({"spec": {"containers": 1.5}}),
                "cannot restore slice from float64",
            ),
            (
                json!({"spec": {"nodeName": 5}}),
                "cannot convert int64 to string",
            ),
            (
                json!({"spec": {"nodeName": true}}),
                "unrecognized type: string",
            ),
            (
                json!({"spec": {"hostNetwork": "x"}}),
                "unrecognized type: bool",
            ),
            (
                json!({"spec": {"priority": "x"}}),
                "unrecognized type: int32",
            ),
            (
                json!({"spec": {"priority": 1.5}}),
                "cannot convert float64 to int32",
            ),
            (
                json!({"metadata": {"creationTimestamp": 5}}),
                "json: cannot unmarshal number into Go value of type string",
            ),
        ] {
            assert_eq!(
                pod.restore_problem(&object).as_deref(),
                Some(text),
                "{object}"
            );
        }
        let fits = json!({"metadata": {"labels": null}, "spec": {"priority": 3, "other": []}});
        assert_eq!(pod.restore_problem(&fits), None);
        let secret = KindType::builtin(&Types::builtins(), "v1", "Secret").unwrap();
        for (value, text) in [
            (
                json!("-"),
                "error decoding from json: illegal base64 data at input byte 0",
            ),
            (json!(1), "cannot restore slice from int64"),
        ] {
            let object = json!({"data": {"a": value}});
            assert_eq!(secret.restore_problem(&object).as_deref(), Some(text));
        }
    }
}

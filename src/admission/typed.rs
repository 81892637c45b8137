//! Whether a value is an object of its kind, as decoding it would find out upstream: what a webhook's
//! patch has made of an object is not looked at by anybody else before it is defaulted.

use serde_json::Value;

use crate::schema::{Scalar, Shape, TypeRef, Types};

/// Checks `object` against the type that its `apiVersion` and `kind` name; a kind that is not built in has
/// its own schema, which is looked at where it is validated.
///
/// # Errors
/// The first member of another type.
pub fn check(types: &Types, object: &Value) -> Result<(), String> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    match types.root(text("apiVersion"), text("kind")) {
        Some(root) => walk(root, object, &mut Vec::new()),
        None => Ok(()),
    }
}

fn walk<'a>(of: TypeRef<'a>, value: &'a Value, path: &mut Vec<&'a str>) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    let wanted = match (of.shape(), value) {
        (Shape::Any, _) => return Ok(()),
        (Shape::List { item, .. }, Value::Array(items)) => {
            return items.iter().try_for_each(|value| walk(item, value, path));
        }
        (Shape::Map { value: each, .. }, Value::Object(members)) => {
            return members.iter().try_for_each(|(name, value)| {
                path.push(name);
                walk(each, value, path)?;
                path.pop();
                Ok(())
            });
        }
        (Shape::Object { fields, .. }, Value::Object(members)) => {
            return members.iter().try_for_each(|(name, value)| {
                let Some(of) = fields.get(name) else {
                    return Ok(());
                };
                path.push(name);
                walk(of, value, path)?;
                path.pop();
                Ok(())
            });
        }
        (Shape::Scalar(scalar), value) if is(scalar, value) => return Ok(()),
        (Shape::List { .. }, _) => "a list",
        (Shape::Map { .. } | Shape::Object { .. }, _) => "an object",
        (Shape::Scalar(scalar), _) => name(scalar),
    };
    let got = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Err(format!(
        "json: cannot unmarshal {got} into field {} of type {wanted}",
        path.join(".")
    ))
}

fn is(scalar: Scalar, value: &Value) -> bool {
    match scalar {
        Scalar::String | Scalar::Bytes | Scalar::Time | Scalar::MicroTime => value.is_string(),
        Scalar::Bool => value.is_boolean(),
        Scalar::Int32 => value.as_i64().is_some_and(|int| i32::try_from(int).is_ok()),
        Scalar::Int64 => value.is_i64(),
        Scalar::Number => value.is_number(),
        Scalar::Quantity | Scalar::IntOrString => value.is_string() || value.is_number(),
    }
}

fn name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String | Scalar::Bytes => "string",
        Scalar::Time | Scalar::MicroTime => "time",
        Scalar::Bool => "bool",
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Number => "float64",
        Scalar::Quantity => "quantity",
        Scalar::IntOrString => "int or string",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(pod: Value, words: &str) {
        let mut pod = pod;
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        let error = check(&Types::builtins(), &pod).unwrap_err();
        assert_eq!(error, format!("json: cannot unmarshal {words}"));
    }

    #[test]
    fn the_first_member_of_another_type_is_told() {
        refused(
            json!({"spec": {"containers": "x"}}),
            "string into field spec.containers of type a list",
        );
        refused(
            json!({"spec": {"containers": [{"name": 1}]}}),
            "number into field spec.containers.name of type string",
        );
        refused(
            json!({"metadata": {"labels": {"a": 1}}}),
            "number into field metadata.labels.a of type string",
        );
        refused(
            json!({"spec": []}),
            "array into field spec of type an object",
        );
        refused(
            json!({"spec": {"terminationGracePeriodSeconds": "1"}}),
            "string into field spec.terminationGracePeriodSeconds of type int64",
        );
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "unknown": 1, "spec": {
            "containers": [{"name": "a", "ports": [{"containerPort": 80}]}], "nodeSelector": null,
        }});
        assert_eq!(check(&Types::builtins(), &pod), Ok(()));
        assert_eq!(
            check(&Types::builtins(), &json!({"kind": "Mine", "spec": 1})),
            Ok(())
        );
    }
}

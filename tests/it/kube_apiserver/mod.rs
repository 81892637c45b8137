//! Tests beside a kube-apiserver: objects that it has stored in protobuf, recorded in `stored.txt`, its verdicts on invalid
//! objects, recorded in `verdicts.txt`, and a kube-apiserver that runs on the same etcd.

mod client;
mod live;
mod recorded;
mod verdicts;

use serde::Deserialize;
use serde_json::{Value, json};

/// An object that the kube-apiserver creates.
#[derive(Debug, Deserialize)]
struct Manifest {
    /// The path of the resource.
    path: String,
    object: Value,
}

impl Manifest {
    /// Returns the path of the object.
    fn object_path(&self) -> String {
        let name = self.object["metadata"]["name"].as_str().expect("a name");
        format!("{}/{name}", self.path)
    }
}

/// Returns the objects, in the order of their creation.
fn manifests() -> Vec<Manifest> {
    serde_saphyr::from_str(include_str!("objects.yaml")).expect("objects.yaml is valid")
}

/// Returns `object` without members that are null: Go's encoder writes null for some types, for which this server, like
/// all typed clients, does not distinguish it from an absent member.
fn without_nulls(object: &Value) -> Value {
    match object {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            let members = members.map(|(name, value)| (name.clone(), without_nulls(value)));
            Value::Object(members.collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        value => value.clone(),
    }
}

/// Returns `object` without members that have the zero value of their type, which Go's encoder writes for some types even if
/// a client has not set them.
fn without_zeros(object: &Value) -> Value {
    match object {
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| (name.clone(), without_zeros(value)));
            let zeros = [
                json!(null),
                json!(""),
                json!(0),
                json!(false),
                json!({}),
                json!([]),
            ];
            Value::Object(
                members
                    .filter(|(_, value)| !zeros.contains(value))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(without_zeros).collect(),
        value => value.clone(),
    }
}

/// Returns the paths of the values that differ.
fn differences(expected: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", expected, actual, &mut found);
    found
}

fn compare(path: &str, expected: &Value, actual: &Value, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            let names = expected.keys().chain(actual.keys());
            let names: std::collections::BTreeSet<&String> = names.collect();
            for name in names {
                let member = |of: &serde_json::Map<String, Value>| of.get(name).cloned();
                let (expected, actual) = (member(expected), member(actual));
                let path = format!("{path}.{name}");
                match (expected, actual) {
                    (Some(expected), Some(actual)) => compare(&path, &expected, &actual, found),
                    (expected, actual) => found.push(format!("{path}: {expected:?} {actual:?}")),
                }
            }
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            for (at, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                compare(&format!("{path}[{at}]"), expected, actual, found);
            }
        }
        _ if expected == actual => {}
        _ => found.push(format!("{path}: {expected} {actual}")),
    }
}

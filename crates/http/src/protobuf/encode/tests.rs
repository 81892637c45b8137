//! Tests of protobuf encoding: every kind can be decoded again, and values that do not fit are
//! reported.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use watchet_schema::{MemoryBudget, Types};

fn round_trip(schema: &Schema, object: &Value) -> Value {
    let text = |name: &str| object[name].as_str().unwrap();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let mut message = Vec::new();
    let written = schema.write_object(api_version, kind, object, &mut message);
    written.unwrap_or_else(|error| panic!("{error}: {object}"));
    let mut body = Vec::new();
    envelope(api_version, kind, message.len(), &mut body);
    body.extend_from_slice(&message);
    schema
        .object(&body, &MemoryBudget::unlimited())
        .unwrap_or_else(|error| panic!("{error}: {object}"))
}

/// Returns a value of a type, derived from `seed`; small and never empty, since the decoder drops
/// some empty values.
fn value_of(schema: &Schema, node: Node, depth: usize, seed: &mut u64) -> Value {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    let number = (*seed >> 33) as i64;
    match node {
        Node::Scalar(scalar) => match scalar {
            Scalar::String => format!("s{number}").into(),
            Scalar::Bool => true.into(),
            Scalar::Int32 | Scalar::Int64 if number % 2 == 0 => (1 + number).into(),
            Scalar::Int32 | Scalar::Int64 => (-1 - number).into(),
            Scalar::Number => (number as f64 + 0.5).into(),
            Scalar::Bytes => STANDARD.encode(number.to_be_bytes()).into(),
            Scalar::Time => "2026-11-21T10:00:00Z".into(),
            Scalar::MicroTime => "2026-11-21T10:00:00.123456Z".into(),
            Scalar::Quantity => format!("{number}m").into(),
            Scalar::IntOrString if number % 2 == 0 => number.into(),
            Scalar::IntOrString => format!("{number}%").into(),
        },
        Node::List { wrapped: true, .. } => json!([format!("i{number}")]),
        Node::List { item, .. } => {
            let item = schema.0.node(item);
            let mut value = || value_of(schema, item, depth, seed);
            json!([value(), value()])
        }
        Node::Map { value, .. } => {
            let node = schema.0.node(value);
            let mut value = || value_of(schema, node, depth, seed);
            json!({"a": value(), "b": value()})
        }
        Node::Object { object, .. } => object_of(schema, object, depth + 1, seed),
        Node::Union(message) => {
            let fields = schema.0.object_fields(message);
            let field = fields.iter().find(|f| f.name() == "schema").unwrap();
            value_of(schema, schema.node(field), depth + 1, seed)
        }
        Node::Raw => json!({"raw": number}),
        Node::Any => unreachable!("no built-in type is untyped"),
    }
}

fn object_of(schema: &Schema, message: ObjectId, depth: usize, seed: &mut u64) -> Value {
    let mut object = Map::new();
    fill(schema, message, depth, seed, &mut object);
    Value::Object(object)
}

/// Returns true if values of a type contain other values.
fn holds(schema: &Schema, node: Node) -> bool {
    match node {
        Node::Object { .. } | Node::Union(_) => true,
        Node::List { item: inner, .. } | Node::Map { value: inner, .. } => {
            holds(schema, schema.0.node(inner))
        }
        _ => false,
    }
}

fn fill(
    schema: &Schema,
    message: ObjectId,
    depth: usize,
    seed: &mut u64,
    object: &mut Map<String, Value>,
) {
    for field in schema.0.object_fields(message) {
        let node = schema.node(field);
        // Schemas contain schemas: below this depth, only types without nested values.
        if field.number().is_none() || (depth > 4 && holds(schema, node)) {
            continue;
        }
        if let (Node::Object { object: inner, .. }, true) = (node, field.is_inline()) {
            fill(schema, inner, depth + 1, seed, object);
            continue;
        }
        let value = value_of(schema, node, depth, seed);
        object.insert(field.name().to_owned(), value);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Every kind with every field survives encoding and decoding.
    #[test]
    fn encoded_objects_decode_to_themselves(seed: u64) {
        let schema = Schema::new(Types::builtins());
        let mut kinds = 0;
        for (api_version, kind, message) in schema.0.kinds() {
            let mut object = object_of(&schema, message, 0, &mut seed.clone());
            object["apiVersion"] = api_version.into();
            object["kind"] = kind.into();
            prop_assert_eq!(round_trip(&schema, &object), object);
            kinds += 1;
        }
        prop_assert!(kinds > 50, "{}", kinds);
    }
}

#[test]
fn bytes_equal_gos_encoding() {
    // The fields of a Time and the envelope, as encoded by apimachinery's generated code.
    let schema = Schema::new(Types::builtins());
    let object = json!({"metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:05Z"}});
    let mut message = Vec::new();
    schema
        .write_object("v1", "ConfigMap", &object, &mut message)
        .unwrap();
    let metadata = b"\x0a\x01a\x42\x04\x08\x05\x10\x00";
    assert_eq!(
        message,
        [&[0x0a, metadata.len() as u8][..], metadata].concat()
    );
    let mut body = Vec::new();
    envelope("v1", "ConfigMap", 300, &mut body);
    assert_eq!(
        body,
        b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\xac\x02"
    );
}

#[test]
fn unencodable_values_are_reported() {
    let schema = Schema::new(Types::builtins());
    let mut out = Vec::new();
    let object = json!({
        "metadata": {"namespace": "ns", "name": "a"}, "spec": {"replicas": "three"},
    });
    let error = schema.write_object("apps/v1", "Deployment", &object, &mut out);
    let error = error.unwrap_err();
    let error = error.to_string();
    assert_eq!(
        error,
        r#"ns/a: field "replicas" has a value that its type cannot hold: "three""#
    );
    let unknown = json!({"data": {"a": "b"}, "more": {"x": 1}, "binaryData": null});
    schema
        .write_object("v1", "ConfigMap", &unknown, &mut out)
        .unwrap();
}

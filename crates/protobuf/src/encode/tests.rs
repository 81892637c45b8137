//! Tests of protobuf encoding: every kind can be decoded again, and values that do not fit are reported. That the bytes
//! are those of Go is tested with Go's encoder, in `crates/http/tests/go_encodings.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::decode::tests::assert_memory_is_bounded;
use watchet_schema::{Node, ObjectId, Scalar};

fn encoded(schema: &Arc<Schema>, object: &Value) -> Result<Bytes, EncodeError> {
    let text = |name: &str| object[name].as_str().unwrap();
    let encoder = Encoder::new(schema, text("apiVersion"), text("kind")).unwrap();
    encoder.encode_body(object.to_string().as_bytes())
}

fn round_trip(schema: &Arc<Schema>, object: &Value) -> Value {
    let body = encoded(schema, object).unwrap_or_else(|error| panic!("{error}: {object}"));
    let json = schema.to_json(&body, usize::MAX);
    let json = json.unwrap_or_else(|error| panic!("{error}: {object}"));
    let value: Value = serde_json::from_slice(&json).unwrap();
    let deserialized = Value::deserialize(schema.deserializer(&body).unwrap());
    assert_eq!(deserialized.unwrap(), value);
    assert_memory_is_bounded(schema, &body);
    value
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
            let item = schema.types.node(item);
            let mut value = || value_of(schema, item, depth, seed);
            json!([value(), value()])
        }
        Node::Map { value, .. } => {
            let node = schema.types.node(value);
            let mut value = || value_of(schema, node, depth, seed);
            json!({"a": value(), "b": value()})
        }
        Node::Object { object, .. } => object_of(schema, object, depth + 1, seed),
        Node::Union(message) => {
            let fields = schema.types.object_fields(message);
            let field = fields.iter().find(|f| f.name() == "schema").unwrap();
            value_of(schema, schema.types.node(field.node()), depth + 1, seed)
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
            holds(schema, schema.types.node(inner))
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
    for field in schema.types.object_fields(message) {
        let node = schema.types.node(field.node());
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

fn api_version_of(object: &Value) -> &str {
    object["apiVersion"].as_str().unwrap_or_default()
}

/// Compares an object with its decoded encoding, which may also have the zero values that Go encodes.
fn compare(object: &Value, decoded: &Value) -> Result<(), String> {
    match (object, decoded) {
        (Value::Object(members), Value::Object(decoded)) => {
            for (name, value) in decoded {
                match members.get(name) {
                    Some(member) => compare(member, value).map_err(|e| format!("{name}.{e}"))?,
                    None if is_zero(value) => {}
                    None => return Err(format!("{name}: added {value}")),
                }
            }
            match members.keys().find(|name| !decoded.contains_key(*name)) {
                Some(name) => Err(format!("{name}: lost")),
                None => Ok(()),
            }
        }
        (Value::Array(items), Value::Array(decoded)) if items.len() == decoded.len() => items
            .iter()
            .zip(decoded)
            .try_for_each(|(item, decoded)| compare(item, decoded)),
        _ if object == decoded => Ok(()),
        _ => Err(format!("{decoded} instead of {object}")),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.values().all(is_zero),
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0",
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Every kind with every field survives encoding and decoding; only zero values are added.
    #[test]
    fn encoded_objects_decode_to_themselves(seed: u64) {
        let schema = Schema::for_tests();
        let mut kinds = 0;
        for (api_version, kind, message) in schema.types.kinds() {
            let mut object = object_of(&schema, message, 0, &mut seed.clone());
            object["apiVersion"] = api_version.into();
            object["kind"] = kind.into();
            let decoded = round_trip(&schema, &object);
            if let Err(difference) = compare(&object, &decoded) {
                prop_assert!(false, "{} {}: {}", api_version_of(&object), kind, difference);
            }
            prop_assert_eq!(&round_trip(&schema, &decoded), &decoded);
            kinds += 1;
        }
        prop_assert!(kinds > 50, "{}", kinds);
    }
}

/// The members of a kind that JSON does not have, as Go's decoder sees them.
fn without_zeros(schema: &Arc<Schema>, object: &Value) -> Value {
    let mut decoded = round_trip(schema, object);
    let metadata = decoded["metadata"].as_object_mut().unwrap();
    metadata.retain(|_, value| !value.is_null());
    decoded
}

#[test]
fn body_is_an_envelope_with_all_fields_that_go_encodes() {
    let schema = Schema::for_tests();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:05.9Z"},
        "data": {"b": "", "a": "\u{e9}\n"},
    });
    // Name, generateName, namespace, selfLink, uid, resourceVersion, generation, creationTimestamp without a fraction.
    let metadata =
        b"\x0a\x01a\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x04\x08\x05\x10\x00";
    let mut message = vec![0x0a, metadata.len() as u8];
    message.extend_from_slice(metadata);
    message.extend_from_slice(b"\x12\x08\x0a\x01a\x12\x03\xc3\xa9\n\x12\x05\x0a\x01b\x12\x00");
    let mut body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12".to_vec();
    body.push(message.len() as u8);
    body.extend_from_slice(&message);
    body.extend_from_slice(b"\x1a\x00\x22\x00");
    assert_eq!(encoded(&schema, &object).unwrap(), body);
    assert_eq!(metadata_field(&message).unwrap().len(), metadata.len() + 2);
}

#[test]
fn cached_encoding_is_a_frame_with_the_body_and_the_message() {
    let schema = Schema::for_tests();
    let of = Encoder::new(&schema, "v1", "ConfigMap").unwrap();
    let json = br#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#;
    let cached = of.encode_cached(EventType::Modified, json).unwrap();
    assert_eq!(cached.body(), of.encode_body(json).unwrap());
    assert_eq!(cached.frame(), of.encode_frame("MODIFIED", json).unwrap());
    let added = frame_of_body("ADDED", &cached.body()).unwrap();
    assert_eq!(added, of.encode_frame("ADDED", json).unwrap());
    let mut item = Vec::new();
    of.encode_item(json, &mut item).unwrap();
    assert!(item.ends_with(cached.message()));
    assert_eq!(item.len(), item_len(of.message_len(json).unwrap()));
    let length = u32::from_be_bytes(cached.frame()[..4].try_into().unwrap());
    assert_eq!(length as usize, cached.frame().len() - 4);
}

/// Objects of other writers: unsorted maps, duplicate members, nulls, members of no field.
#[test]
fn unusual_json_is_encoded_as_go_decodes_it() {
    let schema = Schema::for_tests();
    let of = Encoder::new(&schema, "v1", "ConfigMap").unwrap();
    let encode = |json: &str| of.encode_body(json.as_bytes()).unwrap();
    let plain = encode(r#"{"metadata":{"name":"a"},"data":{"a":"1","b":"2"}}"#);
    for json in [
        r#"{"data":{"b":"2","a":"1"},"metadata":{"name":"a"}}"#,
        r#"{"data":{"b":"0","a":"0","b":"2","a":"1"},"metadata":{"name":"a"}}"#,
        r#"{"data":{"c":"3"},"data":{"a":"1","b":"2"},"metadata":{"name":"b","name":"a"}}"#,
        r#"{"metadata":{"name":"a","labels":null,"x":{"y":[]}},"data":{"a":"1","b":"2"},"immutable":null}"#,
        r#" { "metadata" : { "name" : "a" } , "data" : { "a":"\u0031", "b":"2" } } "#,
    ] {
        assert_eq!(encode(json), plain, "{json}");
    }
    let pods = Encoder::new(&schema, "v1", "Pod").unwrap();
    let encode = |json: &str| pods.encode_body(json.as_bytes()).unwrap();
    let null_items =
        encode(r#"{"spec":{"containers":[null],"hostAliases":[{"hostnames":[null]}]}}"#);
    let empty = encode(r#"{"spec":{"containers":[{}],"hostAliases":[{"hostnames":[""]}]}}"#);
    assert_eq!(null_items, empty);
}

/// Inlined members can be anywhere among those of the object.
#[test]
fn inlined_members_are_collected_into_their_message() {
    let schema = Schema::for_tests();
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"volumes": [{"emptyDir": {"medium": "Memory"}, "name": "v"}, {"name": "w"}]},
    });
    let decoded = without_zeros(&schema, &object);
    assert_eq!(decoded["spec"]["volumes"], object["spec"]["volumes"]);
}

#[test]
fn unencodable_values_are_reported() {
    let schema = Schema::for_tests();
    let error = |object: Value| encoded(&schema, &object).unwrap_err().to_string();
    let deployment = |replicas: Value| {
        error(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "ns", "name": "a"}, "spec": {"replicas": replicas},
        }))
    };
    assert_eq!(
        deployment(json!("three")),
        r#"ns/a: field "replicas" has a value that its type cannot hold: "three" at line 1 column 111"#
    );
    let above = deployment(json!(1_u64 << 31));
    assert!(above.contains("cannot hold: 2147483648"), "{above}");
    let float = deployment(json!(1.5));
    assert!(float.contains("cannot hold: 1.5"), "{float}");
    let list = deployment(json!([]));
    assert!(
        list.contains(r#"an integer of 32 bits in field "replicas""#),
        "{list}"
    );
    let data = error(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "%"},
    }));
    assert!(
        data.starts_with(r#"s: field "data": Invalid symbol 37"#),
        "{data}"
    );
    let time = error(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"creationTimestamp": "noon"},
    }));
    assert!(
        time.contains(r#""creationTimestamp" has a value"#),
        "{time}"
    );
    let of = Encoder::new(&schema, "v1", "Secret").unwrap();
    for json in ["", "{", "[]", "null", "{} x"] {
        assert!(of.encode_body(json.as_bytes()).is_err(), "{json}");
    }
}

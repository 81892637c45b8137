//! Tests of decoding bodies as Go's clients encode them, field by field.

use serde::Deserialize as _;
use serde_json::{Value, json};
use watchet_schema::{KindType, MemoryBudget, Types, decode_untyped};

use super::*;
use crate::schema::DEPTH_MAX;

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push((number as u8) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

fn number(field: u64, value: i64) -> Vec<u8> {
    [varint(field << 3), varint(value as u64)].concat()
}

fn bytes(field: u64, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [
        varint(field << 3 | 2),
        varint(value.len() as u64),
        value.to_vec(),
    ]
    .concat()
}

fn entry(field: u64, key: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    bytes(field, [bytes(1, key), bytes(2, value)].concat())
}

fn body(api_version: &str, kind: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    let types = [bytes(1, api_version), bytes(2, kind)].concat();
    [
        MAGIC.to_vec(),
        bytes(1, types),
        bytes(2, parts.concat()),
        bytes(3, ""),
        bytes(4, ""),
    ]
    .concat()
}

fn read(api_version: &str, kind: &str, parts: &[Vec<u8>]) -> Result<Value, InvalidProtobuf> {
    decode(&body(api_version, kind, parts))
}

fn decode(body: &[u8]) -> Result<Value, InvalidProtobuf> {
    let json = schema().to_json(body, usize::MAX)?;
    let value: Value = serde_json::from_slice(&json).unwrap();
    let deserialized = Value::deserialize(schema().deserializer(body)?)?;
    assert_eq!(deserialized, value);
    assert_memory_is_bounded(&schema(), body);
    Ok(value)
}

/// Deserializes an object within the memory that is computed before.
pub(crate) fn assert_memory_is_bounded(schema: &Messages, body: &[u8]) {
    let budget = MemoryBudget::new(schema.decoded_memory(body).object_bytes);
    let decoded = decode_untyped(schema.deserializer(body).unwrap(), &budget);
    assert!(decoded.is_ok(), "{decoded:?}");
}

fn schema() -> Messages {
    Messages::new(Types::builtins())
}

#[test]
fn a_config_map_is_decoded() {
    let metadata = [
        bytes(1, "a"),
        bytes(2, ""),
        bytes(3, "ns"),
        number(7, 0),
        bytes(8, ""),
        entry(11, "app", "x"),
        bytes(14, "f1"),
        bytes(14, "f2"),
    ];
    let parts = [
        bytes(1, metadata.concat()),
        entry(2, "k", "v"),
        entry(2, "empty", ""),
        entry(3, "b", [0xff, 0x00]),
        number(4, 0),
    ];
    assert_eq!(
        read("v1", "ConfigMap", &parts).unwrap(),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "immutable": false,
            "metadata": {
                "name": "a", "namespace": "ns",
                "labels": {"app": "x"}, "finalizers": ["f1", "f2"],
            },
            "data": {"k": "v", "empty": ""}, "binaryData": {"b": "/wA="},
        })
    );
}

#[test]
fn a_pod_with_inlined_and_special_fields_is_decoded() {
    let volume = [bytes(1, "v"), bytes(2, bytes(2, bytes(1, "")))].concat();
    let get = [
        bytes(1, "/"),
        bytes(2, [number(1, 1), number(2, 0), bytes(3, "web")].concat()),
    ];
    let probe = [bytes(1, bytes(2, get.concat())), number(2, 0), number(3, 5)].concat();
    let limits = entry(1, "cpu", bytes(1, "500m"));
    let container = [
        bytes(1, "c"),
        bytes(2, "nginx"),
        bytes(8, limits),
        bytes(10, probe),
        number(18, 0),
    ]
    .concat();
    let group = number(4, 7);
    let spec = [
        bytes(1, volume),
        bytes(2, container),
        number(4, 0),
        number(11, 0),
        bytes(14, [group, number(4, -1)].concat()),
        bytes(20, "a field of another wire type is refused elsewhere"),
    ];
    let actual = read("v1", "Pod", &[bytes(2, spec[..5].concat())]).unwrap();
    assert_eq!(
        actual["spec"],
        json!({
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{
                "name": "c", "image": "nginx",
                "resources": {"limits": {"cpu": "500m"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "timeoutSeconds": 5},
            }],
            // An explicit zero is kept: the field distinguishes it from absence.
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"supplementalGroups": [7, -1]},
        })
    );
}

#[test]
fn times_are_decoded() {
    let time = |seconds, nanos| [number(1, seconds), number(2, nanos)].concat();
    let spec = [
        bytes(1, "me"),
        number(2, 15),
        bytes(3, time(1_700_000_000, 5_000)),
    ];
    let lease = read(
        "coordination.k8s.io/v1",
        "Lease",
        &[bytes(2, spec.concat())],
    )
    .unwrap();
    assert_eq!(
        lease["spec"],
        json!({
            "holderIdentity": "me", "leaseDurationSeconds": 15,
            "acquireTime": "2023-11-14T22:13:20.000005Z",
        })
    );
    let started = bytes(7, time(1_700_000_000, 5_000));
    let pod = read("v1", "Pod", &[bytes(3, started)]).unwrap();
    assert_eq!(pod["status"]["startTime"], "2023-11-14T22:13:20Z");
}

#[test]
fn delete_options_are_decoded() {
    let parts = [number(1, 0), bytes(4, "Background"), bytes(5, "All")];
    let actual = read("policy/v1", "DeleteOptions", &parts).unwrap();
    assert_eq!(
        actual,
        json!({
            "apiVersion": "policy/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "propagationPolicy": "Background", "dryRun": ["All"],
        })
    );
}

/// Like Go's decoder: values that are too large are truncated, and the envelope's content type is
/// ignored.
#[test]
fn numbers_are_truncated_to_their_type() {
    let replicas = |count| read("apps/v1", "Deployment", &[bytes(2, number(1, count))]);
    for (sent, expect) in [(3, 3), (-1, -1), (1 << 40, 0), ((1 << 40) + 7, 7)] {
        assert_eq!(replicas(sent).unwrap()["spec"]["replicas"], expect);
    }
    let actual = read("v1", "Pod", &[bytes(2, number(4, 1 << 40))]).unwrap();
    assert_eq!(actual["spec"]["terminationGracePeriodSeconds"], 1_i64 << 40);
    let types = [bytes(1, "v1"), bytes(2, "ConfigMap")].concat();
    let json = [
        MAGIC.to_vec(),
        bytes(1, types),
        bytes(2, r#"{"kind":"ConfigMap","nonsense":1}"#),
        bytes(4, "application/json"),
    ];
    let actual = decode(&json.concat());
    assert!(actual.is_err(), "{actual:?}");
}

#[test]
fn invalid_bodies_are_rejected() {
    use InvalidProtobuf::{Malformed, NoEnvelope, TooDeep, UnknownKind};
    assert_eq!(decode(b"{}"), Err(NoEnvelope));
    let whole = body(
        "v1",
        "ConfigMap",
        &[bytes(1, bytes(1, "a")), entry(2, "k", "v")],
    );
    assert!(decode(&whole).is_ok());
    for cut in 5..whole.len() - 4 {
        let actual = decode(&whole[..cut]);
        assert!(
            matches!(actual, Err(Malformed | UnknownKind { .. })),
            "{cut}: {actual:?}"
        );
    }
    let actual = read("sofa.example/v1", "Sofa", &[]).unwrap_err();
    assert!(actual.to_string().contains("send JSON"), "{actual}");
    let actual = read("v1", "ConfigMap", &[number(1, 5)]).unwrap_err();
    assert!(
        actual.to_string().contains("field 1 of core.v1.ConfigMap"),
        "{actual}"
    );
    let actual = read("v1", "ConfigMap", &[bytes(1, bytes(1, [0xff]))]).unwrap_err();
    assert!(actual.to_string().contains("\"name\""), "{actual}");
    // Schemas nested beyond the maximum depth.
    let mut schema_props = Vec::new();
    for _ in 0..2 * DEPTH_MAX {
        schema_props = bytes(28, schema_props);
    }
    let version = bytes(4, bytes(1, schema_props));
    let crd = bytes(2, bytes(7, version));
    let actual = read(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[crd],
    );
    assert_eq!(actual, Err(TooDeep));
}

/// The order of fields means nothing in protobuf, and the last value of a field that is no list counts.
#[test]
fn fields_are_decoded_in_any_order() {
    let parts = [
        entry(2, "b", "1"),
        number(4, 1),
        bytes(
            1,
            [
                bytes(14, "f1"),
                bytes(1, "old"),
                bytes(14, "f2"),
                bytes(1, "a"),
            ]
            .concat(),
        ),
        entry(2, "a", "2"),
        entry(2, "b", "3"),
        bytes(99, "unknown"),
    ];
    let actual = schema().to_json(&body("v1", "ConfigMap", &parts), usize::MAX);
    assert_eq!(
        String::from_utf8(actual.unwrap()).unwrap(),
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","finalizers":["f1","f2"]},"immutable":true,"data":{"a":"2","b":"3"}}"#
    );
}

/// Two bytes of protobuf can be forty of JSON.
#[test]
fn json_has_a_maximum_size() {
    let rules = bytes(2, bytes(1, "")).repeat(10_000);
    let role = body("rbac.authorization.k8s.io/v1", "Role", &[rules]);
    let json = schema().to_json(&role, usize::MAX).unwrap();
    assert!(json.len() > 2 * role.len(), "{} {}", role.len(), json.len());
    assert!(schema().to_json(&role, json.len()).is_ok());
    let error = schema().to_json(&role, json.len() / 2).unwrap_err();
    assert!(error.to_string().contains("more than"), "{error}");
}

/// Returns a CRD whose schema is nested `levels` times in `properties`, each of which is a map in an object, and has `raw`
/// as its default.
fn crd_of_nested_properties(levels: usize, raw: &str) -> Vec<u8> {
    let mut schema_props = bytes(8, bytes(1, raw));
    for _ in 0..levels {
        schema_props = entry(29, "p", schema_props);
    }
    let version = bytes(4, bytes(1, schema_props));
    let spec = bytes(2, bytes(7, version));
    body(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[spec],
    )
}

/// The deepest object with the deepest JSON in it is decoded on the stack of a thread of tokio. The registry refuses what
/// JSON has added beyond the limit.
#[test]
fn deepest_object_is_decoded_on_the_stack_of_a_thread() {
    const LISTS: usize = 126;
    // The object, spec, versions, a version, schema and openAPIV3Schema, and two for each level.
    const PROPERTIES: usize = (127 - 6) / 2;
    let raw = "[".repeat(LISTS) + &"]".repeat(LISTS);
    let decode = move |properties| {
        let types = Types::builtins();
        let kind = KindType::builtin(
            &types,
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
        );
        let (schema, crd) = (schema(), crd_of_nested_properties(properties, &raw));
        let reader = schema.deserializer(&crd).unwrap();
        kind.unwrap().decode(reader, &MemoryBudget::unlimited())
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let thread = thread.spawn(move || {
        let decoded = decode(PROPERTIES).unwrap();
        let schema = &decoded.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let pointer = "/properties/p".repeat(PROPERTIES) + "/default" + &"/0".repeat(LISTS - 1);
        assert_eq!(schema.pointer(&pointer), Some(&json!([])));
        let error = decode(PROPERTIES + 1).unwrap_err().to_string();
        assert_eq!(error, "it nests lists and maps more than 127 levels deep");
    });
    thread.unwrap().join().unwrap();
}

/// Only the last of equal keys is decoded, and only white space of JSON may be around raw JSON.
#[test]
fn overwritten_entries_and_white_space_of_raw_json_are_ignored() {
    let invalid = entry(2, "k", [0xff]);
    let parts = [invalid.clone(), entry(2, "k", "v")];
    assert_eq!(
        read("v1", "ConfigMap", &parts).unwrap()["data"],
        json!({"k": "v"})
    );
    let parts = [entry(2, "k", "v"), invalid];
    assert!(read("v1", "ConfigMap", &parts).is_err());
    let revision = |raw: &str| read("apps/v1", "ControllerRevision", &[bytes(2, bytes(1, raw))]);
    assert_eq!(
        revision(" \t{\"a\": 1}\r\n").unwrap()["data"],
        json!({"a": 1})
    );
    assert_eq!(revision(" null ").unwrap().get("data"), None);
    for bad in ["\u{c}{}", "{}x", "{} {}", "nul"] {
        let error = revision(bad).unwrap_err().to_string();
        assert!(error.contains("\"data\""), "{bad:?}: {error}");
    }
}

/// Types derived with serde can be deserialized, not only untyped values.
#[test]
fn derived_types_are_deserialized() {
    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Name(String);
    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Metadata {
        name: Name,
        namespace: Option<String>,
        uid: Option<String>,
    }
    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(rename_all = "camelCase")]
    struct ConfigMap {
        api_version: String,
        metadata: Metadata,
        immutable: Option<bool>,
    }
    let metadata = [bytes(1, "a"), bytes(3, "ns")].concat();
    let body = body("v1", "ConfigMap", &[bytes(1, metadata), number(4, 1)]);
    let schema = schema();
    let actual = ConfigMap::deserialize(schema.deserializer(&body).unwrap());
    let expect = ConfigMap {
        api_version: "v1".to_owned(),
        metadata: Metadata {
            name: Name("a".to_owned()),
            namespace: Some("ns".to_owned()),
            uid: None,
        },
        immutable: Some(true),
    };
    assert_eq!(actual, Ok(expect));
}

/// The memory of an object is bounded by the number of its values, not only by its size.
#[test]
fn memory_is_bounded_before_an_object_is_deserialized() {
    let memory = |body: &[u8]| schema().decoded_memory(body).object_bytes;
    let empty_rules = bytes(2, bytes(1, "")).repeat(10_000);
    let role = body("rbac.authorization.k8s.io/v1", "Role", &[empty_rules]);
    let text = body("v1", "ConfigMap", &[entry(2, "k", "x".repeat(40_000))]);
    let numbers = bytes(4, vec![1; 10_000]);
    let pod = body("v1", "Pod", &[bytes(2, bytes(14, numbers))]);
    let raw = format!("[{}{{}}]", "{},".repeat(10_000));
    let raw = body("apps/v1", "ControllerRevision", &[bytes(2, bytes(1, raw))]);
    for body in [&role, &text, &pod, &raw] {
        assert_memory_is_bounded(&schema(), body);
    }
    assert!(memory(&role) > 100 * role.len());
    assert!(memory(&text) < 5 * text.len());
    let finalizers = bytes(14, "x".repeat(40_000));
    let finalizers = body("v1", "ConfigMap", &[bytes(1, finalizers)]);
    assert!(memory(&finalizers) < 5 * finalizers.len());
    assert_eq!(memory(&role[..role.len() / 2]), 0, "it is truncated");
}

/// What is counted is what is deserialized: the last value of a map entry, and the JSON in a message without the tags around
/// it, of which a length can be a quotation mark.
#[test]
fn counted_values_are_those_that_are_deserialized() {
    let empty_schemas = bytes(25, "").repeat(10_000);
    let property = [bytes(1, "p"), bytes(2, ""), bytes(2, empty_schemas)].concat();
    let version = bytes(4, bytes(1, bytes(29, property)));
    let group = "apiextensions.k8s.io/v1";
    let crd = body(
        group,
        "CustomResourceDefinition",
        &[bytes(2, bytes(7, version))],
    );
    let maps = format!("[{}{{}}]", "{},".repeat(10_000));
    let unknown_field = [bytes(4, ""), bytes(1, &maps)].concat();
    let unknown_field = body("apps/v1", "ControllerRevision", &[bytes(2, unknown_field)]);
    let text = "x".repeat(0x22 * 128 - 2);
    let length = body(
        "apps/v1",
        "ControllerRevision",
        &[bytes(2, bytes(1, format!("{text:?}")))],
    );
    for body in [&crd, &unknown_field, &length] {
        assert_memory_is_bounded(&schema(), body);
        assert!(schema().decoded_memory(body).object_bytes > body.len());
    }
    let counted = schema().decoded_memory(&crd).working_bytes;
    assert!(counted > 10_000 * 64, "{counted}");
}

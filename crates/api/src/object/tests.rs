//! Tests of [`Object`]: the spliced resourceVersion and the lookup of columns.

use super::*;
use crate::FieldColumn;

fn decode(stored: &str) -> Result<Object, DecodeError> {
    let columns = ColumnSet::new(vec![FieldColumn::new("spec.nodeName")]);
    let key = ObjectKey::from("ns/a");
    Object::decode(
        key,
        ResourceVersion::new(7),
        EventType::Modified,
        stored.as_bytes(),
        &columns,
    )
}

#[test]
fn resource_version_is_spliced_into_the_bytes() {
    let stored = r#"{"kind":"Pod","metadata":{"name":"a","labels":{"b":"2","a":"1"},"uid":"u"},"spec":{"nodeName":"n1"}}"#;
    let object = decode(stored).unwrap();
    let body = r#"{"kind":"Pod","metadata":{"resourceVersion":"7","name":"a","labels":{"b":"2","a":"1"},"uid":"u"},"spec":{"nodeName":"n1"}}"#;
    assert_eq!(object.body(), body);
    let frame = format!("{{\"type\":\"MODIFIED\",\"object\":{body}}}\n");
    assert_eq!(object.json_frame(EventType::Modified), frame);
    let added = format!("{{\"type\":\"ADDED\",\"object\":{body}}}\n");
    assert_eq!(object.json_frame(EventType::Added), added);
    assert_eq!((object.label("a"), object.label("c")), (Some("1"), None));
    assert_eq!(
        (object.uid(), object.field(FieldRef::Column(0))),
        ("u", "n1")
    );
    assert_eq!(
        (
            object.field(FieldRef::Name),
            object.field(FieldRef::Namespace)
        ),
        ("a", "ns")
    );
}

#[test]
fn at_zero_the_body_has_no_resource_version() {
    let columns = ColumnSet::default();
    let stored = br#"{"metadata":{"name":"a"}}"#;
    let object = Object::decode(
        ObjectKey::from("a"),
        ResourceVersion::ZERO,
        EventType::Modified,
        stored,
        &columns,
    );
    assert_eq!(object.unwrap().body(), &stored[..]);
}

#[test]
fn empty_metadata_and_stored_resource_version() {
    assert_eq!(
        decode(r#"{"metadata":{ }}"#).unwrap().body(),
        r#"{"metadata":{"resourceVersion":"7" }}"#
    );
    assert_eq!(
        decode(r#"{"metadata":{"resourceVersion":"3","name":"a"}}"#)
            .unwrap()
            .body(),
        r#"{"metadata":{"resourceVersion":"7","name":"a"}}"#
    );
}

/// kube-apiserver ends the custom resources that it stores with a line break, and other writers of a shared etcd may
/// indent. Clients that read a watch line by line saw half of an event.
#[test]
fn an_event_is_one_line() {
    let body = r#"{"metadata":{"resourceVersion":"7","name":"a"},"data":{"b":"\n"}}"#;
    for stored in [
        "{\"metadata\":{\"name\":\"a\"},\"data\":{\"b\":\"\\n\"}}\n",
        "\r\n{\"metadata\":{\r\n\"name\":\"a\"\n},\n\"data\":{\"b\":\n\"\\n\"}\n}\n\n",
    ] {
        let object = decode(stored).unwrap();
        assert_eq!(object.body(), body, "{stored:?}");
        let frame = format!("{{\"type\":\"MODIFIED\",\"object\":{body}}}\n");
        assert_eq!(object.json_frame(EventType::Modified), frame, "{stored:?}");
    }
}

#[test]
fn null_resource_version_is_replaced() {
    let stored = r#"{"metadata":{"resourceVersion":null,"name":"a"}}"#;
    assert_eq!(
        decode(stored).unwrap().body(),
        r#"{"metadata":{"resourceVersion":"7","name":"a"}}"#,
        "not two members of one name"
    );
}

/// Finds each text before the version, after it, and outside of the body.
#[test]
fn columns_move_with_the_bytes() {
    let columns = ColumnSet::new(vec![
        FieldColumn::new("spec.nodeName"),
        FieldColumn {
            default: "Always".into(),
            ..FieldColumn::new("spec.restartPolicy")
        },
        FieldColumn::new("metadata.generation"),
        FieldColumn::new("status.phase"),
    ]);
    let stored = r#"{ "spec" : {"nodeName":"n1"}, "metadata" : { "uid":"\u0061bc",
        "labels":{"b":"2","esc\"aped":"\n","a":"","b":"3"},"generation":4},
        "status":{"phase":"Ready"} }"#;
    let (key, at) = (ObjectKey::from("ns/a"), ResourceVersion::new(99));
    let object = Object::decode(key, at, EventType::Added, stored.as_bytes(), &columns);
    let object = object.unwrap();
    let frames = [9, 100].map(|at| object.deleted_at(ResourceVersion::new(at)));
    for object in [&object, &*frames[0], &*frames[1]] {
        let field = |index| object.field(FieldRef::Column(index));
        assert_eq!([0, 1, 2, 3].map(field), ["n1", "Always", "4", "Ready"]);
        assert_eq!(object.uid(), "abc");
        let labels = ["a", "b", "esc\"aped", "c"].map(|key| object.label(key));
        assert_eq!(labels, [Some(""), Some("3"), Some("\n"), None]);
        let frame = object.json_frame(object.event_type);
        assert_eq!(
            frame,
            super::frame(frame_head(object.event_type), &object.body())
        );
    }
    let body = |object: &Object| String::from_utf8(object.body().to_vec()).unwrap();
    for (deleted, at) in frames.iter().zip([r#""9""#, r#""100""#]) {
        assert_eq!(body(deleted), body(&object).replace(r#""99""#, at));
        let back = deleted.deleted_at(object.resource_version());
        assert_eq!(body(&back), body(&object));
    }
}

#[test]
fn deletion_keeps_the_body_and_changes_the_version() {
    let object = decode(r#"{"metadata":{"name":"a"}}"#).unwrap();
    let deleted = object.deleted_at(ResourceVersion::new(9));
    assert_eq!(deleted.resource_version(), ResourceVersion::new(9));
    assert_eq!(
        deleted.body(),
        r#"{"metadata":{"resourceVersion":"9","name":"a"}}"#
    );
}

#[test]
fn metadata_slice_is_the_metadata_of_the_body() {
    let stored = [
        r#"{"metadata":{}}"#,
        r#"{"kind":"Pod","metadata": {"name":"a","labels":{"x":"}"}} ,"spec":{"metadata":{}}}"#,
        "{\"metadata\":{\n\"name\":\"a\",\"resourceVersion\":\"3\"}}",
    ];
    for stored in stored {
        let object = decode(stored).unwrap();
        let deleted = object.deleted_at(ResourceVersion::new(123_456));
        for object in [&object, &*deleted] {
            let body: serde_json::Value = serde_json::from_slice(object.body_slice()).unwrap();
            let metadata: serde_json::Value =
                serde_json::from_slice(object.metadata_slice()).unwrap();
            assert_eq!(metadata, body["metadata"], "{stored}");
        }
    }
}

#[test]
fn decode_error_contains_the_key() {
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"metadata":1}"#,
        r#"{"metadata":[]}"#,
        r#"{"metadata":["u",{},null]}"#,
        "[{}]",
        r#" [{"name":"a"}]"#,
        r#"{"metadata":{"labels":[]}}"#,
        r#"{"metadata":{"name":5}}"#,
        r#"{"metadata":{"namespace":["ns"]}}"#,
    ] {
        let error = decode(bad).unwrap_err();
        assert!(error.to_string().contains("ns/a"), "{error}");
    }
}

/// Finds each of many labels and none that is absent.
#[test]
fn lookup_in_many_labels() {
    let label = |n: u32| format!(r#""l{n}":"v{n}""#);
    let labels: Vec<_> = (0..1000).rev().map(|n| label(2 * n)).collect();
    let stored = format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, labels.join(","));
    let object = decode(&stored).unwrap();
    for n in 0..2000 {
        let found = object.label(&format!("l{n}")).map(str::to_owned);
        assert_eq!(found, (n % 2 == 0).then(|| format!("v{n}")), "l{n}");
    }
    assert_eq!((object.label(""), object.label("z")), (None, None));
}

/// Without the feature `float_roundtrip` of serde_json, a number could differ in its last digit each time an object was read and
/// written: an update changed fields that it did not mention. Found by fuzzing.
#[test]
fn numbers_are_the_same_after_they_are_read_and_written() {
    for number in [
        "-1.0877748544854485e+33",
        "0.1",
        "1e-308",
        "1.7976931348623157e+308",
    ] {
        let value: serde_json::Value = serde_json::from_str(number).unwrap();
        assert_eq!(value.to_string(), number);
        let again: serde_json::Value = serde_json::from_str(&value.to_string()).unwrap();
        assert_eq!(again, value, "{number}");
    }
    // The version that another server has stored is removed, for which the object is written again.
    let object =
        decode(r#"{"metadata":{"resourceVersion":"5"},"a":103942910345751627648}"#).unwrap();
    let body: serde_json::Value = serde_json::from_slice(object.body_slice()).unwrap();
    assert_eq!(body["a"].as_f64(), Some(103_942_910_345_751_627_648.0));
}

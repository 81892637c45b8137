//! Tests of published schemas, with the cases of upstream's builder.

use serde::Deserialize as _;

use super::*;
use crate::openapi::SchemaText;

const META: &str = "#/meta";

fn published(input: Value, dialect: Dialect) -> Value {
    let resource = ResourceDescription {
        group: "bar.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "Foo".to_owned(),
        plural: "foos".to_owned(),
        namespaced: true,
        verbs: Vec::new(),
        parts: Vec::new(),
        schema: Some(SchemaText::deserialize(&input).unwrap()),
        selectable: vec!["spec.color".to_owned()],
    };
    let mut schema_of = schema(&resource, &input, dialect, META);
    let kinds = schema_of["x-kubernetes-group-version-kind"].take();
    let expected = json!([{"group": "bar.k8s.io", "kind": "Foo", "version": "v1"}]);
    assert_eq!(kinds, expected);
    let selectable = schema_of["x-kubernetes-selectable-fields"].take();
    assert_eq!(selectable, json!([{"fieldPath": "spec.color"}]));
    for name in ["group-version-kind", "selectable-fields"] {
        let schema_of = schema_of.as_object_mut().unwrap();
        schema_of.remove(&format!("x-kubernetes-{name}"));
    }
    schema_of
}

/// Returns the published schema of a member `x`.
fn member(input: Value, dialect: Dialect) -> Value {
    let schema = json!({"type": "object", "properties": {"x": input}});
    published(schema, dialect)["properties"]["x"].clone()
}

fn check(input: Value, v2: Value, v3: Value) {
    assert_eq!(member(input.clone(), Dialect::V2), v2, "v2 of {input}");
    assert_eq!(member(input.clone(), Dialect::V3), v3, "v3 of {input}");
}

/// Older kubectl rejects each member that is not in the document, so a document of objects with
/// unknown fields has no members.
#[test]
fn root_with_preserved_unknown_fields_has_no_members_in_v2() {
    let input = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"spec": {"type": "object"}}});
    assert_eq!(
        published(input.clone(), Dialect::V2),
        json!({"type": "object"})
    );
    let schema_of = published(input, Dialect::V3);
    assert_eq!(schema_of["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(schema_of["properties"]["spec"], json!({"type": "object"}));
    assert_eq!(schema_of["properties"]["metadata"]["$ref"], META);
    for dialect in [Dialect::V2, Dialect::V3] {
        let schema_of = published(Value::Null, dialect);
        assert_eq!(
            schema_of,
            json!({"type": "object"}),
            "a definition without a schema"
        );
        let schema_of = published(json!({"type": "object"}), dialect);
        let members: Vec<&String> = schema_of["properties"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        assert_eq!(members, ["apiVersion", "kind", "metadata"]);
    }
}

#[test]
fn preserved_unknown_fields_are_untyped_in_v2() {
    let flag = "x-kubernetes-preserve-unknown-fields";
    let object = json!({"type": "object", flag: true, "description": "d",
        "properties": {"a": {"type": "string"}}, "required": ["a"]});
    check(
        object.clone(),
        json!({flag: true, "description": "d", "required": ["a"]}),
        object,
    );
    let array = json!({"type": "array", flag: true, "items": {"type": "string"}});
    check(array.clone(), json!({flag: true}), array);
    let text = json!({"type": "string", flag: true});
    check(text.clone(), text.clone(), text);
}

#[test]
fn nullable_members_are_untyped_and_optional_in_v2() {
    let text = json!({"type": "string", "nullable": true, "maxLength": 3});
    check(text.clone(), json!({"maxLength": 3}), text.clone());
    let object = json!({"type": "object", "nullable": true,
        "properties": {"a": {"type": "string"}}});
    check(object.clone(), json!({}), object);
    let parent = json!({"type": "object", "required": ["a", "b"],
        "properties": {"a": text, "b": {"type": "string"}}});
    let reduced = json!({"type": "object", "required": ["b"],
        "properties": {"a": {"maxLength": 3}, "b": {"type": "string"}}});
    check(parent.clone(), reduced, parent);
    let map = json!({"type": "object", "required": ["a"], "additionalProperties": text});
    let reduced = json!({"type": "object", "additionalProperties": {"maxLength": 3}});
    check(map.clone(), reduced, map);
}

#[test]
fn v2_has_no_combinators() {
    let input = json!({"type": "integer", "allOf": [{"minimum": 1}], "anyOf": [{"minimum": 2}],
        "oneOf": [{"minimum": 3}], "not": {"minimum": 4}, "maximum": 9, "example": 5});
    let mut unreduced = input.clone();
    unreduced.as_object_mut().unwrap().remove("example");
    check(input, json!({"type": "integer", "maximum": 9}), unreduced);
}

#[test]
fn int_or_string_is_any_of_in_v3() {
    let flag = "x-kubernetes-int-or-string";
    let forms = json!([{"type": "integer"}, {"type": "string"}]);
    let plain = json!({flag: true});
    check(
        plain.clone(),
        plain.clone(),
        json!({flag: true, "anyOf": forms}),
    );
    for said in [
        json!({flag: true, "anyOf": forms}),
        json!({flag: true, "allOf": [{"anyOf": forms}, {"minimum": 4}]}),
    ] {
        check(said.clone(), plain.clone(), said);
    }
    check(
        json!({flag: true, "anyOf": [{"minimum": 4}], "allOf": [{"maximum": 9}]}),
        plain,
        json!({flag: true, "anyOf": [{"minimum": 4}], "allOf": [{"anyOf": forms}, {"maximum": 9}]}),
    );
}

#[test]
fn embedded_resource_has_type_and_metadata() {
    let flag = "x-kubernetes-embedded-resource";
    let input = json!({"type": "object", flag: true, "required": ["spec"],
        "properties": {"spec": {"type": "object"}}});
    for dialect in [Dialect::V2, Dialect::V3] {
        let schema_of = member(input.clone(), dialect);
        assert_eq!(schema_of["required"], json!(["spec", "kind", "apiVersion"]));
        assert_eq!(schema_of["properties"]["kind"]["type"], "string");
        assert_eq!(schema_of["properties"]["apiVersion"]["type"], "string");
        assert_eq!(schema_of["properties"]["metadata"]["$ref"], META);
        assert_eq!(schema_of["properties"]["spec"], json!({"type": "object"}));
    }
    // Older kubectl would consider all other members unknown.
    let preserve = "x-kubernetes-preserve-unknown-fields";
    let open = json!({"type": "object", flag: true, preserve: true});
    let schema_of = member(open.clone(), Dialect::V2);
    assert_eq!(schema_of, json!({flag: true, preserve: true}));
    let schema_of = member(open, Dialect::V3);
    assert_eq!(schema_of["required"], json!(["kind", "apiVersion"]));
}

#[test]
fn all_levels_are_published() {
    let int_or_string = json!({"x-kubernetes-int-or-string": true});
    let input = json!({"type": "array", "items": {"type": "object",
        "additionalProperties": {"type": "object", "properties": {"p": int_or_string}}}});
    let schema_of = member(input, Dialect::V3);
    let inner = &schema_of["items"]["additionalProperties"]["properties"]["p"];
    assert_eq!(inner["anyOf"][0]["type"], "integer");
}

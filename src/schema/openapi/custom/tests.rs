//! What is published of a definition's schema, and what is not, case by case as upstream's builder does it.

use std::sync::Arc;

use super::*;

const META: &str = "#/meta";

fn published(given: Value, dialect: Dialect) -> Value {
    let resource = Served {
        group: "bar.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "Foo".to_owned(),
        plural: "foos".to_owned(),
        namespaced: true,
        verbs: Vec::new(),
        parts: Vec::new(),
        schema: Some(Arc::new(given.clone())),
        selectable: vec!["spec.color".to_owned()],
    };
    let mut told = schema(&resource, &given, dialect, META);
    let kinds = told["x-kubernetes-group-version-kind"].take();
    let expected = json!([{"group": "bar.k8s.io", "kind": "Foo", "version": "v1"}]);
    assert_eq!(kinds, expected);
    let selectable = told["x-kubernetes-selectable-fields"].take();
    assert_eq!(selectable, json!([{"fieldPath": "spec.color"}]));
    for name in ["group-version-kind", "selectable-fields"] {
        let told = told.as_object_mut().unwrap();
        told.remove(&format!("x-kubernetes-{name}"));
    }
    told
}

/// What is published of a member `x`.
fn member(given: Value, dialect: Dialect) -> Value {
    let schema = json!({"type": "object", "properties": {"x": given}});
    published(schema, dialect)["properties"]["x"].clone()
}

fn check(given: Value, v2: Value, v3: Value) {
    assert_eq!(member(given.clone(), Dialect::V2), v2, "v2 of {given}");
    assert_eq!(member(given.clone(), Dialect::V3), v3, "v3 of {given}");
}

/// Older kubectl refuses each member that the document does not have, so it must have none when objects may have
/// more.
#[test]
fn a_root_that_preserves_unknown_fields_has_no_members_in_v2() {
    let given = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"spec": {"type": "object"}}});
    assert_eq!(
        published(given.clone(), Dialect::V2),
        json!({"type": "object"})
    );
    let told = published(given, Dialect::V3);
    assert_eq!(told["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(told["properties"]["spec"], json!({"type": "object"}));
    assert_eq!(told["properties"]["metadata"]["$ref"], META);
    for dialect in [Dialect::V2, Dialect::V3] {
        let told = published(Value::Null, dialect);
        assert_eq!(
            told,
            json!({"type": "object"}),
            "a definition without a schema"
        );
        let told = published(json!({"type": "object"}), dialect);
        let members: Vec<&String> = told["properties"].as_object().unwrap().keys().collect();
        assert_eq!(members, ["apiVersion", "kind", "metadata"]);
    }
}

#[test]
fn what_preserves_unknown_fields_is_anything_in_v2() {
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
fn what_can_be_null_is_anything_in_v2_and_never_required() {
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
fn v2_has_no_junctors() {
    let given = json!({"type": "integer", "allOf": [{"minimum": 1}], "anyOf": [{"minimum": 2}],
        "oneOf": [{"minimum": 3}], "not": {"minimum": 4}, "maximum": 9, "example": 5});
    let mut unreduced = given.clone();
    unreduced.as_object_mut().unwrap().remove("example");
    check(given, json!({"type": "integer", "maximum": 9}), unreduced);
}

#[test]
fn an_int_or_string_is_either_in_v3() {
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
fn an_embedded_resource_has_a_type_and_metadata() {
    let flag = "x-kubernetes-embedded-resource";
    let given = json!({"type": "object", flag: true, "required": ["spec"],
        "properties": {"spec": {"type": "object"}}});
    for dialect in [Dialect::V2, Dialect::V3] {
        let told = member(given.clone(), dialect);
        assert_eq!(told["required"], json!(["spec", "kind", "apiVersion"]));
        assert_eq!(told["properties"]["kind"]["type"], "string");
        assert_eq!(told["properties"]["apiVersion"]["type"], "string");
        assert_eq!(told["properties"]["metadata"]["$ref"], META);
        assert_eq!(told["properties"]["spec"], json!({"type": "object"}));
    }
    // To older kubectl all other members would be unknown.
    let preserve = "x-kubernetes-preserve-unknown-fields";
    let open = json!({"type": "object", flag: true, preserve: true});
    let told = member(open.clone(), Dialect::V2);
    assert_eq!(told, json!({flag: true, preserve: true}));
    let told = member(open, Dialect::V3);
    assert_eq!(told["required"], json!(["kind", "apiVersion"]));
}

#[test]
fn every_level_is_published_so() {
    let int_or_string = json!({"x-kubernetes-int-or-string": true});
    let given = json!({"type": "array", "items": {"type": "object",
        "additionalProperties": {"type": "object", "properties": {"p": int_or_string}}}});
    let told = member(given, Dialect::V3);
    let inner = &told["items"]["additionalProperties"]["properties"]["p"];
    assert_eq!(inner["anyOf"][0]["type"], "integer");
}

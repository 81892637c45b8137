//! Apply configurations of mutating admission policies.

use super::*;

fn check(kind: TypeRef<'_>, object: Value, configuration: Value, expect: Result<Value, &str>) {
    match (mutated(&object, &configuration, kind), expect) {
        (Ok(merged), Ok(expect)) => assert_eq!(merged, expect),
        (Err(error), Err(words)) => assert_eq!(error, words),
        (merged, expect) => panic!("{merged:?}, not {expect:?}"),
    }
}

#[test]
fn a_configuration_is_merged_by_the_types_of_a_built_in() {
    let types = schema::Types::builtins();
    let pod = types.root("v1", "Pod").unwrap();
    let deployment = types.root("apps/v1", "Deployment").unwrap();
    let object = json!({
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": "1"}]}]},
    });
    check(
        pod,
        object.clone(),
        json!({
            "metadata": {"labels": {"c": "d"}},
            "spec": {"containers": [
                {"name": "side", "image": "s"},
                {"name": "c", "env": [{"name": "F", "value": "2"}]},
            ]},
        }),
        Ok(json!({
            "metadata": {"name": "p", "labels": {"a": "b", "c": "d"}},
            "spec": {"containers": [
                {"name": "side", "image": "s"},
                {"name": "c", "image": "i", "env": [
                    {"name": "E", "value": "1"}, {"name": "F", "value": "2"},
                ]},
            ]},
        })),
    );
    check(pod, object.clone(), json!({}), Ok(object.clone()));
    let atomic = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: ";
    check(
        pod,
        object.clone(),
        json!({"spec": {"nodeSelector": {"a": "b"}, "containers": [
            {"name": "c", "args": ["x"], "command": ["y"]},
        ]}}),
        Err(&format!(
            "{atomic}.spec.containers[0].args, .spec.containers[0].command, .spec.nodeSelector"
        )),
    );
    check(
        deployment,
        json!({}),
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}}),
        Err(&format!("{atomic}.spec.selector")),
    );
    let typed = "failed to convert patch object to typed object: ";
    check(
        pod,
        object.clone(),
        json!({"spec": {"unknown": 1}}),
        Err(&format!(
            "{typed}.spec.unknown: field not declared in schema"
        )),
    );
    check(
        pod,
        object,
        json!({"spec": {"hostNetwork": "yes", "priority": "high"}}),
        Err(&format!(
            "{typed}errors:\n  .spec.hostNetwork: expected boolean, got \"yes\"\n  .spec.priority: \
             expected numeric (int or float), got \"high\""
        )),
    );
}

#[test]
fn a_configuration_is_merged_by_the_schema_of_a_custom_resource() {
    let builtins = schema::Types::builtins();
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "parts": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {
                    "name": {"type": "string"}, "size": {"type": "integer"},
                }},
            },
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "plain": {"type": "array", "items": {"type": "string"}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    }}});
    let types = schema::Types::from_schema(&schema, &builtins);
    let kind = types.only_root();
    check(
        kind,
        json!({"spec": {"parts": [{"name": "a", "size": 1}], "tags": ["x"], "any": {"a": 1}}}),
        json!({"spec": {"parts": [{"name": "a", "size": 2}, {"name": "b"}], "tags": ["y"],
            "any": {"b": {"c": 1}}}}),
        Ok(
            json!({"spec": {"parts": [{"name": "a", "size": 2}, {"name": "b"}], "tags": ["x", "y"],
            "any": {"a": 1, "b": {"c": 1}}}}),
        ),
    );
    let atomic = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: ";
    check(
        kind,
        json!({}),
        json!({"spec": {"plain": ["x"]}}),
        Err(&format!("{atomic}.spec.plain")),
    );
}

//! Tests of defaulting, pruning and validation.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use watchet_registry::Causes;

pub(super) fn version(properties: Value) -> Schema {
    Compiler::default().version(&json!({"type": "object", "properties": properties}))
}

/// `field: message` of each cause.
pub(super) fn messages(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut causes = Causes::default();
    validate(schema, object, old, &mut causes);
    let causes = causes.into_vec().into_iter();
    causes
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect()
}

fn check_fill(properties: Value, given: Value, expected: Value) {
    let schema = version(json!({"spec": {"type": "object", "properties": properties}}));
    let mut object = json!({"spec": given});
    schema.fill(&mut object);
    assert_eq!(object["spec"], expected, "{properties}");
    let again = object.clone();
    schema.fill(&mut object);
    assert_eq!(object, again, "it is idempotent");
}

#[test]
fn unknown_fields_are_pruned() {
    let known = json!({"a": {"type": "string"}});
    check_fill(known.clone(), json!({"a": "x", "b": 1}), json!({"a": "x"}));
    let open = json!({"o": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"p": {"type": "object", "properties": known.clone()}}}});
    let given = json!({"o": {"q": {"r": 1}, "p": {"a": "x", "b": 1}}});
    check_fill(open, given, json!({"o": {"q": {"r": 1}, "p": {"a": "x"}}}));
    let map = json!({"m": {"type": "object", "additionalProperties":
        {"type": "object", "properties": known.clone()}}});
    let given = json!({"m": {"k": {"a": "x", "b": 1}}});
    check_fill(map, given, json!({"m": {"k": {"a": "x"}}}));
    let list = json!({"l": {"type": "array", "items": {"type": "object", "properties": known}}});
    check_fill(
        list,
        json!({"l": [{"b": 1}, {"a": "x"}]}),
        json!({"l": [{}, {"a": "x"}]}),
    );
    let embedded = json!({"e": {"type": "object", "x-kubernetes-embedded-resource": true}});
    let given = json!({"e": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "x": 1}});
    let kept = json!({"e": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}}});
    check_fill(embedded, given, kept);
}

#[test]
fn pruning_keeps_the_type_and_metadata_of_the_object() {
    let schema = version(json!({}));
    let mut object =
        json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "x": 1});
    schema.fill(&mut object);
    assert_eq!(
        object,
        json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": "a"}})
    );
}

/// A request of some kilobytes took gigabytes of memory.
#[test]
fn size_of_defaults_is_bounded() {
    let item = json!({"type": "object", "properties": {
        "a": {"type": "string", "default": "x".repeat(1_000)},
        "b": {"type": "object", "default": {}, "properties": {
            "c": {"type": "array", "default": [1, 2, 3], "items": {"type": "integer"}}}},
    }});
    let map = json!({"m": {"type": "object", "additionalProperties": item}});
    let schema = version(json!({"spec": {"type": "object", "properties": map}}));
    let of = |count: usize| {
        let items = (0..count).map(|n| (format!("k{n}"), json!({})));
        json!({"spec": {"m": items.collect::<serde_json::Map<_, _>>()}})
    };
    let mut some = of(4_000);
    assert_eq!(schema.fill_all(&mut some), Ok(()));
    assert_eq!(some["spec"]["m"]["k3999"]["b"], json!({"c": [1, 2, 3]}));
    let mut many = of(100_000);
    assert!(schema.fill_all(&mut many).is_err());
    assert!(many.to_string().len() < 8 << 20, "it is not made");
    let mut stored = of(100_000);
    assert!(schema.fill(&mut stored));
    assert!(stored.to_string().len() < 8 << 20);
}

#[test]
fn missing_fields_get_defaults() {
    let n = json!({"type": "integer", "default": 3});
    check_fill(json!({"n": n.clone()}), json!({}), json!({"n": 3}));
    check_fill(json!({"n": n.clone()}), json!({"n": 5}), json!({"n": 5}));
    check_fill(json!({"n": n.clone()}), json!({"n": null}), json!({"n": 3}));
    let nullable = json!({"type": "integer", "default": 3, "nullable": true});
    check_fill(
        json!({"n": nullable}),
        json!({"n": null}),
        json!({"n": null}),
    );
    check_fill(
        json!({"n": {"type": "integer"}}),
        json!({"n": null}),
        json!({}),
    );
    let nested = json!({"o": {"type": "object", "default": {}, "properties": {"n": n.clone()}}});
    check_fill(nested, json!({}), json!({"o": {"n": 3}}));
    let absent = json!({"o": {"type": "object", "properties": {"n": n.clone()}}});
    check_fill(absent, json!({}), json!({}));
    let list = json!({"l": {"type": "array", "items": {"type": "object", "properties": {"n": n}}}});
    check_fill(
        list,
        json!({"l": [{}, {"n": 1}]}),
        json!({"l": [{"n": 3}, {"n": 1}]}),
    );
}

/// Returns the messages for a value of `spec.f`.
fn check(schema: Value, value: Value, expected: &[&str]) {
    let of_version = version(json!({"spec": {"type": "object", "properties": {"f": schema}}}));
    let object = json!({"spec": {"f": value}});
    assert_eq!(
        messages(&of_version, &object, None),
        expected,
        "{schema} {value}"
    );
    assert_eq!(
        messages(&of_version, &object, Some(&object)),
        [""; 0],
        "what stays is not judged"
    );
}

#[test]
fn violations_have_the_messages_of_upstream() {
    let string = json!({"type": "string"});
    check(string.clone(), json!("x"), &[]);
    check(
        string,
        json!(1),
        &[r#"spec.f: Invalid value: "integer": spec.f in body must be of type string: "integer""#],
    );
    let integer = json!({"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2});
    check(integer.clone(), json!(4), &[]);
    check(integer.clone(), json!(4.0), &[]);
    check(
        integer.clone(),
        json!("x"),
        &[r#"spec.f: Invalid value: "string": spec.f in body must be of type integer: "string""#],
    );
    check(
        integer.clone(),
        json!(1.5),
        &[r#"spec.f: Invalid value: "number": spec.f in body must be of type integer: "number""#],
    );
    check(
        integer.clone(),
        json!(0),
        &["spec.f: Invalid value: 0: spec.f in body should be greater than or equal to 1"],
    );
    check(
        integer,
        json!(11),
        &[
            "spec.f: Invalid value: 11: spec.f in body should be less than or equal to 9",
            "spec.f: Invalid value: 11: spec.f in body should be a multiple of 2",
        ],
    );
    let above = json!({"type": "number", "minimum": 0, "exclusiveMinimum": true});
    check(
        above,
        json!(0),
        &["spec.f: Invalid value: 0: spec.f in body should be greater than 0"],
    );
    let short = json!({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a+$"});
    check(short.clone(), json!("aa"), &[]);
    check(
        short.clone(),
        json!("a"),
        &[r#"spec.f: Invalid value: "a": spec.f in body should be at least 2 chars long"#],
    );
    check(
        short,
        json!("aaab"),
        &[
            "spec.f: Too long: may not be more than 3 bytes",
            r#"spec.f: Invalid value: "aaab": spec.f in body should match '^a+$'"#,
        ],
    );
    let choice = json!({"type": "string", "enum": ["a", "b"]});
    check(
        choice,
        json!("c"),
        &[r#"spec.f: Unsupported value: "c": supported values: "a", "b""#],
    );
    let date = json!({"type": "string", "format": "date-time"});
    check(
        date,
        json!("x"),
        &[r#"spec.f: Invalid value: "x": spec.f in body must be of type date-time: "x""#],
    );
    let list = json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}});
    check(
        list.clone(),
        json!([]),
        &["spec.f: Invalid value: 0: spec.f in body should have at least 1 items"],
    );
    check(
        list.clone(),
        json!(["a", "b", "c"]),
        &["spec.f: Too many: 3: must have at most 2 items"],
    );
    check(
        list,
        json!([1]),
        &[
            r#"spec.f[0]: Invalid value: "integer": spec.f[0] in body must be of type string: "integer""#,
        ],
    );
    let object = json!({"type": "object", "required": ["a"], "minProperties": 1,
        "additionalProperties": {"type": "boolean"}});
    check(object.clone(), json!({"a": true}), &[]);
    check(
        object.clone(),
        json!({"b": 1}),
        &[
            "spec.f.a: Required value",
            r#"spec.f.b: Invalid value: "integer": spec.f.b in body must be of type boolean: "integer""#,
        ],
    );
    let either = json!({"x-kubernetes-int-or-string": true});
    check(either.clone(), json!(1), &[]);
    check(either.clone(), json!("1"), &[]);
    // As in the definitions of volume snapshots. A type beside it has no effect.
    let typed = json!({"type": "string", "x-kubernetes-int-or-string": true});
    check(typed, json!(1), &[]);
    check(
        either,
        json!(true),
        &[
            r#"spec.f: Invalid value: "boolean": spec.f in body must be of type integer,string: "boolean""#,
        ],
    );
    check(
        json!({"type": "string", "nullable": true}),
        Value::Null,
        &[],
    );
}

#[test]
fn duplicate_items_of_sets_and_maps_are_rejected() {
    let set =
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    check(
        set,
        json!(["a", "b", "a"]),
        &[r#"spec.f[2]: Duplicate value: "a""#],
    );
    let map = json!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}}}});
    let twice = json!([{"name": "a"}, {"name": "a"}]);
    check(map, twice, &[r#"spec.f[1]: Duplicate value: {"name":"a"}"#]);
}

#[test]
fn combinators_are_validated() {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(any.clone(), json!({"a": 1}), &[]);
    check(
        any,
        json!({}),
        &[
            r#"<nil>: Invalid value: "": "spec.f" must validate at least one schema (anyOf)"#,
            "spec.f.a: Required value",
        ],
    );
    let one = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(
        one.clone(),
        json!({"a": 1, "b": 1}),
        &[
            r#"<nil>: Invalid value: "": "spec.f" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    check(one, json!({"b": 1}), &[]);
    let all = json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 3}]});
    check(
        all,
        json!(5),
        &[
            "spec.f: Invalid value: 5: spec.f in body should be less than or equal to 3",
            r#"<nil>: Invalid value: "": "spec.f" must validate all the schemas (allOf)"#,
        ],
    );
    let not = json!({"type": "integer", "not": {"enum": [3]}});
    check(not.clone(), json!(2), &[]);
    check(
        not,
        json!(3),
        &[r#"<nil>: Invalid value: "": "spec.f" must not validate the schema (not)"#],
    );
}

#[test]
fn unchanged_invalid_fields_are_accepted_on_update() {
    let schema = version(json!({"spec": {"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1}, "b": {"type": "string", "maxLength": 1},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
    }}}));
    let old = json!({"spec": {"a": "long", "b": "x", "l": [{"k": "1", "v": "bad"}]}});
    let new =
        json!({"spec": {"a": "long", "b": "y", "l": [{"k": "0", "v": 1}, {"k": "1", "v": "bad"}]}});
    assert_eq!(messages(&schema, &new, Some(&old)), [""; 0]);
    let worse = json!({"spec": {"a": "longer", "b": "y"}});
    assert_eq!(
        messages(&schema, &worse, Some(&old)),
        ["spec.a: Too long: may not be more than 1 bytes"]
    );
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = (
        prop::sample::select(vec!["string", "integer", "boolean"]),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(kind, nullable, default)| {
            let mut schema = json!({"type": kind, "nullable": nullable});
            if default {
                schema["default"] = match kind {
                    "string" => json!("d"),
                    "integer" => json!(1),
                    _ => json!(true),
                };
            }
            schema
        });
    leaf.prop_recursive(3, 24, 3, |inner| {
        prop_oneof![
            (
                prop::collection::btree_map("[abc]", inner.clone(), 0..4),
                any::<bool>(),
                any::<bool>()
            )
                .prop_map(|(properties, preserve, default)| {
                    let mut schema = json!({"type": "object", "properties": properties});
                    if preserve {
                        schema["x-kubernetes-preserve-unknown-fields"] = true.into();
                    }
                    if default {
                        schema["default"] = json!({});
                    }
                    schema
                }),
            inner
                .clone()
                .prop_map(|items| json!({"type": "array", "items": items})),
            inner.prop_map(|value| json!({"type": "object", "additionalProperties": value})),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_are_idempotent(schema in any_schema(), value in any_value()) {
        let schema = version(json!({"spec": schema}));
        let mut once = json!({"metadata": {"name": "a"}, "spec": value});
        schema.fill(&mut once);
        let mut twice = once.clone();
        schema.fill(&mut twice);
        prop_assert_eq!(&once, &twice);
        prop_assert_eq!(messages(&schema, &once, None), messages(&schema, &twice, None));
    }

    /// An object with defaults has no unknown members, so pruning it again changes nothing.
    #[test]
    fn update_of_a_valid_object_is_valid(schema in any_schema(), value in any_value()) {
        let schema = version(json!({"spec": schema}));
        let mut object = json!({"spec": value});
        schema.fill(&mut object);
        if messages(&schema, &object, None).is_empty() {
            let mut changed = object.clone();
            changed["metadata"] = json!({"labels": {"a": "b"}});
            prop_assert_eq!(messages(&schema, &changed, Some(&object)), Vec::<String>::new());
        }
    }
}

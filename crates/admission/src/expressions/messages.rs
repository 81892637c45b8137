//! The message types of mutations: `Object{...}`, `Object.spec{...}` and `JSONPatch{...}`, and the conversion of
//! their values to an apply configuration or a JSON patch.

use serde_json::{Map as JsonMap, Value, json};

use watchet_cel::ast::{EntryExpr, IdedExpr, StructExpr};
use watchet_cel::{
    Key, Map, MessageTypes, Value as CelValue, is_message_type_key, message_type, output_type,
    to_json, type_name,
};

/// The type of apply configurations; the types of nested messages begin with it and a dot.
const OBJECT: &str = "Object";

/// The type of the operations of a JSON patch.
const JSON_PATCH: &str = "JSONPatch";

/// The fields of `JSONPatch`; all but the last are strings.
const PATCH_FIELDS: [&str; 4] = ["op", "from", "path", "value"];

/// The maximum number of operations of a JSON patch: upstream's limit for the patches of clients.
const OPERATIONS_MAX: usize = 10_000;

/// The type that a mutation evaluates to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MutationType {
    /// `Object`
    ApplyConfiguration,
    /// A list of `JSONPatch`.
    JsonPatch,
}

impl MutationType {
    /// Returns the name of the CEL type.
    pub(super) fn cel_type(self) -> &'static str {
        match self {
            Self::ApplyConfiguration => OBJECT,
            Self::JsonPatch => "list(JSONPatch)",
        }
    }
}

/// The value of a mutation is not of its type. The text is for users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidMutation(String);

/// The message types that mutations may construct.
pub(super) struct MutationTypes;

impl MessageTypes for MutationTypes {
    fn check(&self, message: &StructExpr) -> Result<(), String> {
        let name = &message.type_name;
        let is_patch = name == JSON_PATCH;
        let object = name.strip_prefix(OBJECT);
        if !is_patch && !object.is_some_and(|part| part.is_empty() || part.starts_with('.')) {
            return Err(format!(
                "ERROR: undeclared reference to '{name}' (in container '')"
            ));
        }
        for entry in &message.entries {
            if let EntryExpr::StructField(field) = &entry.expr
                && is_patch
            {
                check_patch_field(&field.field, &field.value)?;
            }
        }
        Ok(())
    }
}

fn check_patch_field(name: &str, value: &IdedExpr) -> Result<(), String> {
    if !PATCH_FIELDS.contains(&name) {
        return Err(format!("ERROR: undefined field '{name}'"));
    }
    match output_type(value) {
        Some(provided) if name != "value" && provided != "string" && provided != "dyn" => {
            Err(format!(
                "ERROR: expected type of field '{name}' is 'string' but provided type is '{provided}'"
            ))
        }
        _ => Ok(()),
    }
}

/// Converts an `Object` to an apply configuration.
///
/// # Errors
/// The value is no `Object`, a nested message has the type of another field, or JSON has no such value.
pub(crate) fn configuration(value: &CelValue) -> Result<Value, InvalidMutation> {
    if message_type(value) != Some(OBJECT) {
        let type_name = type_name_of(value);
        return Err(InvalidMutation(format!(
            "unsupported return type from ApplyConfiguration expression: {type_name}"
        )));
    }
    check_types(value)?;
    to_json(value).map_err(InvalidMutation)
}

/// Converts a list of `JSONPatch` to the operations of a JSON patch.
///
/// # Errors
/// The value is no such list or too long, a nested message has the type of another field, or JSON has no such value.
pub(crate) fn operations(value: &CelValue) -> Result<Vec<Value>, InvalidMutation> {
    let mismatch = || "type mismatch: JSONPatchType.expression should evaluate to array".to_owned();
    let CelValue::List(items) = value else {
        return Err(InvalidMutation(mismatch()));
    };
    if items.len() > OPERATIONS_MAX {
        return Err(InvalidMutation(format!(
            "the allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            items.len()
        )));
    }
    let operation = |item: &CelValue| match item {
        CelValue::Map(map) if message_type(item) == Some(JSON_PATCH) => operation(map),
        other => Err(InvalidMutation(format!(
            "{} of JSONPatch, got element of {}",
            mismatch(),
            type_name_of(other)
        ))),
    };
    items.iter().map(operation).collect()
}

fn operation(map: &Map) -> Result<Value, InvalidMutation> {
    let mut operation = JsonMap::new();
    for name in PATCH_FIELDS {
        let field = map.map.get(&Key::from(name));
        let value = match field {
            Some(CelValue::String(text)) if name != "value" => json!(**text),
            Some(value) if name != "value" => {
                let type_name = type_name_of(value);
                return Err(InvalidMutation(format!(
                    "unexpected type {type_name} for JSONPatchType '{name}' field"
                )));
            }
            Some(value) => {
                if message_type(value).is_some() {
                    check_types(value)?;
                }
                to_json(value).map_err(|why| {
                    InvalidMutation(format!(
                        "JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}"
                    ))
                })?
            }
            // Upstream adds null to a patch without a value.
            None if name == "value" => Value::Null,
            None if name == "from" => continue,
            None => json!(""),
        };
        operation.insert(name.to_owned(), value);
    }
    Ok(Value::Object(operation))
}

fn type_name_of(value: &CelValue) -> String {
    message_type(value).map_or_else(|| type_name(value).to_owned(), str::to_owned)
}

/// Checks that the type name of each nested message is the path of fields from the root, without lists and maps.
fn check_types(message: &CelValue) -> Result<(), InvalidMutation> {
    let mut problems = Vec::new();
    let mut path = message_type(message).unwrap_or_default().to_owned();
    collect_problems(message, &mut path, &mut problems);
    match problems.is_empty() {
        true => Ok(()),
        false => Err(InvalidMutation(format!(
            "type mismatch: {}",
            problems.join("\n")
        ))),
    }
}

/// The maximum number of reported type mismatches.
const PROBLEMS_MAX: usize = 10;

fn collect_problems(value: &CelValue, path: &mut String, problems: &mut Vec<String>) {
    if problems.len() >= PROBLEMS_MAX {
        return;
    }
    match value {
        CelValue::List(items) => {
            for item in items.iter() {
                collect_problems(item, path, problems);
            }
        }
        CelValue::Map(map) => {
            let named = message_type(value);
            if let Some(name) = named.filter(|name| *name != path.as_str()) {
                problems.push(format!(
                    "unexpected type name {name:?}, expected {path:?}, which matches field name path \
                     from root Object type"
                ));
            }
            for (key, item) in map.map.iter().filter(|(key, _)| !is_message_type_key(key)) {
                let length = path.len();
                if let (Some(_), Key::String(field)) = (named, key) {
                    path.push('.');
                    path.push_str(field);
                }
                collect_problems(item, path, problems);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::super::{Names, compile, compile_mutation, new_scope};
    use super::*;
    use watchet_cel::Scope;

    fn scope() -> Scope<'static> {
        let mut scope = new_scope(Instant::now() + Duration::from_secs(60));
        let labels = json!({"a": "b"});
        let object = json!({"metadata": {"name": "n", "labels": labels}, "spec": {"replicas": 3}});
        scope.set("object", &object);
        scope
    }

    fn applied(text: &str) -> Result<Value, String> {
        let kind = MutationType::ApplyConfiguration;
        let program = compile_mutation(text, Names::of(&["object"]), kind)?;
        let value = scope()
            .resolve(&program)
            .map_err(|error| error.to_string())?;
        configuration(&value).map_err(|error| error.to_string())
    }

    fn patched(text: &str) -> Result<Value, String> {
        let kind = MutationType::JsonPatch;
        let program = compile_mutation(text, Names::of(&["object"]), kind)?;
        let value = scope()
            .resolve(&program)
            .map_err(|error| error.to_string())?;
        let operations = operations(&value).map_err(|error| error.to_string())?;
        Ok(Value::from(operations))
    }

    fn check(result: Result<Value, String>, expect: Result<Value, &str>) {
        match (result, expect) {
            (Ok(value), Ok(expect)) => assert_eq!(value, expect),
            (Err(error), Err(expect)) => assert!(error.contains(expect), "{error}"),
            (result, expect) => panic!("{result:?}, not {expect:?}"),
        }
    }

    #[test]
    fn object_converts_to_an_apply_configuration() {
        check(applied("Object{}"), Ok(json!({})));
        check(
            applied("Object{spec: Object.spec{replicas: object.spec.replicas + 1}}"),
            Ok(json!({"spec": {"replicas": 4}})),
        );
        check(
            applied(
                "Object{metadata: Object.metadata{labels: {'x/y': 'z'}, namespace: 'ns'}, \
                 spec: Object.spec{template: Object.spec.template{containers: \
                 [Object.spec.template.containers{name: 'c', args: ['-g'], on: true, share: 0.5}]}}}",
            ),
            Ok(json!({
                "metadata": {"labels": {"x/y": "z"}, "namespace": "ns"},
                "spec": {"template": {"containers": [
                    {"name": "c", "args": ["-g"], "on": true, "share": 0.5},
                ]}},
            })),
        );
        check(
            applied("has(object.spec.none) ? Object{a: 1} : Object{b: Object{c: 2}.c}"),
            Ok(json!({"b": 2})),
        );
        check(
            applied("Object{?a: object.?spec.?none, ?b: object.?spec.replicas}"),
            Ok(json!({"b": 3})),
        );
        check(
            applied("Object{?spec: optional.ofNonZeroValue(Object.spec{?x: object.?none})}"),
            Ok(json!({})),
        );
        check(
            applied(
                "Object{same: Object.a{b: 1} == Object.a{b: 1}, not: Object.a{b: 1} == Object.b{b: 1}}",
            ),
            Ok(json!({"same": true, "not": false})),
        );
    }

    #[test]
    fn values_of_other_types_are_errors() {
        let must = "must evaluate to Object but got";
        for (text, expect) in [
            ("'x'", format!("{must} string")),
            ("object", format!("{must} dyn")),
            ("Object.spec{}", format!("{must} Object.spec")),
            ("{'a': 'b'}", format!("{must} map(string, string)")),
            ("[JSONPatch{op: 'add'}]", format!("{must} list(JSONPatch)")),
            ("Other{}", "undeclared reference to 'Other'".to_owned()),
            ("Objects{}", "undeclared reference to 'Objects'".to_owned()),
            (
                "Object{a: none}",
                "undeclared reference to 'none'".to_owned(),
            ),
            ("Object{", "compilation failed: ERROR".to_owned()),
            (
                "Object{spec: Object.spec{a: Object.spec.wrong{}}}",
                "type mismatch: unexpected type name \"Object.spec.wrong\", expected \
                 \"Object.spec.a\", which matches field name path from root Object type"
                    .to_owned(),
            ),
            (
                "Object{spec: [{'k': Object.wrong{}}]}",
                "expected \"Object.spec\"".to_owned(),
            ),
            (
                "[object][0]",
                "unsupported return type from ApplyConfiguration expression: map".to_owned(),
            ),
            (
                "Object{a: {1: 'x'}}",
                "map key \"1\" is of type int, not string".to_owned(),
            ),
            ("Object{a: quantity('1')}", "to JSON".to_owned()),
        ] {
            check(applied(text), Err(&expect));
        }
        let policies = compile("Object{}.a == 1", &[]).unwrap_err();
        assert!(
            policies
                .to_string()
                .contains("undeclared reference to 'Object'"),
            "only mutations have messages"
        );
    }

    #[test]
    fn list_of_json_patch_converts_to_operations() {
        check(
            patched(
                "[JSONPatch{op: 'test', path: '/spec/replicas', value: 3}, \
                 JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c~d'), \
                 value: 'x'}]",
            ),
            Ok(json!([
                {"op": "test", "path": "/spec/replicas", "value": 3},
                {"op": "add", "path": "/metadata/labels/a.b~1c~0d", "value": "x"},
            ])),
        );
        check(
            patched("[JSONPatch{op: 'move', from: '/a', path: '/b'}]"),
            Ok(json!([{"op": "move", "from": "/a", "path": "/b", "value": null}])),
        );
        check(
            patched("[JSONPatch{op: 'add', path: '/s', value: Object.s{matchLabels: {'a': 'b'}}}]"),
            Ok(json!([{"op": "add", "path": "/s", "value": {"matchLabels": {"a": "b"}}}])),
        );
        check(
            patched("object.metadata.labels.map(k, JSONPatch{op: 'remove', path: k})"),
            Ok(json!([{"op": "remove", "path": "a", "value": null}])),
        );
        check(
            patched("object.spec.replicas > 5 ? [JSONPatch{op: 'remove', path: '/x'}] : []"),
            Ok(json!([])),
        );
        let must = "must evaluate to list(JSONPatch) but got";
        for (text, expect) in [
            ("Object{}", format!("{must} Object")),
            ("JSONPatch{op: 'add'}", format!("{must} JSONPatch")),
            ("['a']", format!("{must} list(string)")),
            (
                "[JSONPatch{op: 1}]",
                "expected type of field 'op' is 'string' but provided type is 'int'".to_owned(),
            ),
            ("[JSONPatch{what: 1}]", "undefined field 'what'".to_owned()),
            (
                "[JSONPatch{op: object.spec.replicas}]",
                "unexpected type int for JSONPatchType 'op' field".to_owned(),
            ),
            (
                "[object.spec.replicas].map(x, x)",
                "should evaluate to array of JSONPatch, got element of int".to_owned(),
            ),
            (
                "[JSONPatch{op: 'add', path: '/a', value: Object.a{b: Object.c{}}}]",
                "type mismatch: unexpected type name \"Object.c\"".to_owned(),
            ),
        ] {
            check(patched(text), Err(&expect));
        }
    }

    /// Applying a patch of a million operations, or one with many copies of the object, would exhaust memory and
    /// occupy a thread.
    #[test]
    fn large_patches_exceed_the_budget() {
        let many = |count: usize| format!("[{}]", vec!["1"; count].join(","));
        let hundred = many(100);
        check(
            patched(&format!(
                "{hundred}.map(a, {hundred}.map(b, {}.map(c, JSONPatch{{op: 'test', path: ''}})))[0][0]",
                many(150)
            )),
            Err("cost budget"),
        );
        let doubled = (0..20).fold("object.metadata".to_owned(), |inner, _| {
            format!("[{inner}].map(x, {{'a': x, 'b': x}})[0]")
        });
        check(
            applied(&format!("Object{{a: {doubled}}}")),
            Err("cost budget"),
        );
    }
}

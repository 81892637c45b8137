//! Messages of mutations: `Object{...}`, `Object.spec{...}` and `JSONPatch{...}`. The evaluator has no
//! messages, so that the compiler makes maps of them: a map has the fields, and one more entry, whose key
//! no JSON object has, with the name of the type.

use kube_cel::cel::common::ast::{
    EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, MapEntryExpr, MapExpr, StructExpr,
};
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use serde_json::{Map as JsonMap, Value, json};

use super::output::output;
use super::{EvalError, values};

/// The type of applied configurations; the types of their parts begin with it and a dot.
const OBJECT: &str = "Object";

/// The type of the operations of a JSON patch.
const JSON_PATCH: &str = "JSONPatch";

/// The members of `JSONPatch`; all but the last are strings.
const PATCH_MEMBERS: [&str; 4] = ["op", "from", "path", "value"];

/// The key of the entry that has the type.
pub(super) const TYPE: Key = Key::Bool(true);

/// How many operations a JSON patch may have; upstream's limit for the patches of clients.
const OPERATIONS_MAX: usize = 10_000;

/// What a mutation evaluates to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admission) enum MutationType {
    /// `Object`
    ApplyConfiguration,
    /// A list of `JSONPatch`.
    JsonPatch,
}

impl MutationType {
    /// The name of the CEL type.
    pub(super) fn cel_type(self) -> &'static str {
        match self {
            Self::ApplyConfiguration => OBJECT,
            Self::JsonPatch => "list(JSONPatch)",
        }
    }
}

/// The map that stands for a message.
///
/// # Errors
/// There is no such type, or a field cannot have this value.
pub(super) fn map_of(message: StructExpr) -> Result<Expr, String> {
    let name = message.type_name;
    let is_patch = name == JSON_PATCH;
    let is_object = name.strip_prefix(OBJECT);
    if !is_patch && !is_object.is_some_and(|part| part.is_empty() || part.starts_with('.')) {
        return Err(format!(
            "ERROR: undeclared reference to '{name}' (in container '')"
        ));
    }
    let literal = |text: &str| Expr::Literal(LiteralValue::String(text.into()));
    let plain = |expr| IdedExpr { id: 0, expr };
    let mut entries = Vec::with_capacity(message.entries.len() + 1);
    for entry in message.entries {
        let EntryExpr::StructField(field) = entry.expr else {
            return Err(format!("ERROR: unsupported field of '{name}'"));
        };
        if is_patch {
            check_patch_member(&field.field, &field.value)?;
        }
        entries.push(MapEntryExpr {
            key: plain(literal(&field.field)),
            value: field.value,
            optional: field.optional,
        });
    }
    entries.push(MapEntryExpr {
        key: plain(Expr::Literal(LiteralValue::Boolean(true.into()))),
        value: plain(literal(&name)),
        optional: false,
    });
    let entries = entries.into_iter().map(|entry| IdedEntryExpr {
        id: 0,
        expr: EntryExpr::MapEntry(entry),
    });
    Ok(Expr::Map(MapExpr {
        entries: entries.collect(),
    }))
}

fn check_patch_member(name: &str, value: &IdedExpr) -> Result<(), String> {
    if !PATCH_MEMBERS.contains(&name) {
        return Err(format!("ERROR: undefined field '{name}'"));
    }
    match output(value) {
        Some(given) if name != "value" && given != "string" && given != "dyn" => Err(format!(
            "ERROR: expected type of field '{name}' is 'string' but provided type is '{given}'"
        )),
        _ => Ok(()),
    }
}

/// Replaces the evaluator's `optional.ofNonZeroValue`, for which a message without fields would not be zero.
pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(
        "optional.ofNonZeroValue",
        |value: CelValue| -> Result<CelValue, ExecutionError> {
            let is_empty = |map: &Map| map.map.keys().all(|key| *key == TYPE);
            let is_zero = match &value {
                CelValue::Map(map) => is_empty(map),
                other => other.is_zero(),
            };
            Ok(CelValue::Opaque(std::sync::Arc::new(match is_zero {
                true => OptionalValue::none(),
                false => OptionalValue::of(value),
            })))
        },
    );
}

/// The type of a message.
fn type_of(value: &CelValue) -> Option<&str> {
    match value {
        CelValue::Map(map) => match map.map.get(&TYPE) {
            Some(CelValue::String(name)) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// The configuration that an `Object` is.
///
/// # Errors
/// It is none, a part of it has the type of another part, or JSON has no such value.
pub(in crate::admission) fn configuration(value: &CelValue) -> Result<Value, EvalError> {
    if type_of(value) != Some(OBJECT) {
        let given = shown_type(value);
        return Err(EvalError(format!(
            "unsupported return type from ApplyConfiguration expression: {given}"
        )));
    }
    check_types(value)?;
    values::to_json(value).map_err(EvalError)
}

/// The operations of a list of `JSONPatch`.
///
/// # Errors
/// It is none or too long, a part of a value has the type of another part, or JSON has no such value.
pub(in crate::admission) fn operations(value: &CelValue) -> Result<Vec<Value>, EvalError> {
    let mismatch = || "type mismatch: JSONPatchType.expression should evaluate to array".to_owned();
    let CelValue::List(items) = value else {
        return Err(EvalError(mismatch()));
    };
    if items.len() > OPERATIONS_MAX {
        return Err(EvalError(format!(
            "the allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            items.len()
        )));
    }
    let operation = |item: &CelValue| match item {
        CelValue::Map(map) if type_of(item) == Some(JSON_PATCH) => operation(map),
        other => Err(EvalError(format!(
            "{} of JSONPatch, got element of {}",
            mismatch(),
            shown_type(other)
        ))),
    };
    items.iter().map(operation).collect()
}

fn operation(map: &Map) -> Result<Value, EvalError> {
    let mut operation = JsonMap::new();
    for name in PATCH_MEMBERS {
        let given = map.map.get(&Key::from(name));
        let value = match given {
            Some(CelValue::String(text)) if name != "value" => json!(**text),
            Some(given) if name != "value" => {
                let given = shown_type(given);
                return Err(EvalError(format!(
                    "unexpected type {given} for JSONPatchType '{name}' field"
                )));
            }
            Some(given) => {
                if type_of(given).is_some() {
                    check_types(given)?;
                }
                values::to_json(given).map_err(|why| {
                    EvalError(format!(
                        "JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}"
                    ))
                })?
            }
            // As upstream's patches, which add null then.
            None if name == "value" => Value::Null,
            None if name == "from" => continue,
            None => json!(""),
        };
        operation.insert(name.to_owned(), value);
    }
    Ok(Value::Object(operation))
}

fn shown_type(value: &CelValue) -> String {
    type_of(value).map_or_else(|| values::type_name(value).to_owned(), str::to_owned)
}

/// Checks that the type of each message below one is named by the path of fields that leads to it. Lists and
/// maps between them do not count.
fn check_types(message: &CelValue) -> Result<(), EvalError> {
    let mut problems = Vec::new();
    let mut path = type_of(message).unwrap_or_default().to_owned();
    collect_problems(message, &mut path, &mut problems);
    match problems.is_empty() {
        true => Ok(()),
        false => Err(EvalError(format!("type mismatch: {}", problems.join("\n")))),
    }
}

/// How many types that do not match are named.
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
            let named = type_of(value);
            if let Some(given) = named.filter(|given| *given != path.as_str()) {
                problems.push(format!(
                    "unexpected type name {given:?}, expected {path:?}, which matches field name path \
                     from root Object type"
                ));
            }
            for (key, item) in map.map.iter().filter(|(key, _)| **key != TYPE) {
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

    use super::super::{Expression, Scope};
    use super::*;

    fn scope() -> Scope<'static> {
        let mut scope = Scope::new(Instant::now() + Duration::from_secs(60));
        let labels = json!({"a": "b"});
        let object = json!({"metadata": {"name": "n", "labels": labels}, "spec": {"replicas": 3}});
        scope.set("object", &object);
        scope
    }

    fn applied(text: &str) -> Result<Value, String> {
        let kind = MutationType::ApplyConfiguration;
        let expression = Expression::compile_mutation(text, &["object"], kind)?;
        let object = scope()
            .resolve(&expression)
            .and_then(|value| configuration(&value));
        object.map_err(|error| error.to_string())
    }

    fn patched(text: &str) -> Result<Value, String> {
        let kind = MutationType::JsonPatch;
        let expression = Expression::compile_mutation(text, &["object"], kind)?;
        let operations = scope()
            .resolve(&expression)
            .and_then(|value| operations(&value));
        operations
            .map(Value::from)
            .map_err(|error| error.to_string())
    }

    fn check(made: Result<Value, String>, expect: Result<Value, &str>) {
        match (made, expect) {
            (Ok(made), Ok(expect)) => assert_eq!(made, expect),
            (Err(error), Err(words)) => assert!(error.contains(words), "{error}"),
            (made, expect) => panic!("{made:?}, not {expect:?}"),
        }
    }

    #[test]
    fn an_object_is_what_its_fields_say() {
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
    fn what_is_no_object_is_refused() {
        let must = "must evaluate to Object but got";
        for (text, words) in [
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
            check(applied(text), Err(&words));
        }
        let policies = Expression::compile("Object{}.a == 1", &[]).unwrap_err();
        assert!(
            policies
                .to_string()
                .contains("undeclared reference to 'Object'"),
            "only mutations have messages"
        );
    }

    #[test]
    fn operations_are_a_json_patch() {
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
        for (text, words) in [
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
            check(patched(text), Err(&words));
        }
    }

    /// A patch of a million operations, or one that holds the object many times over, would take the memory
    /// and the thread of whoever applies it.
    #[test]
    fn large_patches_are_refused() {
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

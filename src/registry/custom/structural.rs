//! Whether a schema is structural, and sane: what upstream asks of an `openAPIV3Schema` before it serves a
//! version by it. What a schema means is told by `schema`.

use serde_json::{Map, Value};

use super::schema::{Schema, compile, compiled, validate};
use crate::api::StatusCause;
use crate::registry::error::Causes;

/// How deeply schemas may nest; no deeper than the objects that they describe.
const DEPTH_MAX: usize = 100;

/// Members that a schema may not have, of all that OpenAPI knows.
const FORBIDDEN: [&str; 11] = [
    "$ref",
    "definitions",
    "dependencies",
    "deprecated",
    "discriminator",
    "id",
    "patternProperties",
    "readOnly",
    "writeOnly",
    "xml",
    "additionalItems",
];

/// Members that only a schema's own tree may have, and its logical parts may not.
const STRUCTURE: [&str; 11] = [
    "type",
    "title",
    "description",
    "default",
    "nullable",
    "additionalProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
];

/// What a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

/// What is wrong with the schema of a version, which is at `path`.
pub(super) fn check(schema: &Value, path: &str, causes: &mut Causes) {
    Check { causes, depth: 0 }.node(schema, path, Level::Root);
}

struct Check<'a> {
    causes: &'a mut Causes,
    depth: usize,
}

fn flag(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn text<'a>(schema: &'a Map<String, Value>, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a member says something: what is null or empty is as good as absent.
fn says(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

impl Check<'_> {
    fn forbid(&mut self, path: &str, why: &str) {
        self.causes.push(StatusCause::forbidden(path, why));
    }

    fn require(&mut self, path: &str, why: &str) {
        self.causes.push(StatusCause::required(path, why));
    }

    fn refuse(&mut self, path: &str, value: &str, why: &str) {
        self.causes.push(StatusCause::invalid(path, value, why));
    }

    fn node(&mut self, schema: &Value, path: &str, level: Level) {
        let Some(members) = schema.as_object() else {
            return self.refuse(path, &schema.to_string(), "must be a schema");
        };
        if self.causes.is_full() {
            return;
        }
        if self.depth == DEPTH_MAX {
            return self.forbid(path, "schemas nest too deeply");
        }
        self.depth += 1;
        self.kind(members, path, level);
        self.members(members, path);
        self.values(members, path);
        self.lists(members, path);
        self.rules(members, path);
        self.default(schema, path);
        self.below(members, path);
        for logical in ["allOf", "anyOf", "oneOf"] {
            let parts = members.get(logical).and_then(Value::as_array);
            for (index, part) in parts.into_iter().flatten().enumerate() {
                self.logical(
                    part,
                    &format!("{path}.{logical}[{index}]"),
                    flag(members, "x-kubernetes-int-or-string"),
                );
            }
        }
        if let Some(not) = members.get("not") {
            self.logical(not, &format!("{path}.not"), false);
        }
        self.depth -= 1;
    }

    fn kind(&mut self, schema: &Map<String, Value>, path: &str, level: Level) {
        let kind = text(schema, "type");
        let path = format!("{path}.type");
        let any = flag(schema, "x-kubernetes-int-or-string")
            || flag(schema, "x-kubernetes-preserve-unknown-fields");
        match (level, kind) {
            (Level::Root, "object") => {}
            (Level::Root, "") => self.require(&path, "must not be empty at the root"),
            (Level::Root, other) => self.refuse(&path, other, "must be object at the root"),
            (_, "") if any => {}
            (Level::Field, "") => {
                self.require(&path, "must not be empty for specified object fields")
            }
            (Level::Item, "") => self.require(&path, "must not be empty for specified array items"),
            (_, kind) if flag(schema, "x-kubernetes-int-or-string") => {
                let _ = kind;
                self.forbid(&path, "must be empty if x-kubernetes-int-or-string is true");
            }
            (_, "object" | "array" | "string" | "integer" | "number" | "boolean") => {}
            (_, other) => {
                let kinds = ["array", "boolean", "integer", "number", "object", "string"];
                let cause = StatusCause::not_supported(&path, other, &kinds);
                self.causes.push(cause);
            }
        }
        if flag(schema, "x-kubernetes-embedded-resource") && kind != "object" {
            self.refuse(
                &path,
                kind,
                "must be object if x-kubernetes-embedded-resource is true",
            );
        }
    }

    fn members(&mut self, schema: &Map<String, Value>, path: &str) {
        for name in FORBIDDEN {
            if schema.get(name).is_some_and(says) {
                self.forbid(
                    &format!("{path}.{name}"),
                    &format!("{name} is not supported"),
                );
            }
        }
        if flag(schema, "uniqueItems") {
            let why =
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbid(&format!("{path}.uniqueItems"), why);
        }
        let at = format!("{path}.additionalProperties");
        match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => {
                self.forbid(&at, "additionalProperties cannot be set to false");
            }
            Some(value) if says(value) && schema.get("properties").is_some_and(says) => {
                self.forbid(
                    &at,
                    "additionalProperties and properties are mutual exclusive",
                );
            }
            _ => {}
        }
    }

    fn values(&mut self, schema: &Map<String, Value>, path: &str) {
        let pattern = text(schema, "pattern");
        if let Err(error) = compiled(pattern) {
            let why = format!("must be a valid regular expression, but isn't: {error}");
            self.refuse(&format!("{path}.pattern"), pattern, &why);
        }
    }

    fn lists(&mut self, schema: &Map<String, Value>, path: &str) {
        let kind = text(schema, "type");
        let list_type = text(schema, "x-kubernetes-list-type");
        let at = format!("{path}.x-kubernetes-list-type");
        if !list_type.is_empty() && kind != "array" {
            let why = "must be array if x-kubernetes-list-type is specified";
            self.refuse(&format!("{path}.type"), kind, why);
        }
        if !["", "atomic", "set", "map"].contains(&list_type) {
            let kinds = ["atomic", "map", "set"];
            self.causes
                .push(StatusCause::not_supported(&at, list_type, &kinds));
        }
        let keys = schema
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array);
        let at = format!("{path}.x-kubernetes-list-map-keys");
        match (list_type, keys.filter(|keys| !keys.is_empty())) {
            ("map", None) => {
                self.require(&at, "must not be empty if x-kubernetes-list-type is map");
            }
            ("map", Some(keys)) => {
                let properties = &schema.get("items").unwrap_or(&Value::Null)["properties"];
                for (index, key) in keys.iter().enumerate() {
                    let name = key.as_str().unwrap_or_default();
                    if properties.get(name).is_none() {
                        let why = "entries must all be names of item properties";
                        self.refuse(&format!("{at}[{index}]"), name, why);
                    }
                }
            }
            (_, Some(_)) => {
                self.forbid(&at, "must be empty if x-kubernetes-list-type is not map");
            }
            (_, None) => {}
        }
        let map_type = text(schema, "x-kubernetes-map-type");
        if !["", "atomic", "granular"].contains(&map_type) {
            let at = format!("{path}.x-kubernetes-map-type");
            let kinds = ["atomic", "granular"];
            self.causes
                .push(StatusCause::not_supported(&at, map_type, &kinds));
        }
        if kind == "array" && !schema.get("items").is_some_and(Value::is_object) {
            self.require(&format!("{path}.items"), "must be specified");
        }
    }

    fn rules(&mut self, schema: &Map<String, Value>, path: &str) {
        let rules = schema
            .get("x-kubernetes-validations")
            .and_then(Value::as_array);
        for (index, rule) in rules.into_iter().flatten().enumerate() {
            let at = format!("{path}.x-kubernetes-validations[{index}]");
            let text = |name: &str| rule[name].as_str().unwrap_or_default().trim().to_owned();
            let (expression, message) = (text("rule"), text("message"));
            if expression.is_empty() {
                self.require(&format!("{at}.rule"), "rule is not specified");
            }
            if message.contains('\n') {
                let why = "message must not contain line breaks";
                self.refuse(&format!("{at}.message"), &message, why);
            }
            let reason = text("reason");
            let reasons = [
                "FieldValueDuplicate",
                "FieldValueForbidden",
                "FieldValueInvalid",
                "FieldValueRequired",
            ];
            if !reason.is_empty() && !reasons.contains(&&*reason) {
                let cause = StatusCause::not_supported(&format!("{at}.reason"), &reason, &reasons);
                self.causes.push(cause);
            }
            for (name, expression) in [
                ("rule", expression),
                ("messageExpression", text("messageExpression")),
            ] {
                self.expression(&expression, &format!("{at}.{name}"));
            }
        }
    }

    fn expression(&mut self, expression: &str, path: &str) {
        if expression.is_empty() {
            return;
        }
        match compile(expression) {
            Err(error) => self.refuse(path, expression, &error.to_string()),
            Ok(program) => {
                let references = program.references();
                let known = ["self", "oldSelf"];
                let mut unknown: Vec<&str> = references.variables();
                unknown.retain(|name| !known.contains(name) && !name.starts_with('@'));
                unknown.sort_unstable();
                for name in unknown {
                    let why = format!(
                        "compilation failed: undeclared reference to '{name}' (in container '')"
                    );
                    self.refuse(path, expression, &why);
                }
            }
        }
    }

    /// A default must be what the schema would accept, and leave as it is.
    fn default(&mut self, schema: &Value, path: &str) {
        let Some(default) = schema.get("default").filter(|default| !default.is_null()) else {
            return;
        };
        let at = format!("{path}.default");
        let own = Schema::read(schema);
        let mut filled = default.clone();
        own.fill(&mut filled);
        let mut pruned = filled.clone();
        own.prune(&mut pruned);
        let mut causes = Causes::default();
        validate(&own, &filled, None, &mut causes);
        for cause in causes.into_vec() {
            let field = match cause.field.as_str() {
                "" | "<nil>" => at.clone(),
                below => format!("{at}.{below}"),
            };
            self.causes.push(StatusCause { field, ..cause });
        }
        let mut unknown = default.clone();
        own.prune(&mut unknown);
        if unknown != *default {
            self.refuse(&at, &default.to_string(), "must not have unknown fields");
        }
    }

    fn below(&mut self, schema: &Map<String, Value>, path: &str) {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            self.node(schema, &format!("{path}.properties[{name}]"), Level::Field);
        }
        if let Some(items @ Value::Object(_)) = schema.get("items") {
            self.node(items, &format!("{path}.items"), Level::Item);
        }
        if let Some(values @ Value::Object(_)) = schema.get("additionalProperties") {
            self.node(
                values,
                &format!("{path}.additionalProperties"),
                Level::Field,
            );
        }
    }

    /// A part of `allOf` and the like may judge values, and may not say what there is.
    fn logical(&mut self, schema: &Value, path: &str, int_or_string: bool) {
        let Some(members) = schema.as_object() else {
            return self.refuse(path, &schema.to_string(), "must be a schema");
        };
        if self.causes.is_full() {
            return;
        }
        if self.depth == DEPTH_MAX {
            return self.forbid(path, "schemas nest too deeply");
        }
        self.depth += 1;
        for name in STRUCTURE {
            // The two types that int-or-string stands for may be spelled out.
            let spelled = int_or_string && name == "type";
            if !spelled && members.get(name).is_some_and(says) {
                self.forbid(&format!("{path}.{name}"), "must be empty to be structural");
            }
        }
        self.values(members, path);
        let properties = members.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            self.logical(schema, &format!("{path}.properties[{name}]"), false);
        }
        if let Some(items @ Value::Object(_)) = members.get("items") {
            self.logical(items, &format!("{path}.items"), false);
        }
        for logical in ["allOf", "anyOf", "oneOf"] {
            let parts = members.get(logical).and_then(Value::as_array);
            for (index, part) in parts.into_iter().flatten().enumerate() {
                self.logical(part, &format!("{path}.{logical}[{index}]"), int_or_string);
            }
        }
        if let Some(not) = members.get("not") {
            self.logical(not, &format!("{path}.not"), false);
        }
        self.depth -= 1;
    }
}

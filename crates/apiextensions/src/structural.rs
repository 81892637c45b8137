//! Validates the `openAPIV3Schema` of a version: checks that the schema is structural, and upstream's other rules. The module
//! `schema` validates, defaults and prunes objects by the schema.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::schema::{Compiler, rule_problems, unknown_names, validate};
use watchet_api::StatusCause;
use watchet_cel::Program;
use watchet_registry::Causes;

/// The maximum nesting depth of schemas, which is less than that of objects.
const DEPTH_MAX: usize = 100;

/// The fields of an OpenAPI schema that a structural schema must not have.
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

/// The fields that the schemas in `allOf`, `anyOf`, `oneOf` and `not` must not have.
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

/// The position of a schema: at the root, in a field or map value, or in the items of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

/// Adds the errors of the schema of a version, which is at `path`, to `causes`. `compiler` compiles the CEL expressions of the
/// definition.
pub(super) fn check(schema: &Value, path: &str, compiler: &mut Compiler, causes: &mut Causes) {
    let mut check = Check {
        compiler: Some(compiler),
        causes,
        depth: 0,
    };
    check.check_schema(schema, path, Level::Root);
}

/// Adds the errors of the structure of a schema to `causes`, without those of patterns, CEL expressions and defaults.
pub(super) fn check_structure(schema: &Value, path: &str, causes: &mut Causes) {
    let mut check = Check {
        compiler: None,
        causes,
        depth: 0,
    };
    check.check_schema(schema, path, Level::Root);
}

struct Check<'a> {
    /// The compiler of CEL expressions; `None` to check only the structure.
    compiler: Option<&'a mut Compiler>,
    causes: &'a mut Causes,
    depth: usize,
}

fn flag(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn text<'a>(schema: &'a Map<String, Value>, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns true if a field with this value counts as set: null, false, empty strings and empty lists do not.
fn is_set(value: &Value) -> bool {
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

    fn check_schema(&mut self, schema: &Value, path: &str, level: Level) {
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
        self.check_type(members, path, level);
        self.check_forbidden_members(members, path);
        self.check_pattern(members, path);
        self.check_list_and_map_types(members, path);
        self.check_rules(schema, path, level);
        self.check_default(schema, path);
        self.check_children(members, path);
        for logical in ["allOf", "anyOf", "oneOf"] {
            let parts = members.get(logical).and_then(Value::as_array);
            for (index, part) in parts.into_iter().flatten().enumerate() {
                self.check_logical(
                    part,
                    &format!("{path}.{logical}[{index}]"),
                    flag(members, "x-kubernetes-int-or-string"),
                );
            }
        }
        if let Some(not) = members.get("not") {
            self.check_logical(not, &format!("{path}.not"), false);
        }
        self.depth -= 1;
    }

    fn check_type(&mut self, schema: &Map<String, Value>, path: &str, level: Level) {
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

    fn check_forbidden_members(&mut self, schema: &Map<String, Value>, path: &str) {
        for name in FORBIDDEN {
            if schema.get(name).is_some_and(is_set) {
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
            Some(value) if is_set(value) && schema.get("properties").is_some_and(is_set) => {
                self.forbid(
                    &at,
                    "additionalProperties and properties are mutual exclusive",
                );
            }
            _ => {}
        }
    }

    fn check_pattern(&mut self, schema: &Map<String, Value>, path: &str) {
        let pattern = text(schema, "pattern");
        let Some(compiler) = self.compiler.as_mut().filter(|_| !pattern.is_empty()) else {
            return;
        };
        if let Err(error) = compiler.pattern(pattern) {
            let why = format!("must be a valid regular expression, but isn't: {error}");
            self.refuse(&format!("{path}.pattern"), pattern, &why);
        }
    }

    fn check_list_and_map_types(&mut self, schema: &Map<String, Value>, path: &str) {
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

    fn check_rules(&mut self, schema: &Value, path: &str, level: Level) {
        let rules = schema["x-kubernetes-validations"].as_array();
        let Some(rules) = rules.filter(|rules| !rules.is_empty()) else {
            return;
        };
        let Some(compiler) = &mut self.compiler else {
            return;
        };
        let of = match level {
            Level::Root => compiler.version(schema),
            Level::Field | Level::Item => compiler.schema(schema),
        };
        for (index, rule) in rules.iter().enumerate() {
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
            let optional = rule["optionalOldSelf"] == true;
            let at_rule = format!("{at}.rule");
            if let Some(program) = self.compile(&expression, &at_rule) {
                for why in rule_problems(program.expression(), &of, optional) {
                    self.refuse(&at_rule, &expression, &why);
                }
            }
            let message = text("messageExpression");
            let at_message = format!("{at}.messageExpression");
            if let Some(program) = self.compile(&message, &at_message) {
                for why in unknown_names(program.expression(), &of, optional) {
                    self.refuse(&at_message, &message, &why);
                }
            }
        }
    }

    /// Compiles an expression; adds the error if it does not compile.
    fn compile(&mut self, expression: &str, path: &str) -> Option<Arc<Program>> {
        if expression.is_empty() {
            return None;
        }
        let compiled = self.compiler.as_mut()?.program(expression);
        compiled
            .inspect_err(|error| self.refuse(path, expression, &error.to_string()))
            .ok()
    }

    /// Checks that the default is valid and has no unknown fields.
    fn check_default(&mut self, schema: &Value, path: &str) {
        let Some(default) = schema.get("default").filter(|default| !default.is_null()) else {
            return;
        };
        let Some(compiler) = &mut self.compiler else {
            return;
        };
        let at = format!("{path}.default");
        let own = compiler.schema(schema);
        let mut filled = default.clone();
        own.fill(&mut filled);
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

    fn check_children(&mut self, schema: &Map<String, Value>, path: &str) {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            self.check_schema(schema, &format!("{path}.properties[{name}]"), Level::Field);
        }
        if let Some(items @ Value::Object(_)) = schema.get("items") {
            self.check_schema(items, &format!("{path}.items"), Level::Item);
        }
        if let Some(values @ Value::Object(_)) = schema.get("additionalProperties") {
            self.check_schema(
                values,
                &format!("{path}.additionalProperties"),
                Level::Field,
            );
        }
    }

    /// Checks a schema in `allOf`, `anyOf`, `oneOf` or `not`, which can restrict values but not declare fields.
    fn check_logical(&mut self, schema: &Value, path: &str, int_or_string: bool) {
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
            // Below `anyOf` and `allOf` of an int-or-string, `type` names the two types.
            let is_allowed = int_or_string && name == "type";
            if !is_allowed && members.get(name).is_some_and(is_set) {
                self.forbid(&format!("{path}.{name}"), "must be empty to be structural");
            }
        }
        self.check_pattern(members, path);
        let properties = members.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            self.check_logical(schema, &format!("{path}.properties[{name}]"), false);
        }
        if let Some(items @ Value::Object(_)) = members.get("items") {
            self.check_logical(items, &format!("{path}.items"), false);
        }
        for logical in ["allOf", "anyOf", "oneOf"] {
            let parts = members.get(logical).and_then(Value::as_array);
            for (index, part) in parts.into_iter().flatten().enumerate() {
                self.check_logical(part, &format!("{path}.{logical}[{index}]"), int_or_string);
            }
        }
        if let Some(not) = members.get("not") {
            self.check_logical(not, &format!("{path}.not"), false);
        }
        self.depth -= 1;
    }
}

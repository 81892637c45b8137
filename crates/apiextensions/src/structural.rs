//! Validation of the `openAPIV3Schema` of a version: that it is structural, and upstream's other rules. `schema`
//! validates and changes objects by the schema.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::schema::{Compiler, rule_problems, unknown_names, validate};
use watchet_api::StatusCause;
use watchet_cel::Program;
use watchet_registry::Causes;

/// The nesting limit of schemas, which is below that of objects.
const DEPTH_MAX: usize = 100;

/// The members of OpenAPI that a schema must not have.
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

/// The members that `allOf` and the other logical parts of a schema must not have.
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

/// The position of a value that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

/// Adds the problems of the schema of a version at `path`. `compiler` is the compiler of the definition's expressions.
pub(super) fn check(schema: &Value, path: &str, compiler: &mut Compiler, causes: &mut Causes) {
    let mut check = Check {
        compiler: Some(compiler),
        causes,
        depth: 0,
    };
    check.node(schema, path, Level::Root);
}

/// Adds only the structural problems.
pub(super) fn check_structure(schema: &Value, path: &str, causes: &mut Causes) {
    let mut check = Check {
        compiler: None,
        causes,
        depth: 0,
    };
    check.node(schema, path, Level::Root);
}

struct Check<'a> {
    /// `None` to check only the structure.
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

/// Returns true if a member is set. Null and empty values count as absent.
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
        self.rules(schema, path, level);
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
            (_, _) if flag(schema, "x-kubernetes-int-or-string") => {
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
        let Some(compiler) = self.compiler.as_mut().filter(|_| !pattern.is_empty()) else {
            return;
        };
        if let Err(error) = compiler.pattern(pattern) {
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

    fn rules(&mut self, schema: &Value, path: &str, level: Level) {
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
            if let Some(program) = self.program(&expression, &at_rule) {
                for why in rule_problems(program.expression(), &of, optional) {
                    self.refuse(&at_rule, &expression, &why);
                }
            }
            let message = text("messageExpression");
            let at_message = format!("{at}.messageExpression");
            if let Some(program) = self.program(&message, &at_message) {
                for why in unknown_names(program.expression(), &of, optional) {
                    self.refuse(&at_message, &message, &why);
                }
            }
        }
    }

    /// Compiles an expression, and adds its problem if it does not compile.
    fn program(&mut self, expression: &str, path: &str) -> Option<Arc<Program>> {
        if expression.is_empty() {
            return None;
        }
        let compiled = self.compiler.as_mut()?.program(expression);
        compiled
            .inspect_err(|error| self.refuse(path, expression, &error.to_string()))
            .ok()
    }

    /// Checks that a default is valid and has no unknown members.
    fn default(&mut self, schema: &Value, path: &str) {
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

    /// Checks a schema in `allOf`, `anyOf`, `oneOf` or `not`, which can restrict values but not declare members.
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
            // The schema may list the two types of int-or-string.
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

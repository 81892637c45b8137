//! Validation of objects by a schema, with upstream's messages. Values that a write does not change are not validated
//! (ratcheting), so that other values of the object can be changed under a stricter schema.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Value, json};

use super::causes::{cause, invalid};
use super::evaluation::Evaluation;
use super::formats;
use super::node::{Kind, ListType, NumberLimit, Schema};
use super::old_items::OldItems;
use watchet_api::StatusCause;
use watchet_registry::Causes;

/// The maximum number of steps of one validation. An object of 3 MiB and a schema without alternatives need a fraction
/// of it.
const STEPS_MAX: u64 = 20_000_000;

/// Validates `object`, which replaces `old`, against `schema`, and adds its problems to `causes`.
pub(crate) fn validate(schema: &Schema, object: &Value, old: Option<&Value>, causes: &mut Causes) {
    let mut found = Causes::default();
    let mut walk = Walk {
        path: String::new(),
        steps: STEPS_MAX,
        blocked: false,
    };
    walk.value(schema, object, old, &mut found);
    let blocked = walk.blocked;
    for cause in found.into_vec() {
        causes.push(cause);
    }
    if !schema.has_rules {
        return;
    }
    if blocked {
        let why = "some validation rules were not checked because the object was invalid; correct \
                   the existing errors to complete validation";
        causes.push(invalid("<nil>", &json!("null"), why));
        return;
    }
    Evaluation::default().walk(schema, object, old, &mut String::new(), causes);
}

/// The state of a validation at one value of the object.
struct Walk {
    /// The path of the present value: `spec.list[0].name`.
    path: String,
    steps: u64,
    /// True if the object has problems that prevent the evaluation of rules.
    blocked: bool,
}

/// Returns the name of a value's type.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl Schema {
    /// Returns the types that the schema allows, unless the value has one of them.
    fn mismatched_type(&self, value: &Value) -> Option<Cow<'static, str>> {
        let whole = |n: &serde_json::Number| n.as_f64().is_some_and(|f| f.fract() == 0.0);
        let is = |kind: Kind| match (kind, value) {
            (Kind::Object, Value::Object(_))
            | (Kind::Array, Value::Array(_))
            | (Kind::String, Value::String(_))
            | (Kind::Boolean, Value::Bool(_))
            | (Kind::Number, Value::Number(_)) => true,
            (Kind::Integer, Value::Number(number)) => !number.is_f64() || whole(number),
            _ => false,
        };
        if value.is_null() && self.nullable {
            return None;
        }
        if self.int_or_string {
            let fits = is(Kind::Integer) || is(Kind::String);
            return (!fits).then_some("integer,string".into());
        }
        self.kind
            .filter(|kind| !is(*kind))
            .map(|kind| kind.name().into())
    }
}

impl Walk {
    fn value(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, causes: &mut Causes) {
        if old == Some(value) || causes.is_full() {
            return;
        }
        self.steps = self.steps.saturating_sub(1);
        if self.steps == 0 {
            self.blocked = true;
            let why = "the object has too many values to be validated against its schema";
            return causes.push(invalid("<nil>", &json!(""), why));
        }
        if let Some(expected) = schema.mismatched_type(value) {
            self.blocked = true;
            let (path, found) = (&self.path, type_of(value));
            let why = format!("{path} in body must be of type {expected}: {found:?}");
            let message = format!("Invalid value: {found:?}: {why}");
            return causes.push(cause("FieldValueTypeInvalid", path, message));
        }
        if value.is_null() && schema.nullable {
            return;
        }
        self.choices(schema, value, causes);
        match value {
            Value::String(text) => self.text(schema, text, causes),
            Value::Number(number) => self.number(schema, number.as_f64(), value, causes),
            Value::Array(items) => self.list(schema, items, old, causes),
            Value::Object(_) => self.object(schema, value, old, causes),
            Value::Null | Value::Bool(_) => {}
        }
        self.alternatives(schema, value, old, causes);
    }

    /// Validates a value below the present one, at the relative path `below`.
    fn below(
        &mut self,
        below: &str,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
        causes: &mut Causes,
    ) {
        let length = self.path.len();
        if length > 0 && !below.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(below);
        self.value(schema, value, old, causes);
        self.path.truncate(length);
    }

    fn child(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    fn add_invalid(&self, value: &Value, why: &str, causes: &mut Causes) {
        let why = format!("{} in body {why}", self.path);
        causes.push(invalid(&self.path, value, &why));
    }

    fn choices(&self, schema: &Schema, value: &Value, causes: &mut Causes) {
        if schema.constraints().choices.is_empty()
            || schema
                .constraints()
                .choices
                .iter()
                .any(|choice| same(choice, value))
        {
            return;
        }
        let quoted = |choice: &Value| match choice {
            Value::String(text) => format!("{text:?}"),
            other => format!("{:?}", other.to_string()),
        };
        let choices: Vec<String> = schema.constraints().choices.iter().map(quoted).collect();
        let choices = choices.join(", ");
        let message = format!("Unsupported value: {value}: supported values: {choices}");
        causes.push(cause("FieldValueNotSupported", &self.path, message));
    }

    fn text(&mut self, schema: &Schema, text: &str, causes: &mut Causes) {
        let value = || Value::from(text);
        if let (min, max) = schema.constraints().lengths.length
            && (min.is_some() || max.is_some())
        {
            let length = text.chars().count() as u64;
            if let Some(max) = max.filter(|max| length > *max) {
                self.blocked = true;
                causes.push(StatusCause::too_long(&self.path, max as usize));
            }
            if let Some(min) = min.filter(|min| length < *min) {
                self.add_invalid(
                    &value(),
                    &format!("should be at least {min} chars long"),
                    causes,
                );
            }
        }
        if let Some(pattern) = &schema.constraints().pattern {
            let matches = pattern
                .regex
                .as_ref()
                .is_some_and(|regex| regex.is_match(text));
            if !matches {
                let why = format!("should match '{}'", pattern.text);
                self.add_invalid(&value(), &why, causes);
            }
        }
        if !schema.format.is_empty() && !schema.int_or_string && !formats::is(&schema.format, text)
        {
            let (path, format) = (&self.path, &schema.format);
            let why = format!("{path} in body must be of type {format}: {text:?}");
            let message = format!("Invalid value: {text:?}: {why}");
            self.blocked = true;
            causes.push(cause("FieldValueTypeInvalid", &self.path, message));
        }
    }

    fn number(&self, schema: &Schema, number: Option<f64>, value: &Value, causes: &mut Causes) {
        let Some(number) = number else { return };
        if let Some(NumberLimit { at, exclusive }) = schema.constraints().minimum
            && (number < at || (exclusive && number <= at))
        {
            let or_equal = if exclusive { "" } else { " or equal to" };
            self.add_invalid(
                value,
                &format!("should be greater than{or_equal} {at}"),
                causes,
            );
        }
        if let Some(NumberLimit { at, exclusive }) = schema.constraints().maximum
            && (number > at || (exclusive && number >= at))
        {
            let or_equal = if exclusive { "" } else { " or equal to" };
            self.add_invalid(
                value,
                &format!("should be less than{or_equal} {at}"),
                causes,
            );
        }
        if let Some(of) = schema.constraints().multiple_of
            && (number / of).fract() != 0.0
        {
            self.add_invalid(value, &format!("should be a multiple of {of}"), causes);
        }
    }

    fn too_many(&mut self, actual: usize, max: u64, causes: &mut Causes) {
        self.blocked = true;
        let message = format!("Too many: {actual}: must have at most {max} items");
        causes.push(cause("FieldValueTooMany", &self.path, message));
    }

    fn list(&mut self, schema: &Schema, items: &[Value], old: Option<&Value>, causes: &mut Causes) {
        let (min, max) = schema.constraints().lengths.items;
        let count = items.len();
        if let Some(max) = max.filter(|max| count as u64 > *max) {
            self.too_many(count, max, causes);
        }
        if let Some(min) = min.filter(|min| (count as u64) < *min) {
            self.add_invalid(
                &json!(count),
                &format!("should have at least {min} items"),
                causes,
            );
        }
        self.duplicates(schema, items, causes);
        let old = old.and_then(Value::as_array);
        let Some(schema_of_items) = &schema.items else {
            return;
        };
        let old_by_key = OldItems::new(schema, old);
        for (index, item) in items.iter().enumerate() {
            if causes.is_full() {
                return;
            }
            let old = old_by_key.find(item);
            self.below(&format!("[{index}]"), schema_of_items, item, old, causes);
        }
    }

    fn duplicates(&mut self, schema: &Schema, items: &[Value], causes: &mut Causes) {
        if schema.constraints().list == ListType::Atomic {
            let mut seen = HashSet::with_capacity(items.len());
            if schema.constraints().unique_items && !items.iter().all(|item| seen.insert(item)) {
                self.add_invalid(
                    &Value::Array(items.to_vec()),
                    "shouldn't contain duplicates",
                    causes,
                );
            }
            return;
        }
        let mut seen = HashSet::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let Some(key) = schema.key(item) else {
                continue;
            };
            if !seen.insert(key.clone()) {
                let field = format!("{}[{index}]", self.path);
                let message = format!("Duplicate value: {key}");
                causes.push(cause("FieldValueDuplicate", &field, message));
            }
        }
    }

    fn object(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, causes: &mut Causes) {
        let Some(members) = value.as_object() else {
            return;
        };
        let (min, max) = schema.constraints().lengths.properties;
        let count = members.len();
        if let Some(max) = max.filter(|max| count as u64 > *max) {
            self.too_many(count, max, causes);
        }
        if let Some(min) = min.filter(|min| (count as u64) < *min) {
            let why = format!("should have at least {min} properties");
            self.add_invalid(value, &why, causes);
        }
        for name in schema
            .constraints()
            .required
            .iter()
            .filter(|name| !members.contains_key(*name))
        {
            self.blocked = true;
            let message = "Required value".to_owned();
            causes.push(cause("FieldValueRequired", &self.child(name), message));
        }
        if schema.embedded && !self.path.is_empty() {
            for name in ["apiVersion", "kind"] {
                if members
                    .get(name)
                    .and_then(Value::as_str)
                    .is_none_or(str::is_empty)
                {
                    causes.push(StatusCause::required(
                        &self.child(name),
                        "must not be empty",
                    ));
                }
            }
        }
        for (name, value) in members {
            if causes.is_full() {
                return;
            }
            if let Some(schema) = schema.member(name) {
                let old = old.and_then(|old| old.get(name));
                self.below(name, schema, value, old, causes);
            }
        }
    }

    fn alternatives(
        &mut self,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
        causes: &mut Causes,
    ) {
        let path = self.path.clone();
        let whole = |what: &str| invalid("<nil>", &json!(""), &format!("{path:?} {what}"));
        let mut unmet = 0;
        let constraints = schema.constraints();
        for part in &constraints.all_of {
            let found = self.attempt(part, value, old);
            unmet += usize::from(!found.is_empty());
            found.into_iter().for_each(|cause| causes.push(cause));
        }
        if unmet > 0 {
            causes.push(whole("must validate all the schemas (allOf)"));
        }
        if !constraints.any_of.is_empty() {
            let (valid, best) = self.best_of(&constraints.any_of, value, old);
            if valid == 0 {
                causes.push(whole("must validate at least one schema (anyOf)"));
                best.into_iter().for_each(|cause| causes.push(cause));
            }
        }
        if !constraints.one_of.is_empty() {
            let (valid, best) = self.best_of(&constraints.one_of, value, old);
            if valid != 1 {
                let found = match valid {
                    0 => "Found none valid".to_owned(),
                    several => format!("Found {several} valid alternatives"),
                };
                let what = "must validate one and only one schema (oneOf)";
                causes.push(whole(&format!("{what}. {found}")));
                best.into_iter().for_each(|cause| causes.push(cause));
            }
        }
        if let Some(not) = &constraints.not
            && self.attempt(not, value, None).is_empty()
        {
            causes.push(whole("must not validate the schema (not)"));
        }
    }

    /// Validates the value against one alternative and returns its problems.
    fn attempt(&mut self, schema: &Schema, value: &Value, old: Option<&Value>) -> Vec<StatusCause> {
        let before = std::mem::take(&mut self.blocked);
        let mut causes = Causes::default();
        self.value(schema, value, old, &mut causes);
        self.blocked = before;
        causes.into_vec()
    }

    /// Returns the number of alternatives that the value matches, and the shortest list of problems if it matches none.
    fn best_of(
        &mut self,
        schemas: &[Schema],
        value: &Value,
        old: Option<&Value>,
    ) -> (usize, Vec<StatusCause>) {
        let mut valid = 0;
        let mut best: Option<Vec<StatusCause>> = None;
        for schema in schemas {
            let found = self.attempt(schema, value, old);
            if found.is_empty() {
                valid += 1;
            } else if best.as_ref().is_none_or(|best| found.len() < best.len()) {
                best = Some(found);
            }
        }
        match valid {
            0 => (0, best.unwrap_or_default()),
            valid => (valid, Vec::new()),
        }
    }
}

/// Returns true if the values are equal as in JSON Schema, which compares numbers by value.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

//! The problems of a configuration, and the checks that webhooks and policies have in common.

use std::collections::HashSet;

use serde_json::Value;

use super::super::expressions::{Names, compile_typed};
use super::super::selector;
use watchet_api::StatusCause;
use watchet_api::names::qualified_name_problems;
use watchet_cel::Program;

/// The maximum number of conditions.
const CONDITIONS_MAX: usize = 64;

/// The maximum size of all expressions of a configuration together, in bytes. A write compiles them, and every change
/// of a configuration of the same kind compiles them again.
const EXPRESSIONS_BYTES_MAX: usize = 256 << 10;

/// The minimum number of bytes that each expression counts as.
const EXPRESSION_BYTES_MIN: usize = 256;

/// The maximum number of problems: one more than are reported, so that the list of causes is known to be truncated.
pub(super) const PROBLEMS_MAX: usize = 101;

#[derive(Debug, Default)]
pub(super) struct Problems {
    causes: Vec<StatusCause>,
    /// The bytes of the expressions so far.
    expression_bytes: usize,
}

impl Problems {
    /// Returns the problems that were found.
    pub(super) fn into_causes(self) -> Vec<StatusCause> {
        self.causes
    }

    pub(super) fn push(&mut self, cause: StatusCause) {
        if self.causes.len() < PROBLEMS_MAX {
            self.causes.push(cause);
        }
    }

    pub(super) fn required(&mut self, field: &str, why: &str) {
        self.push(StatusCause::required(field, why));
    }

    pub(super) fn invalid(&mut self, field: &str, value: &str, why: &str) {
        self.push(StatusCause::invalid(field, value, why));
    }

    /// Adds an invalid value that is not a string, which the message has as JSON.
    pub(super) fn invalid_json(&mut self, field: &str, value: &Value, why: &str) {
        self.push(StatusCause {
            reason: "FieldValueInvalid".to_owned(),
            message: format!("Invalid value: {value}: {why}"),
            field: field.to_owned(),
        });
    }

    pub(super) fn duplicate(&mut self, field: &str, value: &str) {
        self.push(StatusCause {
            reason: "FieldValueDuplicate".to_owned(),
            message: format!("Duplicate value: {value:?}"),
            field: field.to_owned(),
        });
    }

    /// Checks that a value that is set is one of `supported`.
    pub(super) fn one_of(&mut self, field: &str, value: &Value, supported: &[&str]) {
        if let Some(given) = value.as_str().filter(|given| !supported.contains(given)) {
            self.push(StatusCause::not_supported(field, given, supported));
        }
    }

    /// Checks that a list has items.
    pub(super) fn some(&mut self, field: &str, list: &Value) -> bool {
        let has = list.as_array().is_some_and(|list| !list.is_empty());
        if !has {
            self.required(field, "");
        }
        has
    }

    /// Checks that a list has at most `max` items.
    pub(super) fn few(&mut self, field: &str, list: &Value, max: usize) -> bool {
        let count = list.as_array().map_or(0, Vec::len);
        if count > max {
            self.push(StatusCause {
                reason: "FieldValueTooMany".to_owned(),
                message: format!("Too many: {count}: must have at most {max} items"),
                field: field.to_owned(),
            });
        }
        count <= max
    }

    pub(super) fn selector(&mut self, field: &str, written: &Value) {
        if written.is_null() {
            return;
        }
        let read = serde_json::from_value(written.clone()).map_err(|error| error.to_string());
        if let Err(why) = read.and_then(|written| selector::read(Some(&written))) {
            self.invalid(field, &written.to_string(), &why);
        }
    }

    /// Checks that an expression compiles, and that it has one of `types`, if its syntax determines its type and there are
    /// any.
    pub(super) fn expression(
        &mut self,
        field: &str,
        text: &Value,
        names: Names<'_>,
        types: &[&str],
    ) {
        let text = text.as_str().unwrap_or_default();
        if text.trim().is_empty() {
            return self.required(field, "expression is not specified");
        }
        self.compile(field, text, |text| compile_typed(text, names, types));
    }

    /// Checks that `compile` compiles an expression; its error is the message. Returns the type of the expression, if its
    /// syntax determines it; that of one with an error is dynamic.
    pub(super) fn compile(
        &mut self,
        field: &str,
        text: &str,
        compile: impl FnOnce(&str) -> Result<Program, String>,
    ) -> Option<String> {
        let before = self.expression_bytes;
        self.expression_bytes += text.len().max(EXPRESSION_BYTES_MIN);
        if self.expression_bytes > EXPRESSIONS_BYTES_MAX {
            // The problem is reported only once.
            if before <= EXPRESSIONS_BYTES_MAX {
                let why = format!(
                    "the expressions of a configuration may not have more than \
                     {EXPRESSIONS_BYTES_MAX} bytes together"
                );
                self.push(StatusCause::forbidden(field, &why));
            }
            return None;
        }
        match compile(text) {
            Ok(program) => program.output_type().map(str::to_owned),
            Err(why) => {
                self.invalid(field, text, &why);
                Some("dyn".to_owned())
            }
        }
    }

    pub(super) fn conditions(&mut self, field: &str, conditions: &Value, variables: &[&str]) {
        if !self.few(field, conditions, CONDITIONS_MAX) {
            return;
        }
        let all = conditions.as_array().map_or(&[][..], Vec::as_slice);
        let mut names = Vec::new();
        for (index, condition) in all.iter().enumerate() {
            let of_expression = format!("{field}[{index}].expression");
            match condition["expression"].as_str().unwrap_or_default().trim() {
                "" => self.required(&of_expression, ""),
                text => {
                    self.compile(&of_expression, text, |text| {
                        compile_typed(text, Names::of(variables), &["bool"])
                    });
                }
            }
            let field = format!("{field}[{index}].name");
            let name = condition["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                self.required(&field, "");
                continue;
            }
            for problem in qualified_name_problems(name) {
                self.invalid(&field, name, &problem);
            }
            match names.contains(&name) {
                true => self.duplicate(&field, name),
                false => names.push(name),
            }
        }
    }

    /// Checks the fields that the rules of webhooks and of policies have in common.
    pub(super) fn rule(&mut self, field: &str, rule: &Value) {
        const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        for list in ["operations", "apiGroups", "apiVersions", "resources"] {
            let field = format!("{field}.{list}");
            if !self.some(&field, &rule[list]) {
                continue;
            }
            let items: Vec<&str> = strings(&rule[list]).collect();
            if list != "resources" && items.len() > 1 && items.contains(&"*") {
                let what = match list {
                    "operations" => "operations",
                    "apiGroups" => "API groups",
                    _ => "API versions",
                };
                let why = format!("if '*' is present, must not specify other {what}");
                self.invalid_json(&field, &rule[list], &why);
            }
            for (index, item) in items.iter().enumerate() {
                let field = format!("{field}[{index}]");
                match list {
                    "operations" => self.one_of(&field, &Value::from(*item), &OPERATIONS),
                    "apiVersions" | "resources" if item.is_empty() => self.required(&field, ""),
                    _ => {}
                }
            }
        }
        self.resources(&format!("{field}.resources"), &rule["resources"]);
        let scope = format!("{field}.scope");
        self.one_of(&scope, &rule["scope"], &["*", "Cluster", "Namespaced"]);
    }

    /// Checks that no resource of a rule includes another one.
    fn resources(&mut self, field: &str, resources: &Value) {
        let (mut with_any_subresource, mut of_any_resource) = (HashSet::new(), HashSet::new());
        let (mut has_any, mut has_plain) = (false, false);
        for (index, resource) in strings(resources).enumerate() {
            let Some((name, subresource)) = resource.split_once('/') else {
                has_any |= resource == "*";
                has_plain |= !matches!(resource, "" | "*");
                continue;
            };
            let field = format!("{field}[{index}]");
            if with_any_subresource.contains(name) {
                let why = format!("if '{name}/*' is present, must not specify {resource}");
                self.invalid(&field, resource, &why);
            }
            if of_any_resource.contains(subresource) {
                let why = format!("if '*/{subresource}' is present, must not specify {resource}");
                self.invalid(&field, resource, &why);
            }
            if subresource == "*" {
                with_any_subresource.insert(name);
            }
            if name == "*" {
                of_any_resource.insert(subresource);
            }
        }
        if strings(resources).nth(1).is_some() && strings(resources).any(|all| all == "*/*") {
            let why = "if '*/*' is present, must not specify other resources";
            self.invalid_json(field, resources, why);
        }
        if has_any && has_plain {
            let why = "if '*' is present, must not specify other resources without subresources";
            self.invalid_json(field, resources, why);
        }
    }
}

/// Returns the strings in a JSON list.
pub(super) fn strings(list: &Value) -> impl Iterator<Item = &str> {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(Value::as_str)
}

/// Returns the items of a JSON list.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

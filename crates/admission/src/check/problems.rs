//! The problems of a configuration, and the checks that webhooks and policies have in common.

use serde_json::Value;

use super::super::{expressions, selector};
use watchet_api::StatusCause;
use watchet_cel::Program;

/// The maximum number of conditions.
const CONDITIONS_MAX: usize = 64;

/// The maximum size of all expressions of a configuration together, in bytes. A write compiles them, and every change
/// of a configuration of the same kind compiles them again.
const EXPRESSIONS_BYTES_MAX: usize = 256 << 10;

/// The minimum number of bytes that each expression counts as.
const EXPRESSION_BYTES_MIN: usize = 256;

/// The maximum number of reported problems.
pub(super) const PROBLEMS_MAX: usize = 100;

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

    /// Checks that an expression compiles.
    pub(super) fn expression(&mut self, field: &str, text: &Value, variables: &[&str]) {
        let text = text.as_str().unwrap_or_default();
        if text.trim().is_empty() {
            return self.required(field, "expression is not specified");
        }
        self.compile(field, text, |text| {
            let compiled = expressions::compile(text, variables);
            compiled.map_err(|error| format!("compilation failed: {error}"))
        });
    }

    /// Checks that `compile` compiles an expression; its error is the message.
    pub(super) fn compile(
        &mut self,
        field: &str,
        text: &str,
        compile: impl FnOnce(&str) -> Result<Program, String>,
    ) {
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
            return;
        }
        if let Err(why) = compile(text) {
            self.invalid(field, text, &why);
        }
    }

    pub(super) fn conditions(&mut self, field: &str, conditions: &Value, variables: &[&str]) {
        if !self.few(field, conditions, CONDITIONS_MAX) {
            return;
        }
        let all = conditions.as_array().map_or(&[][..], Vec::as_slice);
        let mut names = Vec::new();
        for (index, condition) in all.iter().enumerate() {
            let field = format!("{field}[{index}]");
            let name = condition["name"].as_str().unwrap_or_default();
            match name {
                "" => self.required(&format!("{field}.name"), ""),
                _ if names.contains(&name) => self.duplicate(&format!("{field}.name"), name),
                _ => names.push(name),
            }
            self.expression(
                &format!("{field}.expression"),
                &condition["expression"],
                variables,
            );
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
                self.invalid(&field, &rule[list].to_string(), &why);
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
        let scope = format!("{field}.scope");
        self.one_of(&scope, &rule["scope"], &["*", "Cluster", "Namespaced"]);
    }
}

/// Returns the strings in a JSON list.
pub(super) fn strings(list: &Value) -> impl Iterator<Item = &str> {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(Value::as_str)
}

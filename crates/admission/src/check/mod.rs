//! What is wrong with a configuration of admission itself: the rules beyond its type, in the words of
//! upstream's validation. Whoever stores it asks; nothing here decides on other writes.

mod mutating;
mod policies;
pub mod types;
mod webhooks;

use serde_json::Value;

use super::expressions;
use super::dynamic_admission::ConfigurationKind;
use super::selector;
use watchet_api::StatusCause;
use watchet_cel::Program;

/// How many conditions there may be.
const CONDITIONS_MAX: usize = 64;

/// How many bytes all expressions of a configuration may have together: to compile them takes the time of
/// the write, and again whenever a configuration of the kind changes.
const EXPRESSIONS_BYTES_MAX: usize = 256 << 10;

/// What the shortest expression is counted as.
const EXPRESSION_BYTES_MIN: usize = 256;

/// What is wrong with `object`, which is a configuration of this kind; empty when nothing is.
pub fn problems(kind: ConfigurationKind, object: &Value) -> Vec<StatusCause> {
    let mut problems = Problems::default();
    match kind {
        ConfigurationKind::MutatingPolicy => mutating::check(&mut problems, &object["spec"]),
        ConfigurationKind::MutatingBinding => {
            mutating::check_binding(&mut problems, &object["spec"]);
        }
        ConfigurationKind::Mutating => webhooks::check(&mut problems, object, true),
        ConfigurationKind::Validating => webhooks::check(&mut problems, object, false),
        ConfigurationKind::Policy => policies::check(&mut problems, &object["spec"]),
        ConfigurationKind::Binding => policies::check_binding(&mut problems, &object["spec"]),
    }
    problems.told
}

/// What is wrong with `client`, a `clientConfig` at `field`; the same in every API that has one.
pub fn client_problems(field: &str, client: &Value) -> Vec<StatusCause> {
    let mut problems = Problems::default();
    webhooks::check_client(&mut problems, field, client);
    problems.told
}

/// How many problems are told.
const PROBLEMS_MAX: usize = 100;

#[derive(Debug, Default)]
struct Problems {
    told: Vec<StatusCause>,
    /// Of the expressions so far.
    expression_bytes: usize,
}

impl Problems {
    fn push(&mut self, cause: StatusCause) {
        if self.told.len() < PROBLEMS_MAX {
            self.told.push(cause);
        }
    }

    fn required(&mut self, field: &str, why: &str) {
        self.push(StatusCause::required(field, why));
    }

    fn invalid(&mut self, field: &str, value: &str, why: &str) {
        self.push(StatusCause::invalid(field, value, why));
    }

    fn duplicate(&mut self, field: &str, value: &str) {
        self.push(StatusCause {
            reason: "FieldValueDuplicate".to_owned(),
            message: format!("Duplicate value: {value:?}"),
            field: field.to_owned(),
        });
    }

    /// A value that is given is one of a few.
    fn one_of(&mut self, field: &str, value: &Value, supported: &[&str]) {
        if let Some(given) = value.as_str().filter(|given| !supported.contains(given)) {
            self.push(StatusCause::not_supported(field, given, supported));
        }
    }

    /// A list has items.
    fn some(&mut self, field: &str, list: &Value) -> bool {
        let has = list.as_array().is_some_and(|list| !list.is_empty());
        if !has {
            self.required(field, "");
        }
        has
    }

    /// A list has no more than so many.
    fn few(&mut self, field: &str, list: &Value, max: usize) -> bool {
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

    fn selector(&mut self, field: &str, written: &Value) {
        if written.is_null() {
            return;
        }
        let read = serde_json::from_value(written.clone()).map_err(|error| error.to_string());
        if let Err(why) = read.and_then(|written| selector::read(Some(&written))) {
            self.invalid(field, &written.to_string(), &why);
        }
    }

    /// An expression that compiles.
    fn expression(&mut self, field: &str, text: &Value, variables: &[&str]) {
        let text = text.as_str().unwrap_or_default();
        if text.trim().is_empty() {
            return self.required(field, "expression is not specified");
        }
        self.compile(field, text, |text| {
            let compiled = expressions::compile(text, variables);
            compiled.map_err(|error| format!("compilation failed: {error}"))
        });
    }

    /// An expression that `compile` compiles, or says why not.
    fn compile(
        &mut self,
        field: &str,
        text: &str,
        compile: impl FnOnce(&str) -> Result<Program, String>,
    ) {
        let before = self.expression_bytes;
        self.expression_bytes += text.len().max(EXPRESSION_BYTES_MIN);
        if self.expression_bytes > EXPRESSIONS_BYTES_MAX {
            // It is told once.
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

    fn conditions(&mut self, field: &str, conditions: &Value, variables: &[&str]) {
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

    /// The members that the rules of webhooks and of policies share.
    fn rule(&mut self, field: &str, rule: &Value) {
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

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;

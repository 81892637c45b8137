//! `MatchConditions`: expressions in CEL that decide whether a webhook is called for a request.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use watchet_cel::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use watchet_cel::{Environment, Outcome, Program, Scope, Syntax};

/// The variable with the `spec` of a review.
const REQUEST: &str = "request";

/// The time limit of all conditions for one request.
const EVALUATIONS_MAX: Duration = Duration::from_secs(1);

/// Conditions that a request must meet. Every request meets an empty list.
#[derive(Debug, Clone, Default)]
pub struct MatchConditions(Vec<Program>);

impl MatchConditions {
    /// Compiles a condition and adds it.
    ///
    /// # Errors
    /// The expression is invalid, reads a field that requests do not have, or does not return a bool.
    pub(crate) fn add(&mut self, expression: &str) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("compilation failed: {error}");
        let environment = Environment {
            variables: &[REQUEST],
            ..Environment::default()
        };
        let program = Program::compile(expression, &environment).map_err(|error| failed(&error))?;
        let parsed =
            watchet_cel::parse(expression, &Syntax::default()).map_err(|error| failed(&error))?;
        check_fields(&parsed).map_err(|error| failed(&error))?;
        let output = match type_of(&parsed) {
            Some(of_field) => Some(of_field.name),
            None => program.output_type(),
        };
        match output {
            None | Some("bool" | "dyn") => self.0.push(program),
            Some(other) => return Err(format!("must evaluate to bool but got {other}")),
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if `request` meets all conditions, and false if it does not meet one, even if others cannot be
    /// evaluated.
    ///
    /// # Errors
    /// A condition cannot be evaluated, and the request meets all others.
    pub(crate) fn evaluate(&self, request: &Value) -> Result<bool, String> {
        let mut scope = Scope::counted(Instant::now() + EVALUATIONS_MAX);
        scope.set(REQUEST, request);
        let mut errors = Vec::new();
        for program in &self.0 {
            let text = program.text();
            match scope.inner().evaluate(program) {
                Ok(Outcome::Bool(true)) => {}
                Ok(Outcome::Bool(false)) => return Ok(false),
                Ok(_) => errors.push(format!(
                    "cel evaluation error: expression '{text}' eval result type should be bool"
                )),
                Err(error) => errors.push(format!(
                    "cel evaluation error: expression '{text}' resulted in error: {error}"
                )),
            }
        }
        match errors.len() {
            0 => Ok(true),
            1 => Err(errors.remove(0)),
            _ => Err(format!("[{}]", errors.join(", "))),
        }
    }
}

/// The type of a field.
#[derive(Debug, PartialEq, Eq)]
struct Type {
    /// The name in CEL.
    name: &'static str,
    /// The fields of an object; empty for other types.
    fields: &'static [(&'static str, &'static Type)],
}

const fn plain(name: &'static str) -> Type {
    Type { name, fields: &[] }
}

static STRING: Type = plain("string");
static STRINGS: Type = plain("list(string)");
static EXTRA: Type = plain("map(string, list(string))");
static REQUIREMENTS: Type = plain("list(kubernetes.SelectorRequirement)");
static FIELD_SELECTOR: Type = Type {
    name: "kubernetes.FieldSelectorAttributes",
    fields: &[("rawSelector", &STRING), ("requirements", &REQUIREMENTS)],
};
static LABEL_SELECTOR: Type = Type {
    name: "kubernetes.LabelSelectorAttributes",
    fields: &[("rawSelector", &STRING), ("requirements", &REQUIREMENTS)],
};
static RESOURCE_ATTRIBUTES: Type = Type {
    name: "kubernetes.ResourceAttributes",
    fields: &[
        ("namespace", &STRING),
        ("verb", &STRING),
        ("group", &STRING),
        ("version", &STRING),
        ("resource", &STRING),
        ("subresource", &STRING),
        ("name", &STRING),
        ("fieldSelector", &FIELD_SELECTOR),
        ("labelSelector", &LABEL_SELECTOR),
    ],
};
static NON_RESOURCE_ATTRIBUTES: Type = Type {
    name: "kubernetes.NonResourceAttributes",
    fields: &[("path", &STRING), ("verb", &STRING)],
};
static SPEC: Type = Type {
    name: "kubernetes.SubjectAccessReviewSpec",
    fields: &[
        ("resourceAttributes", &RESOURCE_ATTRIBUTES),
        ("nonResourceAttributes", &NON_RESOURCE_ATTRIBUTES),
        ("user", &STRING),
        ("groups", &STRINGS),
        ("extra", &EXTRA),
        ("uid", &STRING),
    ],
};

/// Returns the type of `request` or a field of it.
fn type_of(expression: &IdedExpr) -> Option<&'static Type> {
    match &expression.expr {
        Expr::Ident(name) if name == REQUEST => Some(&SPEC),
        Expr::Select(select) if !select.test => field_of(type_of(&select.operand)?, &select.field),
        _ => None,
    }
}

fn field_of(object: &'static Type, name: &str) -> Option<&'static Type> {
    let named = |(field, _): &&(&str, &'static Type)| *field == name;
    object
        .fields
        .iter()
        .find(named)
        .map(|(_, of_field)| *of_field)
}

/// Checks that each field that is selected from `request` exists.
fn check_fields(expression: &IdedExpr) -> Result<(), String> {
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Ok(()),
        Expr::Select(select) => {
            check_selection(&select.operand, &select.field)?;
            check_fields(&select.operand)
        }
        Expr::Call(call) => {
            if let [operand, field] = call.args.as_slice()
                && call.func_name == operators::OPT_SELECT
                && let Expr::Literal(LiteralValue::String(field)) = &field.expr
            {
                check_selection(operand, field.inner())?;
            }
            call.target.as_deref().map_or(Ok(()), check_fields)?;
            call.args.iter().try_for_each(check_fields)
        }
        Expr::List(list) => list.elements.iter().try_for_each(check_fields),
        Expr::Map(map) => map.entries.iter().try_for_each(|e| check_entry(&e.expr)),
        Expr::Struct(message) => message
            .entries
            .iter()
            .try_for_each(|e| check_entry(&e.expr)),
        Expr::Comprehension(comprehension) => {
            let parts = [
                &comprehension.iter_range,
                &comprehension.accu_init,
                &comprehension.loop_cond,
                &comprehension.loop_step,
                &comprehension.result,
            ];
            parts.into_iter().try_for_each(check_fields)
        }
    }
}

fn check_entry(entry: &EntryExpr) -> Result<(), String> {
    match entry {
        EntryExpr::StructField(field) => check_fields(&field.value),
        EntryExpr::MapEntry(entry) => {
            check_fields(&entry.key)?;
            check_fields(&entry.value)
        }
    }
}

fn check_selection(operand: &IdedExpr, field: &str) -> Result<(), String> {
    match type_of(operand) {
        // Only maps have fields of any name.
        Some(of_operand) if *of_operand != EXTRA && field_of(of_operand, field).is_none() => {
            Err(match of_operand.fields.is_empty() {
                true => format!(
                    "type '{}' does not support field selection",
                    of_operand.name
                ),
                false => format!("undefined field '{field}'"),
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compile(text: &str) -> Result<MatchConditions, String> {
        let mut conditions = MatchConditions::default();
        conditions.add(text).map(|()| conditions)
    }

    #[test]
    fn expressions_over_fields_of_requests_that_return_a_bool_are_valid() {
        for valid in [
            "request.user == 'bob'",
            "has(request.resourceAttributes) && request.resourceAttributes.namespace == 'a'",
            "request.?nonResourceAttributes.path.orValue('') == '/healthz'",
            "'dev' in request.groups",
            "request.extra.scope.exists(s, s == 'a')",
            "request.extra['example.com/scope'] == ['a']",
            "request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'foo' && r.operator == 'In' && ('bar' in r.values))",
            "request.resourceAttributes.labelSelector.rawSelector == 'foo'",
            "!('system:serviceaccounts:kube-system' in request.groups)",
        ] {
            assert!(compile(valid).is_ok(), "{valid}: {:?}", compile(valid));
        }
        for (invalid, expected) in [
            ("request.time == 'now'", "undefined field 'time'"),
            (
                "[1].exists(i, request.resourceAttributes.verbs == i)",
                "undefined field 'verbs'",
            ),
            ("has(request.usr)", "undefined field 'usr'"),
            ("request.?usr.orValue('') == ''", "undefined field 'usr'"),
            (
                "request.user.name == 'a'",
                "type 'string' does not support field selection",
            ),
            ("request.user", "must evaluate to bool but got string"),
            (
                "request.groups",
                "must evaluate to bool but got list(string)",
            ),
            ("'a'", "must evaluate to bool but got string"),
            ("x.user", "undeclared reference"),
            ("request++'", "compilation failed: "),
        ] {
            let error = compile(invalid).unwrap_err();
            assert!(error.contains(expected), "{invalid}: {error}");
        }
    }

    #[test]
    fn a_condition_that_is_not_met_decides_before_errors() {
        let request = json!({"user": "jane", "groups": ["a"], "uid": "", "extra": {}});
        let evaluate = |texts: &[&str]| {
            let mut conditions = MatchConditions::default();
            for text in texts {
                conditions.add(text).unwrap();
            }
            conditions.evaluate(&request)
        };
        let (holds, fails) = ("request.user == 'jane'", "request.user == 'joe'");
        let broken = "request.resourceAttributes.verb == 'get'";
        assert_eq!(evaluate(&[]), Ok(true));
        assert_eq!(evaluate(&[holds, "'a' in request.groups"]), Ok(true));
        assert_eq!(evaluate(&[holds, fails]), Ok(false));
        assert_eq!(evaluate(&[broken, fails]), Ok(false));
        let error = evaluate(&[broken, holds]).unwrap_err();
        let expected = format!("cel evaluation error: expression '{broken}' resulted in error: ");
        assert!(error.starts_with(&expected), "{error}");
        let other = "request.nonResourceAttributes.verb == 'get'";
        assert!(evaluate(&[broken, other]).unwrap_err().starts_with('['));
    }
}

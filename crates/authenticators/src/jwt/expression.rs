//! Expressions in CEL over the claims of a token or over its user.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use watchet_cel::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use watchet_cel::{Environment, Outcome, Program, Scope, Syntax};

/// The time limit of all expressions for one token.
const EVALUATIONS_MAX: Duration = Duration::from_secs(1);

/// The variable with the claims.
const CLAIMS: &str = "claims";
/// The variable with the user.
const USER: &str = "user";

/// A compiled expression.
#[derive(Debug, Clone)]
pub(crate) struct Expression {
    program: Program,
    /// The expression as configured; the compiled program contains additional calls.
    parsed: IdedExpr,
}

/// An expression that must be true.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    expression: Expression,
    /// The error message if it is false.
    message: String,
}

impl Expression {
    /// Compiles an expression over claims that returns a string or strings.
    pub(crate) fn claims_mapping(text: &str) -> Result<Self, String> {
        Self::compile(text, CLAIMS)
    }

    /// Compiles an expression over claims that returns a bool.
    pub(crate) fn claims_rule(text: &str) -> Result<Self, String> {
        Self::compile(text, CLAIMS)?.returning_bool()
    }

    /// Compiles an expression over the user that returns a bool.
    pub(crate) fn user_rule(text: &str) -> Result<Self, String> {
        Self::compile(text, USER)?.returning_bool()
    }

    fn compile(text: &str, variable: &str) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("compilation failed: {error}");
        let environment = Environment {
            variables: &[variable],
            ..Environment::default()
        };
        let program = Program::compile(text, &environment).map_err(|error| failed(&error))?;
        let parsed =
            watchet_cel::parse(text, &Syntax::default()).map_err(|error| failed(&error))?;
        Ok(Self { program, parsed })
    }

    fn returning_bool(self) -> Result<Self, String> {
        match self.program.output_type() {
            None | Some("bool" | "dyn") => Ok(self),
            Some(_) => Err("must evaluate to bool".to_owned()),
        }
    }

    /// Returns true if the expression selects `claims.NAME`.
    pub(crate) fn uses_claim(&self, name: &str) -> bool {
        selects(&self.parsed, name)
    }

    /// Evaluates the expression to a string.
    pub(super) fn string(&self, scope: &Scope<'_>) -> Result<String, String> {
        match self.value(scope)? {
            Value::String(text) => Ok(text),
            _ => Err("expression must return a string".to_owned()),
        }
    }

    /// Evaluates the expression to a list of strings. The expression may also return a string, or null; an empty string
    /// and null are an empty list.
    pub(super) fn strings(&self, scope: &Scope<'_>) -> Result<Vec<String>, String> {
        let wrong = || "expression must return a string or a list of strings".to_owned();
        match self.value(scope)? {
            Value::Null => Ok(Vec::new()),
            Value::String(text) if text.is_empty() => Ok(Vec::new()),
            Value::String(text) => Ok(vec![text]),
            Value::Array(items) => {
                let text = |item: Value| match item {
                    Value::String(text) => Ok(text),
                    _ => Err(wrong()),
                };
                items.into_iter().map(text).collect()
            }
            _ => Err(wrong()),
        }
    }

    fn value(&self, scope: &Scope<'_>) -> Result<Value, String> {
        let value = scope.inner().resolve(&self.program);
        let value = value.map_err(|error| error.to_string())?;
        watchet_cel::to_json(&value)
    }
}

impl Rule {
    pub(crate) fn new(expression: Expression, message: &str) -> Self {
        Self {
            expression,
            message: message.to_owned(),
        }
    }

    pub(crate) fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Checks that the expression is true.
    ///
    /// # Errors
    /// The message of the rule, or why the expression cannot be evaluated.
    pub(super) fn check(&self, scope: &Scope<'_>) -> Result<(), String> {
        let program = &self.expression.program;
        match scope.inner().evaluate(program) {
            Ok(Outcome::Bool(true)) => Ok(()),
            Ok(Outcome::Bool(false)) if self.message.is_empty() => {
                Err(format!("validation expression '{}' failed", program.text()))
            }
            Ok(Outcome::Bool(false)) => Err(format!(
                "validation expression '{}' failed: {}",
                program.text(),
                self.message
            )),
            Ok(_) => Err("validation expression must return a boolean".to_owned()),
            Err(error) => Err(format!("expression '{}': {error}", program.text())),
        }
    }
}

/// Returns a scope with the claims of a token.
pub(super) fn claims_scope(claims: &Value) -> Scope<'static> {
    scope(CLAIMS, claims)
}

/// Returns a scope with the user of a token.
pub(super) fn user_scope(user: &Value) -> Scope<'static> {
    scope(USER, user)
}

fn scope(variable: &str, value: &Value) -> Scope<'static> {
    let mut scope = Scope::counted(Instant::now() + EVALUATIONS_MAX);
    scope.set(variable, value);
    scope
}

fn is_claims(expression: &IdedExpr) -> bool {
    matches!(&expression.expr, Expr::Ident(name) if name == CLAIMS)
}

/// Returns true if the expression has `claims.name` or `claims.?name`.
fn selects(expression: &IdedExpr, name: &str) -> bool {
    let within = |inner: &IdedExpr| selects(inner, name);
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => false,
        Expr::Select(select) => {
            is_claims(&select.operand) && select.field == name || within(&select.operand)
        }
        Expr::Call(call) => {
            let is_optional = match call.args.as_slice() {
                [operand, field] if call.func_name == operators::OPT_SELECT => {
                    let is_name = matches!(&field.expr, Expr::Literal(LiteralValue::String(text)) if text.inner() == name);
                    is_claims(operand) && is_name
                }
                _ => false,
            };
            is_optional
                || call.args.iter().any(within)
                || call.target.as_deref().is_some_and(within)
        }
        Expr::List(list) => list.elements.iter().any(within),
        Expr::Map(map) => map.entries.iter().any(|entry| in_entry(&entry.expr, name)),
        Expr::Struct(message) => message
            .entries
            .iter()
            .any(|entry| in_entry(&entry.expr, name)),
        Expr::Comprehension(comprehension) => {
            let parts = [
                &comprehension.iter_range,
                &comprehension.accu_init,
                &comprehension.loop_cond,
                &comprehension.loop_step,
                &comprehension.result,
            ];
            parts.into_iter().any(within)
        }
    }
}

fn in_entry(entry: &EntryExpr, name: &str) -> bool {
    match entry {
        EntryExpr::StructField(field) => selects(&field.value, name),
        EntryExpr::MapEntry(entry) => selects(&entry.key, name) || selects(&entry.value, name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selected_claims_are_found() {
        for (text, expected) in [
            ("claims.email", true),
            ("has(claims.email)", true),
            ("claims.?email.orValue('')", true),
            ("[claims.a].exists(x, x == claims.email)", true),
            ("{'a': claims.email}.a", true),
            ("claims.email_verified ? 'a' : 'b'", false),
            ("claims.other.email", false),
            ("'claims.email'", false),
        ] {
            let expression = Expression::claims_mapping(text).unwrap();
            assert_eq!(expression.uses_claim("email"), expected, "{text}");
        }
    }

    #[test]
    fn results_have_the_expected_types() {
        let scope =
            claims_scope(&json!({"a": "x", "empty": "", "list": ["y", "z"], "n": 1, "none": null}));
        let strings = |text: &str| Expression::claims_mapping(text).unwrap().strings(&scope);
        assert_eq!(strings("claims.a").unwrap(), ["x"]);
        assert_eq!(
            strings("claims.list.map(g, 'p:' + g)").unwrap(),
            ["p:y", "p:z"]
        );
        assert_eq!(strings("claims.empty").unwrap(), [""; 0]);
        assert_eq!(strings("claims.none").unwrap(), [""; 0]);
        assert!(strings("claims.n").is_err() && strings("[claims.n]").is_err());
        assert!(
            strings("claims.missing")
                .unwrap_err()
                .contains("no such key")
        );
        let text = Expression::claims_mapping("claims.list")
            .unwrap()
            .string(&scope);
        assert_eq!(text.unwrap_err(), "expression must return a string");
    }

    #[test]
    fn rules_must_be_true() {
        let scope = user_scope(&json!({"username": "system:a"}));
        let rule = |text: &str, message: &str| {
            let expression = Expression::user_rule(text).unwrap();
            Rule::new(expression, message).check(&scope)
        };
        let text = "!user.username.startsWith('system:')";
        assert_eq!(rule("user.username != ''", ""), Ok(()));
        assert_eq!(
            rule(text, "reserved").unwrap_err(),
            format!("validation expression '{text}' failed: reserved")
        );
        assert!(rule("user.username", "").is_err());
        assert!(
            rule("user.uid == ''", "")
                .unwrap_err()
                .contains("no such key")
        );
        assert_eq!(
            Expression::user_rule("'a'").unwrap_err(),
            "must evaluate to bool"
        );
        assert!(Expression::user_rule("claims.a == 'b'").is_err());
    }
}

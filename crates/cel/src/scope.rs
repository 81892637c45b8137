//! CEL expressions of webhooks and policies: compiled once, evaluated within bounds. The language and
//! Kubernetes' libraries are those of the crates `cel` and `kube_cel`; which variables there are is said by
//! whoever compiles. It knows no webhook and no policy.
//!
//! # Bounds
//!
//! An expression has a length, a number of operators and a depth (`parse`). Its evaluation has so many steps of its comprehensions, so many
//! bytes of new values, and so much time (`Budget`): a fold over a list inside of a fold over a list costs
//! the product, and text can be doubled again and again. The crate has no such bounds, so the compiled
//! expression is rewritten to call functions that count.

mod authorizer;
mod budget;
mod compile;
mod objects;
mod optional;
mod output;
pub mod parse;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
pub(super) use kube_cel::cel::Value as CelValue;
use kube_cel::cel::{Context, ExecutionError, IdedExpr};
use serde_json::Value;
use tokio::time::Instant;

pub(super) use authorizer::AuthorizerVariable;
use budget::Budget;
pub(super) use objects::{MutationType, configuration, operations};
pub(super) use values::of_fields as fields;

/// Something is wrong with an expression; the text is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(pub(super) String);

/// Why an expression has no value, in cel-go's words where it has any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EvalError(String);

/// How the error of a missing key begins.
const NO_SUCH_KEY: &str = "no such key: ";

impl EvalError {
    /// The key that is not there, if that is the error.
    pub(super) fn missing_key(&self) -> Option<&str> {
        self.0.strip_prefix(NO_SUCH_KEY)
    }
}

/// What an expression comes to, as far as anybody here uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A verdict.
    Bool(bool),
    /// A message.
    Text(String),
    /// Anything else, by the name of its type.
    Other(&'static str),
}

/// A compiled expression.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    counted: IdedExpr,
    /// Which of the composed variables (`variables.x`) it names.
    composed: BTreeSet<String>,
}

impl Expression {
    /// Compiles `text`, which may name `variables`.
    ///
    /// # Errors
    /// It is no CEL, too large, or names what there is not.
    pub fn compile(text: &str, variables: &[&str]) -> Result<Self, CompileError> {
        // The functions that it is compiled with are not ours: whatever they make of hostile text stays here.
        let compiled = catch_unwind(|| compile::compile(text, variables));
        let (counted, composed) = compiled
            .unwrap_or_else(|_| Err(CompileError("the compiler gave up on it".to_owned())))?;
        Ok(Self {
            text: text.to_owned(),
            counted,
            composed,
        })
    }

    /// Compiles an expression that evaluates to what a mutation of this type needs.
    ///
    /// # Errors
    /// Those of [`compile`](Self::compile), or its value is of another type; in upstream's words.
    pub(super) fn compile_mutation(
        text: &str,
        variables: &[&str],
        mutation: MutationType,
    ) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("compilation failed: {error}");
        let compiled = catch_unwind(|| {
            let parsed = parse::parse(text).map_err(|error| failed(&error))?;
            let output = output::output(&parsed);
            let compiled = compile::compile_parsed(parsed, variables, true);
            let compiled = compiled.map_err(|error| failed(&error))?;
            let wanted = mutation.cel_type();
            match output {
                Some(given) if given != wanted => {
                    Err(format!("must evaluate to {wanted} but got {given}"))
                }
                _ => Ok(compiled),
            }
        });
        let (counted, composed) =
            compiled.unwrap_or_else(|_| Err(failed(&"the compiler gave up on it")))?;
        Ok(Self {
            text: text.to_owned(),
            counted,
            composed,
        })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Which of the composed variables it names.
    pub(super) fn composed(&self) -> &BTreeSet<String> {
        &self.composed
    }
}

/// Variables with their values, and the budget of all evaluations in it. Takes a blocking thread's time.
pub struct Scope<'a> {
    context: Context<'a>,
    budget: Arc<Budget>,
}

impl Scope<'static> {
    /// One without variables. Whatever its budget, and that of those within, nothing is evaluated in it
    /// after `until`.
    pub fn new(until: Instant) -> Self {
        let budget = Arc::new(Budget::new(until));
        let mut context = Context::default();
        context.register_all();
        budget::register(&mut context, &budget);
        optional::register(&mut context);
        objects::register(&mut context);
        authorizer::register(&mut context, &budget);
        Self { context, budget }
    }
}

impl Scope<'_> {
    /// One more variable.
    pub fn set(&mut self, name: &str, value: &Value) {
        self.set_value(name, values::of_json(value));
    }

    /// The variable `authorizer`.
    pub(super) fn authorize(&mut self, authorizer: &AuthorizerVariable) {
        for (name, value) in authorizer::values(authorizer) {
            self.set_value(name, value);
        }
    }

    /// The variables of this, and those that are set in the new one, with a budget of its own.
    pub fn inner(&self) -> Scope<'_> {
        self.budget.renew();
        Scope {
            context: self.context.new_inner_scope(),
            budget: self.budget.clone(),
        }
    }

    /// Why nothing is evaluated in this any more, once that is so.
    pub(super) fn problem(&self) -> Option<EvalError> {
        let error = self.budget.check().err()?;
        Some(EvalError(words(&error)))
    }

    /// What `expression` comes to.
    ///
    /// # Errors
    /// See [`EvalError`].
    pub fn evaluate(&self, expression: &Expression) -> Result<Outcome, EvalError> {
        Ok(match self.resolve(expression)? {
            CelValue::Bool(verdict) => Outcome::Bool(verdict),
            CelValue::String(text) => Outcome::Text(text.as_ref().clone()),
            other => Outcome::Other(values::type_name(&other)),
        })
    }

    pub(super) fn set_value(&mut self, name: &str, value: CelValue) {
        self.context.add_variable_from_value(name, value);
    }

    pub(super) fn resolve(&self, expression: &Expression) -> Result<CelValue, EvalError> {
        if let Some(problem) = self.problem() {
            return Err(problem);
        }
        // Unwind safety: a scope holds values that nobody changes, and counters.
        let resolve = AssertUnwindSafe(|| self.context.resolve(&expression.counted));
        match catch_unwind(resolve) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(EvalError(words(&error))),
            Err(_) => Err(EvalError("it cannot be evaluated".to_owned())),
        }
    }
}

impl std::fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope")
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("{NO_SUCH_KEY}{key}"),
        ExecutionError::NoSuchOverload => "no such overload".to_owned(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        // Others show the values, which can be megabytes.
        other => {
            let mut text = other.to_string();
            if let Some((end, _)) = text.char_indices().nth(256) {
                text.truncate(end);
                text.push_str("...");
            }
            text
        }
    }
}

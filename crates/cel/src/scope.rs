//! The evaluation of programs: variables with their values, functions, and the budget.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kube_cel::cel::{Context, Value as CelValue};
use serde_json::Value;
use tokio::time::Instant;

use crate::budget::Budget;
use crate::error::EvalError;
use crate::functions::FunctionSet;
use crate::program::Program;
use crate::values::{from_json, type_name};

/// The value of an expression, in the form that webhooks, policies and rules use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A bool.
    Bool(bool),
    /// A string.
    Text(String),
    /// A value of another type, with the name of the type.
    Other(&'static str),
}

/// The time limit of all evaluations in an uncounted scope: those of the rules of one object.
const UNCOUNTED_TIME_MAX: Duration = Duration::from_secs(10);

/// Variables with their values, functions, and the budget of all evaluations in the scope. An evaluation blocks its
/// thread.
pub struct Scope<'a> {
    context: Context<'a>,
    budget: Arc<Budget>,
}

impl Scope<'static> {
    /// Creates a scope without variables for compiled programs. No evaluation in this scope or an inner one begins after
    /// `deadline`, whatever its budget.
    pub fn counted(deadline: Instant) -> Self {
        Self::with_functions(FunctionSet::counted(), deadline)
    }

    /// As [`Self::counted`], with other functions.
    pub fn with_functions(functions: &'static FunctionSet, deadline: Instant) -> Self {
        Self {
            context: functions.context(),
            budget: Arc::new(Budget::new(deadline)),
        }
    }

    /// Creates a scope without variables for programs whose cost is [estimated](crate::estimate_cost) before each
    /// evaluation. It does not count steps and values, but bounds the calls of functions and their time.
    pub fn uncounted() -> Self {
        let deadline = Instant::now() + UNCOUNTED_TIME_MAX;
        Self::with_functions(FunctionSet::uncounted(), deadline)
    }
}

impl Scope<'_> {
    /// Sets a variable to a JSON value.
    pub fn set(&mut self, name: &str, value: &Value) {
        self.set_value(name, from_json(value));
    }

    /// Sets a variable.
    pub fn set_value(&mut self, name: &str, value: CelValue) {
        self.context.add_variable_from_value(name, value);
    }

    /// Returns a scope with the variables of this one and a full budget.
    pub fn inner(&self) -> Scope<'_> {
        self.budget.renew();
        Scope {
            context: self.context.new_inner_scope(),
            budget: self.budget.clone(),
        }
    }

    /// Checks that there is time left for an evaluation.
    ///
    /// # Errors
    /// The deadline or the time of the budget has passed.
    pub fn check_deadline(&self) -> Result<(), EvalError> {
        Ok(self.budget.check_deadline()?)
    }

    /// Evaluates `program` to a bool, a string, or the name of another type.
    ///
    /// # Errors
    /// See [`EvalError`].
    pub fn evaluate(&self, program: &Program) -> Result<Outcome, EvalError> {
        Ok(match self.resolve(program)? {
            CelValue::Bool(flag) => Outcome::Bool(flag),
            CelValue::String(text) => Outcome::Text(text.as_ref().clone()),
            other => Outcome::Other(type_name(&other)),
        })
    }

    /// Evaluates `program` to a value.
    ///
    /// # Errors
    /// See [`EvalError`].
    pub fn resolve(&self, program: &Program) -> Result<CelValue, EvalError> {
        self.check_deadline()?;
        // Unwind safety: a scope contains only immutable values and counters.
        let resolve = || self.context.resolve(program.expression());
        let resolve = AssertUnwindSafe(|| self.budget.run(resolve));
        match catch_unwind(resolve) {
            Ok(resolved) => Ok(resolved?),
            Err(_) => Err(EvalError::Panicked),
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

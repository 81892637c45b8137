//! The evaluation of programs: variables with their values, functions, and the budget.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::{Context, Value as CelValue};
use serde_json::Value;
use tokio::time::Instant;

use crate::budget::{self, Budget};
use crate::environment::Library;
use crate::error::EvalError;
use crate::program::Program;
use crate::values::{from_json, type_name};
use crate::{messages, optional};

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

/// Variables with their values, functions, and the budget of all evaluations in the scope. An evaluation blocks its
/// thread.
pub struct Scope<'a> {
    context: Context<'a>,
    budget: Option<Arc<Budget>>,
}

impl Scope<'static> {
    /// Creates a scope without variables for compiled programs, with the functions of `libraries`. No
    /// evaluation in this scope or an inner one begins after `deadline`, whatever its budget.
    pub fn counted(deadline: Instant, libraries: &[&dyn Library]) -> Self {
        let budget = Arc::new(Budget::new(deadline));
        let mut context = Context::default();
        context.register_all();
        budget::register(&mut context, &budget);
        optional::register(&mut context);
        messages::register(&mut context);
        for library in libraries {
            library.register(&mut context, &budget);
        }
        Self {
            context,
            budget: Some(budget),
        }
    }

    /// Creates a scope without variables and without a budget, for programs whose cost is
    /// [estimated](crate::estimate_cost) before each evaluation.
    pub fn uncounted() -> Self {
        let mut context = Context::default();
        context.register_all();
        Self {
            context,
            budget: None,
        }
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
        if let Some(budget) = &self.budget {
            budget.renew();
        }
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
        match &self.budget {
            Some(budget) => Ok(budget.check_deadline()?),
            None => Ok(()),
        }
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
        let resolve = AssertUnwindSafe(|| self.context.resolve(program.expression()));
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

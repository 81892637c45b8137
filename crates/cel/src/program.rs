//! Programs: parsed expressions that can be evaluated.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::common::ast::IdedExpr;

use crate::compile::{Compiled, compile};
use crate::environment::Environment;
use crate::error::CompileError;
use crate::output::output_type_in;
use crate::parse::{ParseError, Syntax, parse};

/// An expression that can be evaluated.
#[derive(Debug, Clone)]
pub struct Program {
    text: String,
    expression: IdedExpr,
    composed_variables: BTreeSet<String>,
    output_type: Option<String>,
}

impl Program {
    /// Parses `text` and compiles it: checks its names, and instruments it so that its evaluation counts
    /// against the budget of a [`Scope::counted`](crate::Scope::counted).
    ///
    /// # Errors
    /// The text cannot be parsed, is too large, or uses undeclared names.
    pub fn compile(text: &str, environment: &Environment<'_>) -> Result<Self, CompileError> {
        // The evaluator runs the functions of an untrusted expression; a panic must not leave this function. Unwind
        // safety: the environment is immutable.
        let compiled = catch_unwind(AssertUnwindSafe(|| {
            let parsed = parse(text, &Syntax::default())?;
            let output_type = output_type_in(&parsed, environment).map(|name| name.into_owned());
            Ok((compile(text, parsed, environment)?, output_type))
        }));
        let (compiled, output_type) = compiled.unwrap_or(Err(CompileError::Panicked))?;
        let Compiled {
            expression,
            composed_variables,
        } = compiled;
        Ok(Self {
            text: text.to_owned(),
            expression,
            composed_variables,
            output_type,
        })
    }

    /// Parses `text` without checks and instrumentation. [`estimate_cost`](crate::estimate_cost) bounds the cost of its
    /// evaluation in a [`Scope::uncounted`](crate::Scope::uncounted).
    ///
    /// # Errors
    /// The text cannot be parsed, or exceeds the limits of `syntax`.
    pub fn parse(text: &str, syntax: &Syntax) -> Result<Self, ParseError> {
        Ok(Self {
            text: text.to_owned(),
            expression: parse(text, syntax)?,
            composed_variables: BTreeSet::new(),
            output_type: None,
        })
    }

    /// Returns the text that the program was compiled from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the expression, which is instrumented if the program was compiled.
    pub fn expression(&self) -> &IdedExpr {
        &self.expression
    }

    /// Returns the names `x` of the composed variables (`variables.x`) that a compiled program uses.
    pub fn composed_variables(&self) -> &BTreeSet<String> {
        &self.composed_variables
    }

    /// Returns the CEL type of a compiled program's value; `None` if only the evaluation determines it.
    pub fn output_type(&self) -> Option<&str> {
        self.output_type.as_deref()
    }

    /// Returns true if the expression refers to the variable `name`.
    pub fn refers_to(&self, name: &str) -> bool {
        self.expression.references().has_variable(name)
    }
}

//! The environment of an expression: variables, functions and message types besides those of Kubernetes' CEL libraries.

use kube_cel::cel::Context;
use kube_cel::cel::common::ast::{IdedExpr, StructExpr};

/// The names and message types that an expression can use.
#[derive(Clone, Copy, Default)]
pub struct Environment<'a> {
    /// The names of the variables.
    pub variables: &'a [&'a str],
    /// The variables whose fields are declared. If a field is declared twice, the last declaration applies. Selecting an undeclared
    /// field is an error.
    pub fields: &'a [(&'a str, &'a [Field])],
    /// Functions besides those of Kubernetes' libraries.
    pub libraries: &'a [&'a dyn Library],
    /// The message types; without them every message literal is an error.
    pub messages: Option<&'a dyn MessageTypes>,
}

/// A declared field of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name of the field.
    pub name: String,
    /// The name of its CEL type, if it is known.
    pub output_type: Option<String>,
}

impl Environment<'_> {
    /// Returns the fields of a variable; `None` if they are not declared.
    pub(crate) fn declared_fields(&self, variable: &str) -> Option<&[Field]> {
        let (_, fields) = self.fields.iter().find(|(of, _)| *of == variable)?;
        self.variables.contains(&variable).then_some(fields)
    }
}

impl std::fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables)
            .finish_non_exhaustive()
    }
}

/// A set of functions.
pub trait Library {
    /// Adds the functions to `context`. A function that waits must return before the deadline of the [current
    /// budget](crate::Budget::current).
    fn register(&self, context: &mut Context<'_>);

    /// Returns the names of the functions.
    fn functions(&self) -> &'static [&'static str];

    /// Rewrites a node of an expression; the nodes below it have been rewritten.
    fn rewrite(&self, _expression: &mut IdedExpr) {}
}

/// The message types that expressions may construct.
pub trait MessageTypes {
    /// Checks the type and the fields of a message literal.
    ///
    /// # Errors
    /// The type does not exist, or a field cannot have its value. The message is that of cel-go.
    fn check(&self, message: &StructExpr) -> Result<(), String>;
}

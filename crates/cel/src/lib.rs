//! CEL expressions: parsing, compilation, evaluation within bounds, and conversion of values. The language
//! and Kubernetes' libraries are those of the crates `cel` and `kube-cel`.
//!
//! # Bounds
//!
//! The text of an expression has a maximal length and number of operators ([`Syntax`]), and is parsed on a
//! stack of sufficient size. Its evaluation is bounded in one of two ways:
//!
//! - [`Program::compile`] instruments the expression. Its evaluation counts the steps of comprehensions, the
//!   bytes of new values and the time against a [`Budget`], because nested comprehensions multiply their steps, and
//!   repeated concatenation doubles a string.
//! - [`Program::parse`] leaves the expression unchanged. Before each evaluation the caller computes an upper bound of
//!   its cost with [`estimate_cost`].
//!
//! In both cases each call of a function is bounded before it begins: the size of its operands and of its result, and
//! its work. No evaluation takes much longer than a second, since the time is checked between calls and steps.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use watchet_cel::{Environment, Outcome, Program, Scope};
//!
//! let variables = ["object"];
//! let environment = Environment { variables: &variables, ..Environment::default() };
//! let program = Program::compile("object.spec.replicas <= 5", &environment)?;
//! let deadline = tokio::time::Instant::now() + Duration::from_secs(1);
//! let mut scope = Scope::counted(deadline);
//! scope.set("object", &serde_json::json!({"spec": {"replicas": 3}}));
//! assert_eq!(scope.evaluate(&program)?, Outcome::Bool(true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod compile;
mod environment;
mod error;
mod escaping;
mod estimate;
mod function_cost;
mod functions;
mod messages;
mod optional;
mod output;
mod parse;
mod positions;
mod program;
mod scope;
mod values;

#[cfg(test)]
mod tests;

pub use kube_cel::cel::common::ast;
pub use kube_cel::cel::extractors::This;
pub use kube_cel::cel::objects::{Key, Map, Opaque};
pub use kube_cel::cel::{Context, ExecutionError, Value};

pub use budget::Budget;
pub use compile::COMPOSED_VARIABLES;
pub use environment::{Environment, Field, Library, MessageTypes};
pub use error::{CompileError, EvalError};
pub use escaping::{escape, is_reserved, is_selected_as};
pub use estimate::{EXPRESSION_COST_MAX, OBJECT_COST_MAX, estimate_cost};
pub use functions::{FUNCTIONS, FunctionSet};
pub use messages::{is_message_type_key, message_type};
pub use output::output_type;
pub use parse::{EXPRESSION_BYTES_MAX, ParseError, Syntax, parse, truncated};
pub use positions::undefined_field_error;
pub use program::Program;
pub use scope::{Outcome, Scope};
pub use values::{
    TypeDeclaration, from_fields, from_json, from_json_with_type, optional, to_json, type_name,
};

//! The errors of compilation and evaluation.

use kube_cel::cel::ExecutionError;

use crate::parse::{ParseError, truncated};

/// The error of an expression that cannot be compiled. The message is for users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The text cannot be parsed.
    #[error("{0}")]
    Parse(#[from] ParseError),
    /// The expression uses undeclared names or unsupported constructs.
    #[error("{0}")]
    Check(String),
    /// The compiler panicked.
    #[error("the compiler failed")]
    Panicked,
}

/// The error of a failed evaluation. The message is that of cel-go if cel-go has one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EvalError {
    /// A map has no such key.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A function or operator does not support values of these types.
    #[error("no such overload")]
    NoSuchOverload,
    /// Another error of the evaluator.
    #[error("{}", describe(.0))]
    Execution(ExecutionError),
    /// The evaluator panicked.
    #[error("it cannot be evaluated")]
    Panicked,
}

impl From<ExecutionError> for EvalError {
    fn from(error: ExecutionError) -> Self {
        match error {
            ExecutionError::NoSuchKey(key) => Self::NoSuchKey(key.as_ref().clone()),
            ExecutionError::NoSuchOverload => Self::NoSuchOverload,
            other => Self::Execution(other),
        }
    }
}

/// The maximum number of characters of an error that contains values, which can be megabytes.
const SHOWN_CHARACTERS_MAX: usize = 256;

fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => {
            let mut text = truncated(other);
            if let Some((end, _)) = text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
                text.truncate(end);
                text.push_str("...");
            }
            text
        }
    }
}

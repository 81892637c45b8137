//! Rules in CEL (`x-kubernetes-validations`), compiled.

use std::sync::Arc;

use watchet_cel::{ParseError, Program, Syntax};

/// The maximum number of operators and brackets of a rule. It also limits the nesting of the expression, whose
/// evaluation recurses.
pub(super) const OPERATORS_MAX: usize = 500;

const SYNTAX: Syntax = Syntax {
    operators_max: OPERATORS_MAX,
    depth_max: None,
    has_optional_selection: false,
};

/// The error of a rule that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("compilation failed: {0}")]
pub(crate) struct RuleError(pub(crate) ParseError);

/// A rule of a schema.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(super) text: String,
    pub(super) program: Result<Arc<Program>, RuleError>,
    pub(super) message: String,
    pub(super) message_program: Option<Arc<Program>>,
    pub(super) reason: String,
    pub(super) field_path: String,
    pub(super) optional_old_self: bool,
    /// True if the rule refers to `oldSelf`.
    pub(super) is_transition: bool,
}

/// Compiles an expression.
pub(super) fn compile(text: &str) -> Result<Program, RuleError> {
    Program::parse(text, &SYNTAX).map_err(RuleError)
}

impl Rule {
    /// Returns the text for the rule in messages: its own message, or else its expression.
    pub(super) fn failure_text(&self) -> &str {
        match self.message.as_str() {
            "" => &self.text,
            message => message,
        }
    }
}

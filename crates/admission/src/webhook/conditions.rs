//! `matchConditions`: expressions that must all be true for a webhook or a policy to apply. If one is false, the
//! errors of others are ignored.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use super::super::expressions;
use watchet_cel::{Outcome, Program, Scope};

/// The variables of the match conditions of webhooks.
pub(crate) const CONDITION_VARIABLES: [&str; 4] = ["object", "oldObject", "request", "authorizer"];

/// Compiled match conditions.
#[derive(Debug, Clone, Default)]
pub(crate) struct MatchConditions(Arc<[Condition]>);

#[derive(Debug)]
struct Condition {
    name: String,
    expression: Result<Program, String>,
}

/// The result of the evaluation of match conditions, as upstream's `matchconditions.MatchResult`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MatchResult {
    /// All conditions are true.
    Match,
    /// A condition is false.
    NoMatch,
    /// No condition is false, and the evaluation of some failed.
    Error(String),
}

impl MatchConditions {
    /// Returns true if there are no conditions.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compiles the conditions of a webhook.
    pub(crate) fn read(written: &[MatchCondition]) -> Self {
        Self::with_variables(written, &CONDITION_VARIABLES)
    }

    /// Compiles conditions with these variables.
    pub(crate) fn with_variables(written: &[MatchCondition], variables: &[&str]) -> Self {
        let conditions = written.iter().map(|condition| Condition {
            name: condition.name.clone(),
            expression: expressions::compile(&condition.expression, variables)
                .map_err(|error| format!("compilation error: {error}")),
        });
        Self(conditions.collect())
    }

    /// Evaluates the conditions in `scope`.
    pub(crate) fn evaluate(&self, scope: &Scope<'_>) -> MatchResult {
        let mut failures = Vec::new();
        for condition in self.0.iter() {
            let outcome = match &condition.expression {
                Ok(expression) => scope.evaluate(expression).map_err(|error| {
                    format!(
                        "expression '{}' resulted in error: {error}",
                        expression.text()
                    )
                }),
                Err(why) => Err(format!("{}: {why}", condition.name)),
            };
            match outcome {
                Ok(Outcome::Bool(true)) => {}
                Ok(Outcome::Bool(false)) => return MatchResult::NoMatch,
                Ok(_) => failures.push(format!(
                    "match condition {:?} does not evaluate to a bool",
                    condition.name
                )),
                Err(why) => failures.push(why),
            }
        }
        match failures.len() {
            0 => MatchResult::Match,
            1 => MatchResult::Error(failures.remove(0)),
            _ => MatchResult::Error(format!("[{}]", failures.join(", "))),
        }
    }
}

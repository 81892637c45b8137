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
pub(crate) struct Conditions(Arc<[Condition]>);

#[derive(Debug)]
struct Condition {
    name: String,
    expression: Result<Program, String>,
}

/// The result of match conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All conditions are true.
    Met,
    /// A condition is false.
    Unmet,
    /// No condition is false, and the evaluation of some failed.
    Failed(String),
}

impl Conditions {
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
    pub(crate) fn evaluate(&self, scope: &Scope<'_>) -> Verdict {
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
                Ok(Outcome::Bool(false)) => return Verdict::Unmet,
                Ok(_) => failures.push(format!(
                    "match condition {:?} does not come to a bool",
                    condition.name
                )),
                Err(why) => failures.push(why),
            }
        }
        match failures.len() {
            0 => Verdict::Met,
            1 => Verdict::Failed(failures.remove(0)),
            _ => Verdict::Failed(format!("[{}]", failures.join(", "))),
        }
    }
}

//! Evaluates a policy for one binding and each of its parameters, on a blocking thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::super::webhook::MatchResult;
use super::denial::Denial;
use super::read::{Binding, Policy, Rules};
use super::scope::{Activation, compose, explained};
use watchet_cel::{Outcome, Scope};

/// A policy, a binding of it, and their parameters.
#[derive(Debug)]
pub(super) struct Evaluation {
    pub(super) policy: Arc<Policy>,
    pub(super) binding: Arc<Binding>,
    pub(super) activation: Arc<Activation>,
    /// The policy is evaluated for each; null stands for no parameter.
    pub(super) params: Vec<Value>,
}

/// How long all evaluations for one write may take: the number of parameters is not limited, and each
/// evaluation has its own budget.
pub(super) const EVALUATIONS_MAX: Duration = Duration::from_secs(10);

/// Returns the denials of `evaluations`. Evaluations that begin after `deadline` fail.
pub(super) fn denials(evaluations: &[Evaluation], deadline: Instant) -> Vec<Denial> {
    let deadline = deadline.min(Instant::now() + EVALUATIONS_MAX);
    let each = evaluations.iter();
    each.flat_map(|evaluation| evaluation.denials(deadline))
        .collect()
}

/// The maximum size in bytes of the value of a `messageExpression`, as upstream.
const MESSAGE_BYTES_MAX: usize = 5 << 10;

impl Evaluation {
    /// Returns the denials for all parameters.
    fn denials(&self, deadline: Instant) -> Vec<Denial> {
        let scope = self.activation.scope(deadline);
        let each = self
            .params
            .iter()
            .flat_map(|params| self.with(&scope, params));
        each.collect()
    }

    fn with(&self, outer: &Scope<'_>, params: &Value) -> Vec<Denial> {
        let policy = &self.policy;
        let definition = &policy.definition;
        let mut scope = outer.inner();
        if let Err(why) = scope.check_deadline() {
            return match definition.ignores_failures {
                true => Vec::new(),
                false => vec![self.denial(why.to_string(), "")],
            };
        }
        scope.set("params", params);
        match definition.conditions.evaluate(&scope) {
            MatchResult::Match => {}
            MatchResult::NoMatch => return Vec::new(),
            MatchResult::Error(_) if definition.ignores_failures => return Vec::new(),
            MatchResult::Error(why) => return vec![self.denial(why, "")],
        }
        let composed = compose(definition, &mut scope);
        let validations = policy.validations.iter();
        validations
            .filter_map(|rules| self.validate(&scope, rules, &composed))
            .collect()
    }

    fn validate(
        &self,
        scope: &Scope<'_>,
        rules: &Rules,
        failed: &BTreeMap<String, String>,
    ) -> Option<Denial> {
        let outcome = match &rules.expression {
            Ok(expression) => {
                let outcome = scope.evaluate(expression);
                outcome.map_err(|error| {
                    let why = explained(expression, error, failed);
                    format!(
                        "expression '{}' resulted in error: {why}",
                        expression.text().trim()
                    )
                })
            }
            Err(why) => Err(why.clone()),
        };
        match outcome {
            Ok(Outcome::Bool(true)) => None,
            Ok(_) => {
                let message = message(scope, rules).unwrap_or_else(|| rules.message.clone());
                Some(self.denial(message, &rules.reason))
            }
            Err(_) if self.policy.definition.ignores_failures => None,
            Err(why) => Some(self.denial(why, "")),
        }
    }

    fn denial(&self, message: String, reason: &str) -> Denial {
        Denial::of(&self.policy, &self.binding, message, reason)
    }
}

/// Returns the value of the `messageExpression`, if it is a valid message.
fn message(scope: &Scope<'_>, rules: &Rules) -> Option<String> {
    let expression = rules.message_expression.as_ref()?;
    match scope.evaluate(expression) {
        Ok(Outcome::Text(text)) => {
            let text = text.trim();
            let fits = !text.is_empty() && !text.contains('\n') && text.len() <= MESSAGE_BYTES_MAX;
            fits.then(|| text.to_owned())
        }
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, "a messageExpression cannot be evaluated");
            None
        }
    }
}

//! Evaluates one mutation of a policy, on a blocking thread.

use serde_json::Value;
use tokio::time::Instant;

use super::super::super::cluster::Mutation;
use super::super::super::expressions::{MutationType, configuration, operations};
use super::super::super::webhook::MatchResult;
use super::super::scope::{Activation, compose, explained};
use super::MutatingPolicy;

/// The result of the evaluation of a mutation.
#[derive(Debug)]
pub(super) enum Step {
    /// A change of the object.
    Change(Mutation),
    /// The match conditions are not met.
    NoMatch,
    /// The match conditions cannot be evaluated.
    MatchConditionError(String),
    /// The mutation cannot be evaluated.
    Failed(String),
}

/// Evaluates the mutation of `policy` at `index`, and before the first one the match conditions. Nothing is
/// evaluated after `deadline`.
pub(super) fn step(
    policy: &MutatingPolicy,
    index: usize,
    activation: &Activation,
    params: &Value,
    deadline: Instant,
) -> Step {
    let outer = activation.scope(deadline);
    let mut scope = outer.inner();
    scope.set("params", params);
    if index == 0 {
        match policy.definition.conditions.evaluate(&scope) {
            MatchResult::Match => {}
            MatchResult::NoMatch => return Step::NoMatch,
            MatchResult::Error(why) => return Step::MatchConditionError(why),
        }
    }
    let mutation = &policy.mutations[index];
    let expression = match &mutation.expression {
        Ok(expression) => expression,
        Err(why) => return Step::Failed(why.clone()),
    };
    let failed = compose(&policy.definition, &mut scope);
    let value = match scope.resolve(expression) {
        Ok(value) => value,
        Err(error) => {
            let why = explained(expression, error, &failed);
            let text = expression.text();
            return Step::Failed(format!("expression '{text}' resulted in error: {why}"));
        }
    };
    let change = match mutation.mutation_type {
        MutationType::ApplyConfiguration => configuration(&value)
            .map(Mutation::Apply)
            .map_err(|error| error.to_string()),
        MutationType::JsonPatch => match operations(&value) {
            Ok(operations) => serde_json::from_value(Value::Array(operations))
                .map(Mutation::Patch)
                .map_err(|error| format!("JSON Patch: {error}")),
            Err(error) => Err(error.to_string()),
        },
    };
    change.map_or_else(Step::Failed, Step::Change)
}

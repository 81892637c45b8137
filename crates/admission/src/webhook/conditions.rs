//! `matchConditions`: expressions that must all be true for a webhook or a policy to be asked. One that is false
//! decides, whatever others fail with.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use serde_json::Value;
use tokio::time::Instant;

use super::super::expressions::{self, AuthorizerVariable};
use super::super::matching::Matched;
use super::super::request::AdmissionRequest;
use super::{Calling, review};
use watchet_cel::{Outcome, Program, Scope};

/// Which variables there are.
pub(crate) const CONDITION_VARIABLES: [&str; 4] = ["object", "oldObject", "request", "authorizer"];

/// Conditions, compiled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions(Arc<[Condition]>);

#[derive(Debug)]
struct Condition {
    name: String,
    expression: Result<Program, String>,
}

/// What the conditions of somebody come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All are true.
    Met,
    /// One is false.
    Unmet,
    /// None is false, and some have no value.
    Failed(String),
}

impl Conditions {
    pub(crate) fn read(written: &[MatchCondition]) -> Self {
        Self::read_with(written, &CONDITION_VARIABLES)
    }

    /// The same where there are other variables.
    pub(crate) fn read_with(written: &[MatchCondition], variables: &[&str]) -> Self {
        let conditions = written.iter().map(|condition| Condition {
            name: condition.name.clone(),
            expression: expressions::compile(&condition.expression, variables)
                .map_err(|error| format!("compilation error: {error}")),
        });
        Self(conditions.collect())
    }

    /// What they come to in `scope`.
    pub(crate) fn verdict(&self, scope: &Scope<'_>) -> Verdict {
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

/// What `conditions` come to for `write`, as long as there is time for it. Those of no webhook cost nothing.
pub(super) async fn check(
    calling: &Calling<'_>,
    conditions: &Conditions,
    write: &AdmissionRequest<'_>,
    matched: &Matched,
) -> Verdict {
    if conditions.0.is_empty() {
        return Verdict::Met;
    }
    let conditions = conditions.clone();
    let values = [
        write.object.clone().into_owned(),
        write.old_object.clone().into_owned(),
        review::request(write, matched),
    ];
    let authorizer = AuthorizerVariable::new(write, calling.cluster.authorizer());
    let until = calling.until;
    let evaluated = calling.tasks.spawn_blocking("match-conditions", move || {
        let mut scope = scope_of(&values, until);
        authorizer.set_in(&mut scope);
        conditions.verdict(&scope)
    });
    evaluated
        .await
        .unwrap_or_else(|error| Verdict::Failed(format!("it cannot be evaluated: {error}")))
}

fn scope_of(values: &[Value; 3], until: Instant) -> Scope<'static> {
    let mut scope = expressions::new_scope(until);
    for (name, value) in CONDITION_VARIABLES.iter().zip(values) {
        scope.set(name, value);
    }
    scope
}

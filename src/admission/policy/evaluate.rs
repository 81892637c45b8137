//! Evaluating a policy for one binding, once for each parameter; on a blocking thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::super::authorizer::Authorizing;
use super::super::cel::{CelValue, EvalError, Expression, Outcome, Scope, fields};
use super::super::webhook::Verdict;
use super::read::Rules;
use super::{Binding, Denial, Policy};

/// What expressions see besides parameters.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) object: Value,
    pub(super) old_object: Value,
    pub(super) request: Value,
    pub(super) namespace: Value,
    pub(super) authorizing: Authorizing,
}

/// A policy, a binding of it, and their parameters.
#[derive(Debug)]
pub(super) struct Evaluation {
    pub(super) policy: Arc<Policy>,
    pub(super) binding: Arc<Binding>,
    pub(super) seen: Arc<Seen>,
    /// One evaluation each; null is none.
    pub(super) params: Vec<Value>,
}

/// How long all evaluations for one write may take: there can be any number of parameters, and each has
/// its own budget of time.
const EVALUATIONS_MAX: Duration = Duration::from_secs(10);

/// What of `evaluations` does not hold. Those that begin after `until` fail.
pub(super) fn denials(evaluations: &[Evaluation], until: Instant) -> Vec<Denial> {
    let until = until.min(Instant::now() + EVALUATIONS_MAX);
    let each = evaluations.iter();
    each.flat_map(|evaluation| evaluation.denials(until))
        .collect()
}

/// The longest message that an expression may make; upstream's.
const MESSAGE_BYTES_MAX: usize = 5 << 10;

impl Evaluation {
    /// All that does not hold.
    fn denials(&self, until: Instant) -> Vec<Denial> {
        let mut scope = Scope::new(until);
        let seen = &self.seen;
        for (name, value) in [
            ("object", &seen.object),
            ("oldObject", &seen.old_object),
            ("request", &seen.request),
            ("namespaceObject", &seen.namespace),
        ] {
            scope.set(name, value);
        }
        scope.authorize(&seen.authorizing);
        let each = self
            .params
            .iter()
            .flat_map(|params| self.with(&scope, params));
        each.collect()
    }

    fn with(&self, outer: &Scope<'_>, params: &Value) -> Vec<Denial> {
        let policy = &self.policy;
        let mut scope = outer.inner();
        if let Some(why) = scope.problem() {
            return match policy.ignores_failures {
                true => Vec::new(),
                false => vec![self.denial(why.to_string(), "")],
            };
        }
        scope.set("params", params);
        match policy.conditions.verdict(&scope) {
            Verdict::Met => {}
            Verdict::Unmet => return Vec::new(),
            Verdict::Failed(_) if policy.ignores_failures => return Vec::new(),
            Verdict::Failed(why) => return vec![self.denial(why, "")],
        }
        let composed = self.compose(&mut scope);
        let judged = policy.validations.iter();
        judged
            .filter_map(|rules| self.judge(&scope, rules, &composed))
            .collect()
    }

    /// Sets `variables`; why those are not among them that have no value.
    fn compose(&self, scope: &mut Scope<'_>) -> BTreeMap<String, String> {
        let mut values: Vec<(String, CelValue)> = Vec::new();
        let mut failed = BTreeMap::new();
        scope.set_value("variables", fields(std::iter::empty()));
        for (name, compiled) in &self.policy.variables {
            let resolved = match compiled {
                Ok(expression) => {
                    let resolved = scope.resolve(expression);
                    resolved.map_err(|error| explained(expression, error, &failed))
                }
                Err(why) => Err(why.clone()),
            };
            match resolved {
                Ok(value) => {
                    values.push((name.clone(), value));
                    scope.set_value("variables", fields(values.iter().cloned()));
                }
                Err(why) => drop(failed.insert(name.clone(), why)),
            }
        }
        failed
    }

    fn judge(
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
            Err(_) if self.policy.ignores_failures => None,
            Err(why) => Some(self.denial(why, "")),
        }
    }

    fn denial(&self, message: String, reason: &str) -> Denial {
        Denial::of(&self.policy, &self.binding, message, reason)
    }
}

/// A message that is worth to be told.
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
            tracing::debug!(%error, "a messageExpression has no value");
            None
        }
    }
}

/// The error of an expression; when it is for a variable that has no value, that one's.
fn explained(
    expression: &Expression,
    error: EvalError,
    failed: &BTreeMap<String, String>,
) -> String {
    let missing = error.missing_key();
    let at_fault = expression
        .composed()
        .iter()
        .find(|name| Some(&***name) == missing);
    match at_fault.and_then(|name| failed.get_key_value(name)) {
        Some((name, why)) => format!("composited variable {name:?} fails to evaluate: {why}"),
        None => error.to_string(),
    }
}

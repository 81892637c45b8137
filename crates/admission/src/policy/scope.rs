//! The variables of the expressions of a policy: those of the write, and the composed variables of the policy.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::time::Instant;

use super::super::expressions::{self, AuthorizerVariable};
use super::read::Definition;
use watchet_cel::{EvalError, Program, Scope, Value as CelValue, from_fields};

/// The values of the variables except parameters.
#[derive(Debug)]
pub(super) struct Activation {
    pub(super) object: Value,
    pub(super) old_object: Value,
    pub(super) request: Value,
    pub(super) namespace: Value,
    pub(super) authorizer: AuthorizerVariable,
}

impl Activation {
    /// Creates a scope with these variables. No evaluation in it begins after `deadline`.
    pub(super) fn scope(&self, deadline: Instant) -> Scope<'static> {
        let mut scope = expressions::new_scope(deadline);
        for (name, value) in [
            ("object", &self.object),
            ("oldObject", &self.old_object),
            ("request", &self.request),
            ("namespaceObject", &self.namespace),
        ] {
            scope.set(name, value);
        }
        self.authorizer.set_in(&mut scope);
        scope
    }
}

/// Evaluates the composed variables of a policy and sets `variables`. Returns the errors of those that failed.
pub(super) fn compose(definition: &Definition, scope: &mut Scope<'_>) -> BTreeMap<String, String> {
    let mut values: Vec<(String, CelValue)> = Vec::new();
    let mut failed = BTreeMap::new();
    scope.set_value("variables", from_fields(std::iter::empty()));
    for (name, compiled) in &definition.variables {
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
                scope.set_value("variables", from_fields(values.iter().cloned()));
            }
            Err(why) => drop(failed.insert(name.clone(), why)),
        }
    }
    failed
}

/// Returns the text of an error; if a composed variable failed, the error of that variable.
pub(super) fn explained(
    expression: &Program,
    error: EvalError,
    failed: &BTreeMap<String, String>,
) -> String {
    let missing = match &error {
        EvalError::NoSuchKey(key) => Some(&**key),
        _ => None,
    };
    let at_fault = expression
        .composed_variables()
        .iter()
        .find(|name| Some(&***name) == missing);
    match at_fault.and_then(|name| failed.get_key_value(name)) {
        Some((name, why)) => format!("composited variable {name:?} fails to evaluate: {why}"),
        None => error.to_string(),
    }
}

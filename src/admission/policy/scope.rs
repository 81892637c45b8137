//! What the expressions of a policy see: the variables of a write, and those that the policy composes.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::time::Instant;

use super::super::cel::{AuthorizerVariable, CelValue, EvalError, Expression, Scope, fields};
use super::read::Definition;

/// What expressions see besides parameters.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) object: Value,
    pub(super) old_object: Value,
    pub(super) request: Value,
    pub(super) namespace: Value,
    pub(super) authorizer: AuthorizerVariable,
}

impl Seen {
    /// A scope with these variables. Nothing is evaluated in it after `until`.
    pub(super) fn scope(&self, until: Instant) -> Scope<'static> {
        let mut scope = Scope::new(until);
        for (name, value) in [
            ("object", &self.object),
            ("oldObject", &self.old_object),
            ("request", &self.request),
            ("namespaceObject", &self.namespace),
        ] {
            scope.set(name, value);
        }
        scope.authorize(&self.authorizer);
        scope
    }
}

/// Sets the variable `variables` to those of a policy. Returns why the others have no value.
pub(super) fn compose(definition: &Definition, scope: &mut Scope<'_>) -> BTreeMap<String, String> {
    let mut values: Vec<(String, CelValue)> = Vec::new();
    let mut failed = BTreeMap::new();
    scope.set_value("variables", fields(std::iter::empty()));
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
                scope.set_value("variables", fields(values.iter().cloned()));
            }
            Err(why) => drop(failed.insert(name.clone(), why)),
        }
    }
    failed
}

/// The error of an expression; when it is for a variable that has no value, that one's.
pub(super) fn explained(
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

//! Validation of admission configurations (webhooks, policies and bindings) beyond their types, with upstream's
//! messages.

mod mutating;
mod policies;
mod policy_names;
mod problems;
pub mod types;
mod webhooks;

use serde_json::Value;

use super::dynamic_admission::ConfigurationKind;
use problems::Problems;
use watchet_api::StatusCause;

/// Returns the problems of `object`, a configuration of this kind; empty if it is valid.
pub fn problems(kind: ConfigurationKind, object: &Value) -> Vec<StatusCause> {
    let mut problems = Problems::default();
    match kind {
        ConfigurationKind::MutatingPolicy => mutating::check(&mut problems, object),
        ConfigurationKind::MutatingBinding => {
            mutating::check_binding(&mut problems, &object["spec"]);
        }
        ConfigurationKind::Mutating => webhooks::check(&mut problems, object, true),
        ConfigurationKind::Validating => webhooks::check(&mut problems, object, false),
        ConfigurationKind::Policy => policies::check(&mut problems, object),
        ConfigurationKind::Binding => policies::check_binding(&mut problems, &object["spec"]),
    }
    problems.into_causes()
}

/// Returns the problems of `client`, a `clientConfig` at `field`. Every API with a `clientConfig` has the same rules.
pub fn client_problems(field: &str, client: &Value) -> Vec<StatusCause> {
    let mut problems = Problems::default();
    webhooks::check_client(&mut problems, field, client);
    problems.into_causes()
}

#[cfg(test)]
mod tests;

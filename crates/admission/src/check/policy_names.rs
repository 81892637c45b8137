//! The names that the expressions of a policy can use.

use serde_json::Value;

use super::super::expressions::Names;
use super::super::policy::VARIABLES;
use super::problems::items;
use watchet_cel::{COMPOSED_VARIABLES, Field};

/// The names of a policy.
#[derive(Debug)]
pub(super) struct PolicyNames<'a> {
    /// The variables of match conditions: `params` only if the policy has parameters.
    conditions: Vec<&'a str>,
    /// The variables of other expressions: also `variables`, if the policy has some.
    expressions: Vec<&'a str>,
    /// The variables of messages, which cannot use `authorizer`.
    messages: Vec<&'a str>,
    /// The composed variables that are declared so far.
    composed: Vec<Field>,
}

impl<'a> PolicyNames<'a> {
    /// Returns the names of the policy with this spec, without its composed variables.
    pub(super) fn of(spec: &'a Value) -> Self {
        let all = VARIABLES
            .into_iter()
            .filter(|name| *name != COMPOSED_VARIABLES);
        let has_params = spec["paramKind"].is_object();
        let conditions: Vec<&str> = all.filter(|name| *name != "params" || has_params).collect();
        let has_variables = items(&spec["variables"]).next().is_some();
        let composed = has_variables.then_some(COMPOSED_VARIABLES);
        let expressions: Vec<&str> = conditions.iter().copied().chain(composed).collect();
        let mut messages = expressions.clone();
        messages.retain(|name| *name != "authorizer");
        Self {
            conditions,
            expressions,
            messages,
            composed: Vec::new(),
        }
    }

    /// Declares a composed variable. The expressions after it can use it.
    pub(super) fn declare(&mut self, name: &str, output_type: Option<String>) {
        self.composed.push(Field {
            name: name.to_owned(),
            output_type,
        });
    }

    /// Returns the variables of match conditions.
    pub(super) fn of_conditions(&self) -> &[&'a str] {
        &self.conditions
    }

    /// Returns the names for expressions other than match conditions and messages.
    pub(super) fn of_expressions(&self) -> Names<'_> {
        Names {
            variables: &self.expressions,
            composed: Some(&self.composed),
        }
    }

    /// Returns the names for messages.
    pub(super) fn of_messages(&self) -> Names<'_> {
        Names {
            variables: &self.messages,
            composed: Some(&self.composed),
        }
    }
}

//! Policies and bindings as they are stored, read and compiled once.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, Validation,
};
use serde_json::Value;

use super::super::attributes::GroupVersionKind;
use super::super::cel::Expression;
use super::super::cluster::ParamQuery;
use super::super::matching::Constraints;
use super::super::rules::Rule;
use super::super::selector;
use super::super::webhook::Conditions;

/// Which variables expressions have; the last only where they were composed.
pub(in crate::admission) const VARIABLES: [&str; 7] = [
    "authorizer",
    "object",
    "oldObject",
    "request",
    "params",
    "namespaceObject",
    "variables",
];

/// A policy.
#[derive(Debug)]
pub(in crate::admission) struct Policy {
    pub(super) name: String,
    pub(super) constraints: Constraints,
    pub(super) conditions: Conditions,
    /// Those that some validation names, in their order.
    pub(super) variables: Vec<(String, Compiled)>,
    pub(super) validations: Vec<Rules>,
    pub(super) param_kind: Option<GroupVersionKind>,
    /// `failurePolicy: Ignore`
    pub(super) ignores_failures: bool,
}

/// An expression, or why there is none.
pub(super) type Compiled = Result<Expression, String>;

/// One validation.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) expression: Compiled,
    /// What is told when it is false, unless the expression for that comes to something.
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: String,
}

/// A binding.
#[derive(Debug)]
pub(in crate::admission) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) constraints: Option<Constraints>,
    pub(super) param: Option<ParamReference>,
    pub(super) actions: Vec<Action>,
}

/// Where a binding's parameters are.
#[derive(Debug)]
pub(super) struct ParamReference {
    pub(super) namespace: String,
    pub(super) query: ParamQuery,
    pub(super) denies_when_absent: bool,
}

/// What is done about a validation that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Deny,
    Warn,
    /// There is no audit log: it is accepted, and nothing is done.
    Audit,
}

impl Policy {
    /// Reads a ValidatingAdmissionPolicy.
    ///
    /// # Errors
    /// It is none.
    pub(in crate::admission) fn read(stored: &Value) -> Result<Self, String> {
        let stored: ValidatingAdmissionPolicy =
            serde_json::from_value(stored.clone()).map_err(|error| error.to_string())?;
        let name = stored.metadata.name.unwrap_or_default();
        let spec = stored.spec.unwrap_or_default();
        let validations: Vec<Rules> = spec.validations.iter().flatten().map(rules).collect();
        let variables = spec.variables.unwrap_or_default().into_iter();
        let variables = variables.map(|variable| {
            let compiled = compile(&variable.expression);
            (variable.name, compiled)
        });
        let without_variables = &VARIABLES[..VARIABLES.len() - 1];
        let conditions = spec.match_conditions.unwrap_or_default();
        Ok(Self {
            name,
            constraints: constraints(spec.match_constraints.as_ref())?,
            conditions: Conditions::read_with(&conditions, without_variables),
            variables: needed(variables.collect(), &validations),
            validations,
            param_kind: spec.param_kind.map(|kind| {
                GroupVersionKind::of(&serde_json::json!({
                    "apiVersion": kind.api_version, "kind": kind.kind,
                }))
            }),
            ignores_failures: spec.failure_policy.as_deref() == Some("Ignore"),
        })
    }
}

impl Binding {
    /// Reads a ValidatingAdmissionPolicyBinding.
    ///
    /// # Errors
    /// It is none.
    pub(in crate::admission) fn read(stored: &Value) -> Result<Self, String> {
        let stored: ValidatingAdmissionPolicyBinding =
            serde_json::from_value(stored.clone()).map_err(|error| error.to_string())?;
        let spec = stored.spec.unwrap_or_default();
        let resources = spec.match_resources.as_ref();
        let param = spec.param_ref.map(|reference| {
            let query = match reference.name {
                Some(name) => ParamQuery::Name(name),
                None => ParamQuery::Selector(selector::read(reference.selector.as_ref())?),
            };
            let absent = reference.parameter_not_found_action;
            Ok::<_, String>(ParamReference {
                namespace: reference.namespace.unwrap_or_default(),
                query,
                denies_when_absent: absent.as_deref() == Some("Deny"),
            })
        });
        let action = |action: &String| match &**action {
            "Deny" => Action::Deny,
            "Warn" => Action::Warn,
            _ => Action::Audit,
        };
        Ok(Self {
            name: stored.metadata.name.unwrap_or_default(),
            policy: spec.policy_name.unwrap_or_default(),
            constraints: resources.map(|r| constraints(Some(r))).transpose()?,
            param: param.transpose()?,
            actions: spec
                .validation_actions
                .iter()
                .flatten()
                .map(action)
                .collect(),
        })
    }
}

fn compile(text: &str) -> Compiled {
    let compiled = Expression::compile(text, &VARIABLES);
    compiled.map_err(|error| format!("compilation error: {error}"))
}

fn rules(validation: &Validation) -> Rules {
    let told = validation.message.as_deref().unwrap_or_default().trim();
    let message = match told.is_empty() {
        true => format!("failed expression: {}", validation.expression.trim()),
        false => told.to_owned(),
    };
    Rules {
        expression: compile(&validation.expression),
        message,
        message_expression: validation.message_expression.as_deref().and_then(|text| {
            // Its write is refused when it does not compile; a message is told in any case.
            compile(text).ok()
        }),
        reason: validation.reason.clone().unwrap_or_default(),
    }
}

/// Those variables that validations name, or variables that they name.
fn needed(variables: Vec<(String, Compiled)>, validations: &[Rules]) -> Vec<(String, Compiled)> {
    let of_rules = |rules: &Rules| {
        let both = rules.expression.iter().chain(&rules.message_expression);
        let names = both.flat_map(|expression| expression.composed().clone());
        names.collect::<Vec<_>>()
    };
    let mut named: BTreeSet<String> = validations.iter().flat_map(of_rules).collect();
    // One names only those before it, so the last are looked at first.
    for (name, compiled) in variables.iter().rev() {
        if let (true, Ok(expression)) = (named.contains(name), compiled) {
            named.extend(expression.composed().clone());
        }
    }
    variables
        .into_iter()
        .filter(|(name, _)| named.contains(name))
        .collect()
}

fn constraints(resources: Option<&MatchResources>) -> Result<Constraints, String> {
    let Some(resources) = resources else {
        return Ok(Constraints::default());
    };
    let rules = resources.resource_rules.as_deref();
    let excluded = resources.exclude_resource_rules.iter().flatten();
    Ok(Constraints {
        // None are all that the policy is about.
        rules: match rules {
            None | Some([]) => vec![Rule::any()],
            Some(rules) => rules.iter().map(Rule::of_policy).collect(),
        },
        excluded: excluded.map(Rule::of_policy).collect(),
        equivalent: resources.match_policy.as_deref() != Some("Exact"),
        namespaces: selector::read(resources.namespace_selector.as_ref())?,
        objects: selector::read(resources.object_selector.as_ref())?,
    })
}

//! Reads and compiles policies and bindings.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, ParamKind, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBindingSpec, Validation, Variable,
};
use serde::Deserialize as _;
use serde_json::Value;

use super::super::cluster::ParamQuery;
use super::super::expressions;
use super::super::matching::Constraints;
use super::super::request::GroupVersionKind;
use super::super::rules::Rule;
use super::super::selector;
use super::super::webhook::MatchConditions;
use watchet_cel::Program;

/// The variables of expressions. Match conditions do not have the last one, `variables`.
pub(crate) const VARIABLES: [&str; 7] = [
    "authorizer",
    "object",
    "oldObject",
    "request",
    "params",
    "namespaceObject",
    "variables",
];

/// The parts that validating and mutating policies have in common.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) constraints: Constraints,
    pub(super) conditions: MatchConditions,
    /// The variables that an expression uses, in the order of the policy.
    pub(super) variables: Vec<(String, Compiled)>,
    pub(super) param_kind: Option<GroupVersionKind>,
    /// `failurePolicy: Ignore`
    pub(super) ignores_failures: bool,
}

/// The members of a policy's spec that a [`Definition`] is read from.
#[derive(Debug, Default)]
pub(super) struct PolicySpec {
    pub(super) constraints: Option<MatchResources>,
    pub(super) conditions: Option<Vec<MatchCondition>>,
    pub(super) variables: Option<Vec<Variable>>,
    pub(super) param_kind: Option<ParamKind>,
    pub(super) failure_policy: Option<String>,
}

impl Definition {
    /// Compiles a definition. `named` contains the names of the variables that the policy's expressions use.
    ///
    /// # Errors
    /// A selector is invalid.
    pub(super) fn read(
        name: String,
        spec: PolicySpec,
        named: BTreeSet<String>,
    ) -> Result<Self, String> {
        let variables = spec.variables.unwrap_or_default().into_iter();
        let variables = variables.map(|variable| {
            let compiled = compile(&variable.expression);
            (variable.name, compiled)
        });
        let without_variables = &VARIABLES[..VARIABLES.len() - 1];
        let conditions = spec.conditions.unwrap_or_default();
        Ok(Self {
            name,
            constraints: constraints(spec.constraints.as_ref())?,
            conditions: MatchConditions::with_variables(&conditions, without_variables),
            variables: needed(variables.collect(), named),
            param_kind: spec.param_kind.map(|kind| {
                GroupVersionKind::of(&serde_json::json!({
                    "apiVersion": kind.api_version, "kind": kind.kind,
                }))
            }),
            ignores_failures: spec.failure_policy.as_deref() == Some("Ignore"),
        })
    }
}

/// A ValidatingAdmissionPolicy.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(super) definition: Definition,
    pub(super) validations: Vec<Rules>,
}

/// A compiled expression, or the error.
pub(super) type Compiled = Result<Program, String>;

/// One validation.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) expression: Compiled,
    /// The message of a denial without a `messageExpression`.
    pub(super) message: String,
    pub(super) message_expression: Option<Program>,
    pub(super) reason: String,
}

/// A binding.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) constraints: Option<Constraints>,
    pub(super) param: Option<ParamReference>,
    pub(super) actions: Vec<Action>,
}

/// The location of a binding's parameters.
#[derive(Debug)]
pub(super) struct ParamReference {
    pub(super) namespace: String,
    pub(super) query: ParamQuery,
    pub(super) denies_when_absent: bool,
}

/// The action for a validation that is false or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Deny,
    Warn,
    /// Admits the write and does nothing else, because there is no audit log.
    Audit,
}

impl Policy {
    /// Reads a ValidatingAdmissionPolicy.
    ///
    /// # Errors
    /// The object is not a ValidatingAdmissionPolicy.
    pub(crate) fn read(stored: &Value) -> Result<Self, String> {
        let stored: ValidatingAdmissionPolicy =
            serde_json::from_value(stored.clone()).map_err(|error| error.to_string())?;
        let name = stored.metadata.name.unwrap_or_default();
        let spec = stored.spec.unwrap_or_default();
        let validations: Vec<Rules> = spec.validations.iter().flatten().map(rules).collect();
        let expressions = validations.iter().flat_map(|rules| {
            let both = rules.expression.iter().chain(&rules.message_expression);
            both.flat_map(|expression| expression.composed_variables().clone())
        });
        let named = expressions.collect();
        let spec = PolicySpec {
            constraints: spec.match_constraints,
            conditions: spec.match_conditions,
            variables: spec.variables,
            param_kind: spec.param_kind,
            failure_policy: spec.failure_policy,
        };
        Ok(Self {
            definition: Definition::read(name, spec, named)?,
            validations,
        })
    }
}

impl Binding {
    /// Reads a ValidatingAdmissionPolicyBinding, or a MutatingAdmissionPolicyBinding, which has no actions.
    ///
    /// # Errors
    /// The object is not a binding.
    pub(crate) fn read(stored: &Value) -> Result<Self, String> {
        let name = stored["metadata"]["name"].as_str().unwrap_or_default();
        let spec = ValidatingAdmissionPolicyBindingSpec::deserialize(&stored["spec"])
            .map_err(|error| error.to_string())?;
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
            name: name.to_owned(),
            policy: spec.policy_name,
            constraints: resources.map(|r| constraints(Some(r))).transpose()?,
            param: param.transpose()?,
            actions: spec.validation_actions.iter().map(action).collect(),
        })
    }
}

fn compile(text: &str) -> Compiled {
    let compiled = expressions::compile(text, &VARIABLES);
    compiled.map_err(|error| format!("compilation error: {error}"))
}

fn rules(validation: &Validation) -> Rules {
    let message = validation.message.as_deref().unwrap_or_default().trim();
    let message = match message.is_empty() {
        true => format!("failed expression: {}", validation.expression.trim()),
        false => message.to_owned(),
    };
    Rules {
        expression: compile(&validation.expression),
        message,
        message_expression: validation.message_expression.as_deref().and_then(|text| {
            // Validation rejects a `messageExpression` that does not compile. If storage has one, `message` replaces
            // it.
            compile(text).ok()
        }),
        reason: validation.reason.clone().unwrap_or_default(),
    }
}

/// Returns the variables that are `named`, and those that these use.
fn needed(
    variables: Vec<(String, Compiled)>,
    mut named: BTreeSet<String>,
) -> Vec<(String, Compiled)> {
    // A variable can use only the previous ones.
    for (name, compiled) in variables.iter().rev() {
        if let (true, Ok(expression)) = (named.contains(name), compiled) {
            named.extend(expression.composed_variables().clone());
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
        // Without rules the binding matches all that the policy matches.
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

//! Reads and compiles MutatingAdmissionPolicies.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, ParamKind, Variable,
};
use serde::Deserialize;
use serde_json::Value;

use super::super::super::expressions::{MutationType, Names, compile_mutation};
use super::super::VARIABLES;
use super::super::read::{Compiled, Definition, PolicySpec};

/// A MutatingAdmissionPolicy.
#[derive(Debug)]
pub(crate) struct MutatingPolicy {
    pub(super) definition: Definition,
    pub(super) mutations: Vec<Mutation>,
    /// `reinvocationPolicy: IfNeeded`
    pub(super) is_reinvocable: bool,
}

/// One mutation.
#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) mutation_type: MutationType,
    pub(super) expression: Compiled,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredSpec {
    match_constraints: Option<MatchResources>,
    match_conditions: Option<Vec<MatchCondition>>,
    variables: Option<Vec<Variable>>,
    param_kind: Option<ParamKind>,
    failure_policy: Option<String>,
    mutations: Option<Vec<StoredMutation>>,
    reinvocation_policy: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMutation {
    patch_type: String,
    apply_configuration: Option<StoredExpression>,
    json_patch: Option<StoredExpression>,
}

#[derive(Debug, Default, Deserialize)]
struct StoredExpression {
    #[serde(default)]
    expression: String,
}

impl MutatingPolicy {
    /// Reads a MutatingAdmissionPolicy.
    ///
    /// # Errors
    /// The object is not a MutatingAdmissionPolicy.
    pub(crate) fn read(stored: &Value) -> Result<Self, String> {
        let name = stored["metadata"]["name"].as_str().unwrap_or_default();
        let spec = StoredSpec::deserialize(&stored["spec"]).map_err(|error| error.to_string())?;
        let mutations = spec.mutations.unwrap_or_default().into_iter();
        let mutations: Vec<Mutation> = mutations.map(Mutation::read).collect();
        let expressions = mutations.iter().flat_map(|mutation| &mutation.expression);
        let named: BTreeSet<String> = expressions
            .flat_map(|expression| expression.composed_variables().clone())
            .collect();
        let policy_spec = PolicySpec {
            constraints: spec.match_constraints,
            conditions: spec.match_conditions,
            variables: spec.variables,
            param_kind: spec.param_kind,
            failure_policy: spec.failure_policy,
        };
        Ok(Self {
            definition: Definition::read(name.to_owned(), policy_spec, named)?,
            mutations,
            is_reinvocable: spec.reinvocation_policy.as_deref() == Some("IfNeeded"),
        })
    }
}

impl Mutation {
    fn read(stored: StoredMutation) -> Self {
        let (mutation_type, written) = match &*stored.patch_type {
            "JSONPatch" => (MutationType::JsonPatch, stored.json_patch),
            _ => (MutationType::ApplyConfiguration, stored.apply_configuration),
        };
        let text = written.unwrap_or_default().expression;
        Self {
            mutation_type,
            expression: compile_mutation(&text, Names::of(&VARIABLES), mutation_type),
        }
    }
}

//! Collects the bindings of a policy that apply to a write, and their parameters.

use std::sync::Arc;

use serde_json::Value;

use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::matching::{Matched, Matcher};
use super::super::request::AdmissionRequest;
use super::read::{Binding, Definition};

/// A binding that applies to a write.
#[derive(Debug)]
pub(super) struct MatchedBinding {
    pub(super) binding: Arc<Binding>,
    /// The parameters: the policy is evaluated once for each. Null stands for no parameter.
    pub(super) params: Vec<Value>,
}

/// The failure of a policy or a binding that cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The binding that failed; `None` if the policy failed.
    pub(super) binding: Option<String>,
    pub(super) why: String,
}

impl Failure {
    pub(super) fn of_policy(why: impl std::fmt::Display) -> Self {
        Self {
            binding: None,
            why: format!("failed to configure policy: {why}"),
        }
    }

    pub(super) fn of_binding(binding: &Binding, why: impl std::fmt::Display) -> Self {
        Self {
            binding: Some(binding.name.clone()),
            why: format!("failed to configure binding: {why}"),
        }
    }
}

/// The bindings and parameters that a policy must be evaluated with for a write.
#[derive(Debug)]
pub(super) struct MatchedPolicy {
    pub(super) matched: Matched,
    pub(super) bindings: Vec<MatchedBinding>,
}

/// Collects the bindings of a policy that apply to `write`; returns `None` if the policy does not match it. Adds
/// failures to `failures`.
pub(super) async fn match_policy(
    cluster: &dyn Cluster,
    write: &AdmissionRequest<'_>,
    (definition, bindings): (&Definition, &[Arc<Binding>]),
    matcher: &mut Matcher,
    failures: &mut Vec<Failure>,
) -> Option<MatchedPolicy> {
    // The bindings are collected first because the future of an iterator with a closure would not be `Send`.
    let bindings: Vec<&Arc<Binding>> = bindings
        .iter()
        .filter(|binding| binding.policy == definition.name)
        .collect();
    if bindings.is_empty() {
        return None;
    }
    let matched = matcher.matches(&definition.constraints, write, cluster);
    let matched = match matched.await {
        Ok(matched) => matched?,
        Err(error) => {
            failures.push(Failure::of_policy(error));
            return None;
        }
    };
    let mut matched_bindings = Vec::new();
    for binding in bindings {
        let applies = match &binding.constraints {
            Some(constraints) => matcher.matches(constraints, write, cluster).await,
            None => Ok(Some(matched.clone())),
        };
        let params = match applies {
            Ok(Some(_)) => params(cluster, write, definition, binding).await,
            Ok(None) => continue,
            Err(error) => Err(error.to_string()),
        };
        match params {
            Ok(params) if params.is_empty() => {}
            Ok(params) => matched_bindings.push(MatchedBinding {
                binding: Arc::clone(binding),
                params,
            }),
            Err(why) => failures.push(Failure::of_binding(binding, why)),
        }
    }
    Some(MatchedPolicy {
        matched,
        bindings: matched_bindings,
    })
}

async fn params(
    cluster: &dyn Cluster,
    write: &AdmissionRequest<'_>,
    definition: &Definition,
    binding: &Binding,
) -> Result<Vec<Value>, String> {
    let (Some(kind), Some(reference)) = (&definition.param_kind, &binding.param) else {
        return Ok(vec![Value::Null]);
    };
    let of_write = match write.is_of_namespaces() {
        true => "",
        false => write.namespace,
    };
    let found = cluster.params(kind, &reference.namespace, of_write, &reference.query);
    let found = found.await.map_err(|error| error.to_string())?;
    if found.is_empty() && reference.denies_when_absent {
        return Err(
            "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned(),
        );
    }
    Ok(found)
}

/// Returns the value of `namespaceObject` in expressions; null for a write of a cluster-scoped object.
///
/// # Errors
/// The namespace does not exist or cannot be read.
pub(super) async fn namespace(
    cluster: &dyn Cluster,
    write: &AdmissionRequest<'_>,
    matcher: &mut Matcher,
) -> Result<Value, AdmissionError> {
    match write.namespace.is_empty() || write.is_of_namespaces() {
        true => Ok(Value::Null),
        false => matcher.namespace(write, cluster).await.cloned(),
    }
}

/// Converts `object` of a write to the kind of `matched`.
///
/// # Errors
/// It cannot be converted.
pub(super) async fn converted(
    cluster: &dyn Cluster,
    write: &AdmissionRequest<'_>,
    matched: &Matched,
    object: &Value,
) -> Result<Value, String> {
    if matched.kind == write.kind || object.is_null() {
        return Ok(object.clone());
    }
    cluster.convert(object.clone(), &matched.kind).await
}

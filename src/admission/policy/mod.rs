//! ValidatingAdmissionPolicy: policies and their bindings as they are followed, and what they say of a
//! write. Expressions are CEL's business; which writes a policy is about is `matching`'s.
//!
//! # Definitions
//!
//! - *Decision*: what one validation of a policy, or a failure to get that far, comes to for one binding and
//!   one parameter.

mod evaluate;
mod read;

pub(super) use read::{Binding, Policy, VARIABLES};

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::attributes::Attributes;
use super::authorizer::Authorizing;
use super::cluster::{Cluster, ParamQuery};
use super::error::{AdmissionError, about};
use super::matching::{Matched, Matcher};
use super::webhook::review;
use crate::api::{Status, StatusCause};
use crate::tasks::Tasks;
use evaluate::{Evaluation, Seen};
use read::Action;

/// A validation that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Denial {
    policy: String,
    /// Empty when it did not get as far as one.
    binding: String,
    message: String,
    /// Empty is `Invalid`.
    reason: String,
    deny: bool,
    warn: bool,
}

/// Has `policies` judge `write`, by `until`.
///
/// # Errors
/// One of them denies it.
pub(super) async fn validate(
    tasks: &Tasks,
    cluster: &dyn Cluster,
    policies: &[Arc<Policy>],
    bindings: &[Arc<Binding>],
    write: &Attributes<'_>,
    until: Instant,
) -> Result<(), AdmissionError> {
    let mut matcher = Matcher::new();
    let mut denials = Vec::new();
    let mut evaluations = Vec::new();
    for policy in policies {
        let bound = bindings
            .iter()
            .filter(|binding| binding.policy == policy.name);
        let bound: Vec<&Arc<Binding>> = bound.collect();
        if bound.is_empty() {
            continue;
        }
        let mut gathering = Gathering {
            cluster,
            write,
            policy,
            matcher: &mut matcher,
            denials: &mut denials,
            evaluations: &mut evaluations,
        };
        gathering.policy(&bound).await;
    }
    if !evaluations.is_empty() {
        // An evaluation can take its budget's time, which is not the other requests'.
        let evaluated = tasks.spawn_blocking("admission-policies", move || {
            evaluate::denials(&evaluations, until)
        });
        let evaluated = evaluated.await;
        denials.extend(evaluated.map_err(|error| AdmissionError::Internal(error.to_string()))?);
    }
    for denial in denials.iter().filter(|denial| denial.warn) {
        write.warnings.add(format!(
            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
            denial.policy, denial.binding, denial.message
        ));
    }
    match denials.into_iter().find(|denial| denial.deny) {
        Some(denial) => Err(denial.refuse(write)),
        None => Ok(()),
    }
}

/// What has to be found out of the cluster before a policy can be evaluated.
struct Gathering<'a> {
    cluster: &'a dyn Cluster,
    write: &'a Attributes<'a>,
    policy: &'a Arc<Policy>,
    matcher: &'a mut Matcher,
    denials: &'a mut Vec<Denial>,
    evaluations: &'a mut Vec<Evaluation>,
}

impl Gathering<'_> {
    async fn policy(&mut self, bindings: &[&Arc<Binding>]) {
        let constraints = &self.policy.constraints;
        let matched = self
            .matcher
            .matches(constraints, self.write, self.cluster)
            .await;
        let matched = match matched {
            Ok(Some(matched)) => matched,
            Ok(None) => return,
            Err(error) => return self.failed(None, &error.to_string()),
        };
        let mut seen = None;
        for binding in bindings {
            let constraints = binding.constraints.as_ref();
            if let Some(constraints) = constraints {
                match self
                    .matcher
                    .matches(constraints, self.write, self.cluster)
                    .await
                {
                    Ok(Some(_)) => {}
                    Ok(None) => continue,
                    Err(error) => {
                        self.failed(Some(binding), &error.to_string());
                        continue;
                    }
                }
            }
            let params = match self.params(binding).await {
                Ok(params) => params,
                Err(why) => {
                    self.failed(Some(binding), &why);
                    continue;
                }
            };
            if params.is_empty() {
                continue;
            }
            let seen = match &seen {
                Some(seen) => Arc::clone(seen),
                None => match self.seen(&matched).await {
                    Ok(made) => seen.insert(Arc::new(made)).clone(),
                    Err(why) => return self.failed(Some(binding), &why),
                },
            };
            self.evaluations.push(Evaluation {
                policy: self.policy.clone(),
                binding: Arc::clone(binding),
                seen,
                params,
            });
        }
    }

    /// The parameters of one evaluation each; null is none.
    async fn params(&self, binding: &Binding) -> Result<Vec<Value>, String> {
        let (Some(kind), Some(reference)) = (&self.policy.param_kind, &binding.param) else {
            return Ok(vec![Value::Null]);
        };
        let of_write = match self.write.is_of_namespaces() {
            true => "",
            false => self.write.namespace,
        };
        let query: &ParamQuery = &reference.query;
        let found = self
            .cluster
            .params(kind, &reference.namespace, of_write, query)
            .await;
        let found = found.map_err(|error| error.to_string())?;
        if found.is_empty() && reference.denies_when_absent {
            return Err(
                "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned(),
            );
        }
        Ok(found)
    }

    /// What the expressions see.
    async fn seen(&mut self, matched: &Matched) -> Result<Seen, String> {
        let write = self.write;
        let in_one = !write.namespace.is_empty() && !write.is_of_namespaces();
        let namespace = match in_one {
            true => {
                let namespace = self.matcher.namespace(write, self.cluster).await;
                namespace.map_err(|error| error.to_string())?.clone()
            }
            false => Value::Null,
        };
        Ok(Seen {
            object: self.converted(matched, &write.object).await?,
            old_object: self.converted(matched, &write.old_object).await?,
            request: review::request(write, matched),
            namespace,
            authorizing: Authorizing::of(write, self.cluster.authorizer()),
        })
    }

    async fn converted(&self, matched: &Matched, object: &Value) -> Result<Value, String> {
        if matched.kind == self.write.kind || object.is_null() {
            return Ok(object.clone());
        }
        self.cluster.convert(object.clone(), &matched.kind).await
    }

    /// What becomes of a policy that cannot be asked is told by its failure policy.
    fn failed(&mut self, binding: Option<&Binding>, why: &str) {
        if self.policy.ignores_failures {
            tracing::warn!(policy = self.policy.name, why, "a policy is left out");
            return;
        }
        let what = if binding.is_some() {
            "binding"
        } else {
            "policy"
        };
        self.denials.push(Denial {
            policy: self.policy.name.clone(),
            binding: binding
                .map(|binding| binding.name.clone())
                .unwrap_or_default(),
            message: format!("failed to configure {what}: {why}"),
            reason: String::new(),
            deny: true,
            warn: false,
        });
    }
}

impl Denial {
    fn of(policy: &Policy, binding: &Binding, message: String, reason: &str) -> Self {
        let has = |action| binding.actions.contains(&action);
        Self {
            policy: policy.name.clone(),
            binding: binding.name.clone(),
            message,
            reason: reason.to_owned(),
            deny: has(Action::Deny),
            warn: has(Action::Warn),
        }
    }

    fn refuse(self, write: &Attributes<'_>) -> AdmissionError {
        let binding = match &*self.binding {
            "" => String::new(),
            name => format!(" with binding '{name}'"),
        };
        let told = format!(
            "ValidatingAdmissionPolicy '{}'{binding} denied request: {}",
            self.policy, self.message
        );
        let resource = write.resource.qualified();
        let message = match write.name {
            "" => format!("{resource} is forbidden: {told}"),
            name => format!("{resource} {name:?} is forbidden: {told}"),
        };
        let reason = match &*self.reason {
            "" => "Invalid",
            reason => reason,
        };
        let code = match reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        let mut details = about(&resource, write.name);
        details.causes.push(StatusCause {
            message: told,
            ..StatusCause::default()
        });
        let status = Status::failure(code, reason, message).with_details(details);
        AdmissionError::Denied(Box::new(status))
    }
}

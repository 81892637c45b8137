//! Admission policies and their bindings, which are compiled when they change. This module evaluates
//! ValidatingAdmissionPolicy, `mutating` evaluates MutatingAdmissionPolicy; both share matching, parameters,
//! variables and conditions. [`cel`](watchet_cel) compiles and evaluates the expressions.

mod denial;
mod evaluate;
mod matched_policy;
pub(super) mod mutating;
mod read;
mod scope;

pub(super) use mutating::MutatingPolicy;
pub(super) use read::{Binding, Policy, VARIABLES};

use std::sync::Arc;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::error::AdmissionError;
use super::expressions::AuthorizerVariable;
use super::matching::{Matched, Matcher};
use super::request::AdmissionRequest;
use super::webhook::review;
use denial::Denial;
use evaluate::Evaluation;
use matched_policy::{Failure, converted, match_policy, namespace};
use scope::Activation;
use watchet_tasks::Tasks;

/// Evaluates `policies` for `write`. Evaluations that begin after `deadline` fail.
///
/// # Errors
/// A policy denies the write.
pub(super) async fn validate(
    tasks: &Tasks,
    cluster: &dyn Cluster,
    policies: &[Arc<Policy>],
    bindings: &[Arc<Binding>],
    write: &AdmissionRequest<'_>,
    deadline: Instant,
) -> Result<(), AdmissionError> {
    let mut collector = EvaluationCollector {
        cluster,
        write,
        matcher: Matcher::new(),
        denials: Vec::new(),
        evaluations: Vec::new(),
    };
    for policy in policies {
        collector.policy(policy, bindings).await;
    }
    let EvaluationCollector {
        mut denials,
        evaluations,
        ..
    } = collector;
    if !evaluations.is_empty() {
        // An evaluation blocks its thread for as long as its budget allows.
        let evaluated = tasks.spawn_blocking("admission-policies", move || {
            evaluate::denials(&evaluations, deadline)
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

/// Collects what policies need from the cluster before their evaluation.
struct EvaluationCollector<'a> {
    cluster: &'a dyn Cluster,
    write: &'a AdmissionRequest<'a>,
    matcher: Matcher,
    denials: Vec<Denial>,
    evaluations: Vec<Evaluation>,
}

impl EvaluationCollector<'_> {
    async fn policy(&mut self, policy: &Arc<Policy>, bindings: &[Arc<Binding>]) {
        let mut failures = Vec::new();
        let of_policy = (&policy.definition, bindings);
        let matched_policy = match_policy(
            self.cluster,
            self.write,
            of_policy,
            &mut self.matcher,
            &mut failures,
        )
        .await;
        if let Some(matched_policy) = matched_policy
            && let Some(first) = matched_policy.bindings.first()
        {
            match self.activation(&matched_policy.matched).await {
                Ok(activation) => {
                    let activation = Arc::new(activation);
                    let bindings = matched_policy.bindings.into_iter();
                    self.evaluations.extend(bindings.map(|matched| Evaluation {
                        policy: policy.clone(),
                        binding: matched.binding,
                        activation: activation.clone(),
                        params: matched.params,
                    }));
                }
                Err(why) => failures.push(Failure::of_binding(&first.binding, why)),
            }
        }
        for failure in failures {
            self.failed(policy, failure);
        }
    }

    /// Returns the values of the variables.
    async fn activation(&mut self, matched: &Matched) -> Result<Activation, String> {
        let (cluster, write) = (self.cluster, self.write);
        let namespace = namespace(cluster, write, &mut self.matcher).await;
        Ok(Activation {
            object: converted(cluster, write, matched, &write.object).await?,
            old_object: converted(cluster, write, matched, &write.old_object).await?,
            request: review::request(write, matched),
            namespace: namespace.map_err(|error| error.to_string())?,
            authorizer: AuthorizerVariable::new(write, cluster.authorizer()),
        })
    }

    /// Handles a policy that cannot be evaluated, by its failure policy.
    fn failed(&mut self, policy: &Policy, failure: Failure) {
        let (policy, why) = (&policy.definition, failure.why);
        if policy.ignores_failures {
            tracing::warn!(
                policy = policy.name,
                why,
                "skipped a policy that cannot be evaluated"
            );
            return;
        }
        self.denials.push(Denial {
            policy: policy.name.clone(),
            binding: failure.binding.unwrap_or_default(),
            message: why,
            reason: String::new(),
            deny: true,
            warn: false,
        });
    }
}

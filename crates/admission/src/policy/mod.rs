//! Admission policies and their bindings, compiled when they change, and what they make of a write. This
//! module evaluates ValidatingAdmissionPolicy, `mutating` evaluates MutatingAdmissionPolicy; both share
//! matching, parameters, variables and conditions. Expressions are compiled and run by [`cel`](watchet_cel).
//!
//! # Definitions
//!
//! - *Decision*: what one validation of a policy, or a failure to get that far, comes to for one binding and
//!   one parameter.

mod evaluate;
mod gather;
pub(super) mod mutating;
mod read;
mod scope;

pub(super) use mutating::MutatingPolicy;
pub(super) use read::{Binding, Policy, VARIABLES};

use std::sync::Arc;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::error::{AdmissionError, about};
use super::expressions::AuthorizerVariable;
use super::matching::{Matched, Matcher};
use super::request::AdmissionRequest;
use super::webhook::review;
use evaluate::Evaluation;
use gather::{Failure, converted, gather, namespace};
use read::Action;
use scope::Seen;
use watchet_api::{Status, StatusCause};
use watchet_tasks::Tasks;

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
    write: &AdmissionRequest<'_>,
    until: Instant,
) -> Result<(), AdmissionError> {
    let mut gathering = Gathering {
        cluster,
        write,
        matcher: Matcher::new(),
        denials: Vec::new(),
        evaluations: Vec::new(),
    };
    for policy in policies {
        gathering.policy(policy, bindings).await;
    }
    let Gathering {
        mut denials,
        evaluations,
        ..
    } = gathering;
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

/// What has to be found out of the cluster before policies can be evaluated.
struct Gathering<'a> {
    cluster: &'a dyn Cluster,
    write: &'a AdmissionRequest<'a>,
    matcher: Matcher,
    denials: Vec<Denial>,
    evaluations: Vec<Evaluation>,
}

impl Gathering<'_> {
    async fn policy(&mut self, policy: &Arc<Policy>, bindings: &[Arc<Binding>]) {
        let mut failures = Vec::new();
        let of_policy = (&policy.definition, bindings);
        let gathered = gather(
            self.cluster,
            self.write,
            of_policy,
            &mut self.matcher,
            &mut failures,
        )
        .await;
        if let Some(gathered) = gathered
            && let Some(first) = gathered.bound.first()
        {
            match self.seen(&gathered.matched).await {
                Ok(seen) => {
                    let seen = Arc::new(seen);
                    let bound = gathered.bound.into_iter();
                    self.evaluations.extend(bound.map(|bound| Evaluation {
                        policy: policy.clone(),
                        binding: bound.binding,
                        seen: seen.clone(),
                        params: bound.params,
                    }));
                }
                Err(why) => failures.push(Failure::of_binding(&first.binding, why)),
            }
        }
        for failure in failures {
            self.failed(policy, failure);
        }
    }

    /// What the expressions see.
    async fn seen(&mut self, matched: &Matched) -> Result<Seen, String> {
        let (cluster, write) = (self.cluster, self.write);
        let namespace = namespace(cluster, write, &mut self.matcher).await;
        Ok(Seen {
            object: converted(cluster, write, matched, &write.object).await?,
            old_object: converted(cluster, write, matched, &write.old_object).await?,
            request: review::request(write, matched),
            namespace: namespace.map_err(|error| error.to_string())?,
            authorizer: AuthorizerVariable::new(write, cluster.authorizer()),
        })
    }

    /// What becomes of a policy that cannot be asked is told by its failure policy.
    fn failed(&mut self, policy: &Policy, failure: Failure) {
        let (policy, why) = (&policy.definition, failure.why);
        if policy.ignores_failures {
            tracing::warn!(policy = policy.name, why, "a policy is left out");
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

impl Denial {
    fn of(policy: &Policy, binding: &Binding, message: String, reason: &str) -> Self {
        let has = |action| binding.actions.contains(&action);
        Self {
            policy: policy.definition.name.clone(),
            binding: binding.name.clone(),
            message,
            reason: reason.to_owned(),
            deny: has(Action::Deny),
            warn: has(Action::Warn),
        }
    }

    fn refuse(self, write: &AdmissionRequest<'_>) -> AdmissionError {
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

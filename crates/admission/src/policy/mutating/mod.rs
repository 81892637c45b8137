//! MutatingAdmissionPolicy (KEP-3962): the policies that mutate a write, and their order. Policies run in the order of
//! their names, with their bindings in the order of their names, and with the parameters in the order in which the
//! cluster returns them. Each evaluation gets the object as the previous ones changed it. Whether a policy applies
//! depends on the object before the first policy.

mod evaluate;
mod read;

pub(crate) use read::MutatingPolicy;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::super::cluster::{Cluster, MutationError};
use super::super::error::{AdmissionError, about};
use super::super::expressions::AuthorizerVariable;
use super::super::matching::{Matched, Matcher};
use super::super::reinvocation::{Calls, Reinvocation};
use super::super::request::{AdmissionRequest, Operation};
use super::super::webhook::review;
use super::Binding;
use super::evaluate::EVALUATIONS_MAX;
use super::matched_policy::{
    Failure, MatchedBinding, MatchedPolicy, converted, match_policy, namespace,
};
use super::scope::Activation;
use evaluate::Step;
use watchet_api::{Status, StatusCause};
use watchet_tasks::Tasks;

/// The maximum size of an object that a policy has enlarged: the limit of the objects that clients send.
const OBJECT_BYTES_MAX: usize = 3 << 20;

/// The maximum number of failures in an error.
const FAILURES_MAX: usize = 100;

/// One evaluation of a policy: the names of the policy, of the binding and of the parameter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Invocation {
    policy: String,
    binding: String,
    param: Option<(String, String)>,
}

impl Invocation {
    fn of(policy: &MutatingPolicy, binding: &Binding, params: &Value) -> Self {
        let text = |name: &str| {
            let text = params["metadata"][name].as_str();
            text.unwrap_or_default().to_owned()
        };
        Self {
            policy: policy.definition.name.clone(),
            binding: binding.name.clone(),
            param: (!params.is_null()).then(|| (text("namespace"), text("name"))),
        }
    }
}

/// The policies of a round, and what their evaluation needs.
#[derive(Clone, Copy)]
pub(crate) struct Mutating<'a> {
    pub(crate) tasks: &'a Tasks,
    pub(crate) cluster: &'a dyn Cluster,
    pub(crate) policies: &'a [Arc<MutatingPolicy>],
    pub(crate) bindings: &'a [Arc<Binding>],
    pub(crate) deadline: Instant,
}

impl Mutating<'_> {
    /// Runs one round of the policies, and replaces the object of `write` by the result.
    ///
    /// # Errors
    /// A policy with the failure policy `Fail` failed, or the namespace of the write does not exist.
    pub(crate) async fn round(
        self,
        write: &mut AdmissionRequest<'_>,
        reinvocation: &mut Reinvocation,
        calls: &mut Calls<Invocation>,
    ) -> Result<(), AdmissionError> {
        if write.operation == Operation::Delete || write.object.is_null() {
            return Ok(());
        }
        calls.begin(&write.object);
        let mut round = Round {
            mutating: self,
            deadline: self.deadline.min(Instant::now() + EVALUATIONS_MAX),
            reinvocation,
            calls,
            failures: Vec::new(),
        };
        round.run(write).await?;
        let failures = round.failures;
        calls.end(&write.object);
        match failures.is_empty() {
            true => Ok(()),
            false => Err(refusal(failures, write)),
        }
    }
}

/// A failure of a policy that its failure policy does not ignore.
struct Failed {
    policy: String,
    failure: Failure,
    /// Empty for the default, `Forbidden`.
    reason: &'static str,
}

impl Failed {
    fn message(&self) -> String {
        let (policy, why) = (&self.policy, &self.failure.why);
        match &self.failure.binding {
            Some(binding) => {
                format!("policy '{policy}' with binding '{binding}' denied request: {why}")
            }
            None => format!("policy {policy:?} denied request: {why}"),
        }
    }
}

struct Round<'a> {
    mutating: Mutating<'a>,
    deadline: Instant,
    reinvocation: &'a mut Reinvocation,
    calls: &'a mut Calls<Invocation>,
    failures: Vec<Failed>,
}

impl Round<'_> {
    async fn run(&mut self, write: &mut AdmissionRequest<'_>) -> Result<(), AdmissionError> {
        let Mutating {
            cluster,
            policies,
            bindings,
            ..
        } = self.mutating;
        let mut matcher = Matcher::new();
        let mut matched_policies = Vec::new();
        for policy in policies {
            let mut failures = Vec::new();
            let of_policy = (&policy.definition, bindings);
            let matched_policy =
                match_policy(cluster, write, of_policy, &mut matcher, &mut failures).await;
            for failure in failures {
                self.failed(policy, failure, "");
            }
            let matched_policy =
                matched_policy.filter(|matched_policy| !matched_policy.bindings.is_empty());
            matched_policies.extend(matched_policy.map(|matched_policy| (policy, matched_policy)));
        }
        if matched_policies.is_empty() {
            return Ok(());
        }
        let namespace = namespace(cluster, write, &mut matcher).await?;
        let mut is_mutated = false;
        for (policy, matched_policy) in matched_policies {
            is_mutated |= self
                .policy(policy, matched_policy, &namespace, write)
                .await?;
        }
        if is_mutated {
            self.calls.changed();
            self.reinvocation.require();
        }
        Ok(())
    }

    /// Runs a policy. Returns true if it applied a mutation, even if that did not change the object.
    async fn policy(
        &mut self,
        policy: &Arc<MutatingPolicy>,
        matched_policy: MatchedPolicy,
        namespace: &Value,
        write: &mut AdmissionRequest<'_>,
    ) -> Result<bool, AdmissionError> {
        let cluster = self.mutating.cluster;
        let MatchedPolicy { matched, bindings } = matched_policy;
        let (object, old_object) = match form(cluster, write, &matched).await {
            Ok(form) => form,
            Err(why) => {
                self.failed(policy, Failure::of_policy(why), "");
                return Ok(false);
            }
        };
        let before = object.clone();
        let mut subject = Subject {
            activation: Activation {
                object,
                old_object,
                request: review::request(write, &matched),
                namespace: namespace.clone(),
                authorizer: AuthorizerVariable::new(write, cluster.authorizer()),
            },
            matched,
            is_mutated: false,
        };
        for MatchedBinding { binding, params } in bindings {
            for params in params {
                let evaluated = self.invoke(policy, &binding, params, subject, write);
                subject = evaluated.await?;
            }
        }
        if subject.activation.object != before {
            let mut object = subject.activation.object;
            if subject.matched.kind != write.kind {
                let back = cluster.convert(object, &write.kind).await;
                object = back.map_err(AdmissionError::Internal)?;
            }
            write.object = Cow::Owned(object);
        }
        Ok(subject.is_mutated)
    }

    /// Evaluates a policy for one binding and parameter, if this round calls it.
    async fn invoke(
        &mut self,
        policy: &Arc<MutatingPolicy>,
        binding: &Binding,
        params: Value,
        mut subject: Subject,
        write: &AdmissionRequest<'_>,
    ) -> Result<Subject, AdmissionError> {
        let invocation = Invocation::of(policy, binding, &params);
        if !self.calls.should_call(self.reinvocation, &invocation) {
            return Ok(subject);
        }
        let params = Arc::new(params);
        let mut is_changed = false;
        for index in 0..policy.mutations.len() {
            let step;
            (subject, step) = self.step(policy, index, &params, subject).await?;
            let (why, reason) = match step {
                Step::NoMatch => return Ok(subject),
                Step::MatchConditionError(why) => {
                    let failure = failure_of(binding, why);
                    self.failed(policy, failure, "Invalid");
                    return Ok(subject);
                }
                Step::Failed(why) => (why, "Invalid"),
                Step::Change(change) => {
                    let object = &subject.activation.object;
                    let kind = &subject.matched.kind;
                    let mutated = self.mutating.cluster.mutated(write, kind, object, change);
                    match mutated.await.and_then(|mutated| fitting(object, mutated)) {
                        Ok(mutated) => {
                            is_changed |= mutated != *object;
                            subject.activation.object = mutated;
                            subject.is_mutated = true;
                            continue;
                        }
                        Err(MutationError::Failed(why)) => (why, "Invalid"),
                        Err(MutationError::Internal(why)) => {
                            return Err(AdmissionError::Internal(why));
                        }
                        Err(MutationError::NoType(kind)) => return Err(no_type(&kind)),
                    }
                }
            };
            self.failed(policy, failure_of(binding, why), reason);
        }
        if is_changed {
            self.calls.changed();
            self.reinvocation.require();
        }
        if policy.is_reinvocable {
            self.calls.called(invocation);
        }
        Ok(subject)
    }

    /// Evaluates a mutation on a blocking thread, because it can take all the time of its budget and would delay other
    /// requests.
    async fn step(
        &self,
        policy: &Arc<MutatingPolicy>,
        index: usize,
        params: &Arc<Value>,
        subject: Subject,
    ) -> Result<(Subject, Step), AdmissionError> {
        let deadline = self.deadline;
        if Instant::now() >= deadline {
            let why = "validation failed due to running out of cost budget, no further validation rules \
                       will be run";
            return Ok((subject, Step::Failed(why.to_owned())));
        }
        let (policy, params) = (Arc::clone(policy), Arc::clone(params));
        let evaluated = self
            .mutating
            .tasks
            .spawn_blocking("admission-policies", move || {
                let step = evaluate::step(&policy, index, &subject.activation, &params, deadline);
                (subject, step)
            });
        let evaluated = evaluated.await;
        evaluated.map_err(|error| AdmissionError::Internal(error.to_string()))
    }

    /// Records a failure, unless the failure policy ignores it.
    fn failed(&mut self, policy: &MutatingPolicy, failure: Failure, reason: &'static str) {
        let definition = &policy.definition;
        if definition.ignores_failures {
            let (policy, why) = (&definition.name, failure.why);
            tracing::warn!(policy, why, "a mutating policy failed and is ignored");
        } else if self.failures.len() < FAILURES_MAX {
            self.failures.push(Failed {
                policy: definition.name.clone(),
                failure,
                reason,
            });
        }
    }
}

/// The object and the other variables that the mutations of a policy read and change.
struct Subject {
    activation: Activation,
    matched: Matched,
    /// True if a mutation was applied.
    is_mutated: bool,
}

/// Converts the object and the old object to the kind that a policy matched.
async fn form(
    cluster: &dyn Cluster,
    write: &AdmissionRequest<'_>,
    matched: &Matched,
) -> Result<(Value, Value), String> {
    Ok((
        converted(cluster, write, matched, &write.object).await?,
        converted(cluster, write, matched, &write.old_object).await?,
    ))
}

fn failure_of(binding: &Binding, why: String) -> Failure {
    Failure {
        binding: Some(binding.name.clone()),
        why,
    }
}

/// Returns `mutated`. Fails if it is too large and larger than `object`: policies could double it repeatedly.
fn fitting(object: &Value, mutated: Value) -> Result<Value, MutationError> {
    let bytes = size(&mutated);
    match bytes > OBJECT_BYTES_MAX && bytes > size(object) {
        true => Err(MutationError::Failed(format!(
            "the mutated object is larger than {OBJECT_BYTES_MAX} bytes"
        ))),
        false => Ok(mutated),
    }
}

/// Returns the approximate size of `value` as JSON in bytes.
fn size(value: &Value) -> usize {
    const OF_ANY: usize = 4;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => OF_ANY,
        Value::String(text) => OF_ANY + text.len(),
        Value::Array(items) => OF_ANY + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => {
            let sizes = members
                .iter()
                .map(|(name, member)| name.len() + size(member));
            OF_ANY + sizes.map(|size| size + OF_ANY).sum::<usize>()
        }
    }
}

/// Returns the 503 for an object whose type is not known yet.
fn no_type(kind: &str) -> AdmissionError {
    let message = format!(
        "Resource kind {kind} not found. There can be a delay between when CustomResourceDefinitions are \
         created and when they are available."
    );
    AdmissionError::Denied(Box::new(Status::failure(
        503,
        "ServiceUnavailable",
        message,
    )))
}

/// Returns the 403 for these failures. As upstream, the code is 403 even if the reason is `Invalid`.
fn refusal(failures: Vec<Failed>, write: &AdmissionRequest<'_>) -> AdmissionError {
    let first = failures.first();
    let reason = first.map_or("", |first| first.reason);
    let reason = match reason {
        "" => "Forbidden",
        reason => reason,
    };
    let messages: Vec<String> = failures.iter().map(Failed::message).collect();
    let message = messages.first().cloned().unwrap_or_default();
    let mut details = about(&write.resource.qualified(), write.shown_name());
    details
        .causes
        .extend(messages.into_iter().map(|message| StatusCause {
            message,
            ..StatusCause::default()
        }));
    let status = Status::failure(403, reason, message).with_details(details);
    AdmissionError::Denied(Box::new(status))
}

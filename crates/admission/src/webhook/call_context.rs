//! Matching and calling of one webhook.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::super::client::{WebhookClient, WebhookError};
use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::expressions::{self, AuthorizerVariable};
use super::super::matching::{Matched, Matcher};
use super::super::request::AdmissionRequest;
use super::conditions::{CONDITION_VARIABLES, MatchConditions, MatchResult};
use super::hooks::Hook;
use super::review::{self, Review, Verified};
use watchet_cel::Scope;
use watchet_tasks::Tasks;
use watchet_telemetry::{ChildSpan, text_attribute};

/// The context of the calls of a write's webhooks, besides the write.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    pub(crate) client: &'a WebhookClient,
    pub(crate) cluster: &'a dyn Cluster,
    pub(crate) tasks: &'a Tasks,
    /// The deadline of the write.
    pub(crate) deadline: Instant,
}

/// A webhook that matches a write.
pub(super) struct MatchedHook<'a> {
    pub(super) hook: &'a Hook,
    pub(super) matched: Matched,
}

impl CallContext<'_> {
    /// Matches `hook` against `write`; returns `None` if the hook is not called.
    pub(super) async fn match_hook<'h>(
        &self,
        hook: &'h Hook,
        matcher: &mut Matcher,
        write: &AdmissionRequest<'_>,
    ) -> Result<Option<MatchedHook<'h>>, AdmissionError> {
        let matched = matcher
            .matches(&hook.constraints, write, self.cluster)
            .await?;
        let Some(matched) = matched else {
            return Ok(None);
        };
        match check_conditions(self, &hook.conditions, write, &matched).await {
            MatchResult::Match => Ok(Some(MatchedHook { hook, matched })),
            MatchResult::NoMatch => Ok(None),
            MatchResult::Error(why) if hook.ignores_failures => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "skipped a webhook whose match conditions failed"
                );
                Ok(None)
            }
            MatchResult::Error(why) => Err(AdmissionError::Forbidden {
                resource: write.resource.qualified(),
                name: write.name.to_owned(),
                why,
                causes: Vec::new(),
            }),
        }
    }

    /// Calls a webhook. Returns `None` if the call failed and the failure policy is `Ignore`.
    pub(super) async fn call(
        &self,
        matched: &MatchedHook<'_>,
        write: &AdmissionRequest<'_>,
        object: &Value,
        mutating: bool,
    ) -> Result<Option<Verified>, AdmissionError> {
        let hook = matched.hook;
        if write.dry_run && hook.has_side_effects {
            return Err(AdmissionError::DryRun {
                webhook: hook.name.clone(),
            });
        }
        match self.send(matched, write, object, mutating).await {
            Ok(verified) => {
                for warning in &verified.warnings {
                    write.warnings.add(warning.clone());
                }
                match verified.denied {
                    None => Ok(Some(verified)),
                    Some(status) => Err(AdmissionError::Denied(Box::new(status))),
                }
            }
            Err(why) => {
                let why = format!("failed calling webhook {:?}: {why}", hook.name);
                if !hook.ignores_failures {
                    return Err(AdmissionError::Internal(why));
                }
                tracing::warn!(why, "a webhook failed open");
                Ok(None)
            }
        }
    }

    async fn send(
        &self,
        matched: &MatchedHook<'_>,
        write: &AdmissionRequest<'_>,
        object: &Value,
        mutating: bool,
    ) -> Result<Verified, String> {
        let hook = matched.hook;
        let client = hook.client.as_ref().map_err(Clone::clone);
        let client = client.map_err(|e| format!("could not get REST client: {e}"))?;
        let old = self
            .converted(&matched.matched, write, &write.old_object)
            .await?;
        let review = Review::new(&hook.name, write, &matched.matched, object, &old);
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        let timeout = hook.timeout.min(remaining.max(Duration::from_millis(1)));
        let span = webhook_span(hook, write, &review, mutating);
        let response = span.run_fallible(self.client.call(client, review.body(), timeout));
        let response = response.await.map_err(|error| match error {
            WebhookError::Config(why) => {
                format!("could not get REST client: {why}")
            }
            other => format!("failed to call webhook: {other}"),
        })?;
        review.verify(&response, mutating)
    }

    /// Converts `object` to the version that the webhook matched.
    pub(super) async fn converted(
        &self,
        matched: &Matched,
        write: &AdmissionRequest<'_>,
        object: &Value,
    ) -> Result<Value, String> {
        if matched.kind == write.kind || object.is_null() {
            return Ok(object.clone());
        }
        self.cluster.convert(object.clone(), &matched.kind).await
    }
}

/// Starts the span of a call with upstream's name and attributes.
fn webhook_span(
    hook: &Hook,
    write: &AdmissionRequest<'_>,
    review: &Review,
    mutating: bool,
) -> ChildSpan {
    ChildSpan::start(|| {
        let name = match mutating {
            true => "Call mutating webhook",
            false => "Call validating webhook",
        };
        let resource = &write.resource;
        let (group, version) = (&resource.group, &resource.version);
        let resource = format!("{group}/{version}, Resource={}", resource.resource);
        let attributes = vec![
            text_attribute("configuration", &*hook.configuration),
            text_attribute("webhook", &*hook.name),
            text_attribute("resource", resource),
            text_attribute("subresource", write.subresource),
            text_attribute("operation", write.operation.as_str()),
            text_attribute("UID", review.uid()),
        ];
        (name.into(), attributes)
    })
}

/// Evaluates `conditions` for `write` within the deadline of the write.
async fn check_conditions(
    context: &CallContext<'_>,
    conditions: &MatchConditions,
    write: &AdmissionRequest<'_>,
    matched: &Matched,
) -> MatchResult {
    if conditions.is_empty() {
        return MatchResult::Match;
    }
    let conditions = conditions.clone();
    let values = [
        write.object.clone().into_owned(),
        write.old_object.clone().into_owned(),
        review::request(write, matched),
    ];
    let authorizer = AuthorizerVariable::new(write, context.cluster.authorizer());
    let deadline = context.deadline;
    let evaluated = context.tasks.spawn_blocking("match-conditions", move || {
        let mut scope = scope_of(&values, deadline);
        authorizer.set_in(&mut scope);
        conditions.evaluate(&scope)
    });
    evaluated
        .await
        .unwrap_or_else(|error| MatchResult::Error(format!("it cannot be evaluated: {error}")))
}

fn scope_of(values: &[Value; 3], deadline: Instant) -> Scope<'static> {
    let mut scope = expressions::new_scope(deadline);
    for (name, value) in CONDITION_VARIABLES.iter().zip(values) {
        scope.set(name, value);
    }
    scope
}

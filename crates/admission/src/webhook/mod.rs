//! Webhooks: the configurations as they are followed, and the calls that a write makes of them. How a
//! call gets there is the client's business.
//!
//! # Order
//!
//! Configurations by name, their webhooks as written. Mutating ones are called one after the other, each
//! with what those before made of the object; then, once, those that want to see what others changed since.
//! Validating ones are called at the same time, and all of them are waited for.

mod conditions;
mod hooks;
mod mutating;
pub(super) mod review;
mod validating;

pub(super) use conditions::{CONDITION_VARIABLES, Conditions, Verdict};
pub(super) use hooks::Hook;
pub(super) use mutating::mutate;
pub(super) use validating::validate;

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::client::WebhookClient;
use super::cluster::Cluster;
use super::error::AdmissionError;
use super::matching::{Matched, Matcher};
use super::request::AdmissionRequest;
use review::{Review, Verified};
use watchet_tasks::Tasks;

/// What calls need besides the write.
#[derive(Clone, Copy)]
pub(super) struct Calling<'a> {
    pub(super) client: &'a WebhookClient,
    pub(super) cluster: &'a dyn Cluster,
    pub(super) tasks: &'a Tasks,
    /// When the write's own time is up.
    pub(super) until: Instant,
}

/// A webhook that is to be called.
struct Due<'a> {
    hook: &'a Hook,
    matched: Matched,
}

impl Calling<'_> {
    /// As what `hook` is to be called about `write`; `None`: it is not.
    async fn due<'h>(
        &self,
        hook: &'h Hook,
        matcher: &mut Matcher,
        write: &AdmissionRequest<'_>,
    ) -> Result<Option<Due<'h>>, AdmissionError> {
        let matched = matcher
            .matches(&hook.constraints, write, self.cluster)
            .await?;
        let Some(matched) = matched else {
            return Ok(None);
        };
        match conditions::check(self, &hook.conditions, write, &matched).await {
            Verdict::Met => Ok(Some(Due { hook, matched })),
            Verdict::Unmet => Ok(None),
            Verdict::Failed(why) if hook.ignores_failures => {
                tracing::warn!(webhook = hook.name, why, "a webhook is left out");
                Ok(None)
            }
            Verdict::Failed(why) => Err(AdmissionError::Forbidden {
                resource: write.resource.qualified(),
                name: write.name.to_owned(),
                why,
                causes: Vec::new(),
            }),
        }
    }

    /// Asks a webhook. `Ok(None)`: it could not be asked, and that is to be ignored.
    async fn ask(
        &self,
        due: &Due<'_>,
        write: &AdmissionRequest<'_>,
        object: &Value,
        mutating: bool,
    ) -> Result<Option<Verified>, AdmissionError> {
        let hook = due.hook;
        if write.dry_run && hook.has_side_effects {
            return Err(AdmissionError::DryRun {
                webhook: hook.name.clone(),
            });
        }
        match self.call(due, write, object, mutating).await {
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

    async fn call(
        &self,
        due: &Due<'_>,
        write: &AdmissionRequest<'_>,
        object: &Value,
        mutating: bool,
    ) -> Result<Verified, String> {
        let hook = due.hook;
        let client = hook.client.as_ref().map_err(Clone::clone);
        let client = client.map_err(|e| format!("could not get REST client: {e}"))?;
        let old = self.seen(&due.matched, write, &write.old_object).await?;
        let review = Review::new(&hook.name, write, &due.matched, object, &old);
        let left = self.until.saturating_duration_since(Instant::now());
        let timeout = hook.timeout.min(left.max(Duration::from_millis(1)));
        let answer = self.client.call(client, review.body(), timeout).await;
        let answer = answer.map_err(|error| match error {
            super::client::WebhookError::Config(why) => {
                format!("could not get REST client: {why}")
            }
            other => format!("failed to call webhook: {other}"),
        })?;
        review.verify(&answer, mutating)
    }

    /// `object` as a webhook sees it that asked for an equivalent resource.
    async fn seen(
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

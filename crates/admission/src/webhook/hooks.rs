//! Parses webhook configurations once and compiles the match conditions of their webhooks.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook,
    ValidatingWebhookConfiguration,
};
use serde_json::Value;

use super::super::client::ClientConfig;
use super::super::matching::Constraints;
use super::super::rules::Rule;
use super::super::selector;
use super::conditions::MatchConditions;

/// The timeout of a webhook without `timeoutSeconds`.
const TIMEOUT_SECONDS: i32 = 10;

/// A webhook.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    /// The name of its configuration.
    pub(super) configuration: String,
    pub(crate) name: String,
    pub(super) client: Result<ClientConfig, String>,
    pub(super) constraints: Constraints,
    pub(super) conditions: MatchConditions,
    /// `failurePolicy: Ignore`
    pub(super) ignores_failures: bool,
    pub(super) timeout: Duration,
    /// The webhook has side effects even for a dry run.
    pub(super) has_side_effects: bool,
    /// `reinvocationPolicy: IfNeeded`
    pub(super) is_reinvocable: bool,
}

impl Hook {
    /// Returns the webhooks of a MutatingWebhookConfiguration.
    ///
    /// # Errors
    /// The object is not such a configuration.
    pub(crate) fn of_mutating(configuration: &Value) -> Result<Vec<Self>, String> {
        let read: MutatingWebhookConfiguration =
            serde_json::from_value(configuration.clone()).map_err(|e| e.to_string())?;
        let configuration = read.metadata.name.unwrap_or_default();
        let hooks = read.webhooks.into_iter().flatten().map(|hook| {
            let is_reinvocable = hook.reinvocation_policy.as_deref() == Some("IfNeeded");
            Ok(Self {
                is_reinvocable,
                ..Self::read(&configuration, &as_validating(hook))?
            })
        });
        hooks.collect()
    }

    /// Returns the webhooks of a ValidatingWebhookConfiguration.
    ///
    /// # Errors
    /// The object is not such a configuration.
    pub(crate) fn of_validating(configuration: &Value) -> Result<Vec<Self>, String> {
        let read: ValidatingWebhookConfiguration =
            serde_json::from_value(configuration.clone()).map_err(|e| e.to_string())?;
        let configuration = read.metadata.name.unwrap_or_default();
        let hooks = read.webhooks.iter().flatten();
        hooks.map(|hook| Self::read(&configuration, hook)).collect()
    }

    fn read(configuration: &str, hook: &ValidatingWebhook) -> Result<Self, String> {
        let client = serde_json::to_value(&hook.client_config).map_err(|e| e.to_string())?;
        let seconds = hook.timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
        Ok(Self {
            configuration: configuration.to_owned(),
            name: hook.name.clone(),
            // A webhook with an invalid address fails when it is called; its failure policy applies.
            client: ClientConfig::parse(&client).map_err(|error| error.to_string()),
            constraints: Constraints {
                rules: hook.rules.iter().flatten().map(Rule::of_webhook).collect(),
                excluded: Vec::new(),
                equivalent: hook.match_policy.as_deref() != Some("Exact"),
                namespaces: selector::read(hook.namespace_selector.as_ref())?,
                objects: selector::read(hook.object_selector.as_ref())?,
            },
            conditions: MatchConditions::read(hook.match_conditions.as_deref().unwrap_or_default()),
            ignores_failures: hook.failure_policy.as_deref() == Some("Ignore"),
            timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or(1).clamp(1, 30)),
            has_side_effects: !matches!(&*hook.side_effects, "None" | "NoneOnDryRun"),
            is_reinvocable: false,
        })
    }
}

/// The fields that mutating and validating webhooks have in common.
fn as_validating(hook: MutatingWebhook) -> ValidatingWebhook {
    ValidatingWebhook {
        admission_review_versions: hook.admission_review_versions,
        client_config: hook.client_config,
        failure_policy: hook.failure_policy,
        match_conditions: hook.match_conditions,
        match_policy: hook.match_policy,
        name: hook.name,
        namespace_selector: hook.namespace_selector,
        object_selector: hook.object_selector,
        rules: hook.rules,
        side_effects: hook.side_effects,
        timeout_seconds: hook.timeout_seconds,
    }
}

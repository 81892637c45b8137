//! Validation of an `AuthorizationConfiguration`, with the paths and messages of
//! [upstream](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/apis/apiserver/validation/validation.go).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use watchet_api::names::{SUBDOMAIN_LENGTH_MAX, SUBDOMAIN_RULE, is_dns_subdomain};
use watchet_api::{FieldErrors, is_go_duration, parse_go_duration};

use super::{
    AuthorizationConfiguration, AuthorizerConfiguration, AuthorizerType, ConnectionInfo,
    InvalidConfiguration, WebhookConfiguration,
};
use crate::match_conditions::MatchConditions;
use crate::review::ReviewVersion;
use crate::webhook::{FailurePolicy, WebhookSettings};

const DEFAULT_AUTHORIZED_TTL: &str = "5m0s";
const DEFAULT_UNAUTHORIZED_TTL: &str = "30s";
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
const MATCH_CONDITIONS_MAX: usize = 64;

const KUBECONFIG_FILE: &str = "KubeConfigFile";

/// A valid configuration, with its compiled expressions.
#[derive(Debug, Clone)]
pub struct ValidConfiguration {
    /// The authorizers, in the order in which they are consulted.
    pub authorizers: Vec<ValidAuthorizer>,
}

/// A valid authorizer.
#[derive(Debug, Clone)]
pub enum ValidAuthorizer {
    /// An authorizer in this process: any type but `Webhook`.
    Local(AuthorizerType),
    /// A webhook with its name, which is unique in the configuration.
    Webhook(String, ValidWebhook),
}

/// A valid webhook.
#[derive(Debug, Clone)]
pub struct ValidWebhook {
    /// A kubeconfig with the URL, the CA and the credentials of the webhook.
    pub kubeconfig: PathBuf,
    /// The time limit of a request.
    pub timeout: Duration,
    /// The requests that it reviews, and the interpretation of its responses.
    pub settings: WebhookSettings,
}

impl AuthorizationConfiguration {
    /// Validates the configuration. Checks in the file system that the kubeconfigs exist.
    ///
    /// # Errors
    /// All invalid fields, with upstream's messages.
    pub fn validate(&self) -> Result<ValidConfiguration, InvalidConfiguration> {
        let mut errors = FieldErrors::default();
        if self.authorizers.is_empty() {
            let detail = "at least one authorization mode must be defined";
            errors.required("authorizers", detail);
        }
        let (mut types, mut names) = (BTreeSet::new(), BTreeSet::new());
        let (mut authorizers, mut names_of_local) = (Vec::new(), Vec::new());
        for (index, authorizer) in self.authorizers.iter().enumerate() {
            let path = format!("authorizers[{index}]");
            let Some(authorizer_type) = check_type(&mut errors, authorizer, &path, &mut types)
            else {
                continue;
            };
            let name = &authorizer.name;
            check_name(&mut errors, name, &path, &mut names);
            let webhook = authorizer.webhook.as_ref();
            let valid = match authorizer_type {
                AuthorizerType::Webhook => check_webhook(&mut errors, webhook, &path)
                    .map(|webhook| ValidAuthorizer::Webhook(name.clone(), webhook)),
                local => {
                    check_local(&mut errors, webhook, &path);
                    names_of_local.push((local, name));
                    Some(ValidAuthorizer::Local(local))
                }
            };
            authorizers.extend(valid);
        }
        if errors.is_empty() {
            check_fixed_names(&mut errors, &names_of_local);
        }
        errors.into_result().map_err(InvalidConfiguration)?;
        Ok(ValidConfiguration { authorizers })
    }
}

fn check_type(
    errors: &mut FieldErrors,
    authorizer: &AuthorizerConfiguration,
    path: &str,
    types: &mut BTreeSet<AuthorizerType>,
) -> Option<AuthorizerType> {
    let path = format!("{path}.type");
    let name = authorizer.authorizer_type.as_str();
    let Some(authorizer_type) = AuthorizerType::from_name(name) else {
        match name {
            "" => errors.required(path, ""),
            _ => {
                let mut supported = AuthorizerType::ALL.map(AuthorizerType::name);
                supported.sort_unstable();
                errors.not_supported(path, name, &supported);
            }
        }
        return None;
    };
    let is_new = types.insert(authorizer_type);
    if !is_new && authorizer_type != AuthorizerType::Webhook {
        errors.duplicate(path, name);
        return None;
    }
    Some(authorizer_type)
}

fn check_name<'a>(
    errors: &mut FieldErrors,
    name: &'a str,
    path: &str,
    names: &mut BTreeSet<&'a str>,
) {
    let path = format!("{path}.name");
    if name.is_empty() {
        errors.required(path, "");
    } else if !names.insert(name) {
        errors.duplicate(path, name);
    } else if name.len() > SUBDOMAIN_LENGTH_MAX {
        let detail = "authorizer name is invalid: must be no more than 253 characters";
        errors.invalid(path, name, detail);
    } else if !is_dns_subdomain(name) {
        let detail = format!("authorizer name is invalid: {SUBDOMAIN_RULE}");
        errors.invalid(path, name, detail);
    }
}

/// Checks the names of authorizers that are not webhooks.
fn check_fixed_names(errors: &mut FieldErrors, names: &[(AuthorizerType, &String)]) {
    for (of_type, name) in names {
        let expected = of_type.authorizer_name();
        if **name != expected {
            let type_name = of_type.name();
            errors.other(format_args!(
                "expected name {expected} for authorizer {type_name} instead of {name}"
            ));
        }
    }
}

fn check_local(errors: &mut FieldErrors, webhook: Option<&WebhookConfiguration>, path: &str) {
    if webhook.is_some() {
        let detail = "may only be specified when type=Webhook";
        errors.invalid(format_args!("{path}.webhook"), "non-null", detail);
    }
}

fn check_webhook(
    errors: &mut FieldErrors,
    webhook: Option<&WebhookConfiguration>,
    path: &str,
) -> Option<ValidWebhook> {
    if webhook.is_none() {
        let detail = "required when type=Webhook";
        errors.required(format_args!("{path}.webhook"), detail);
    }
    valid_webhook(errors, webhook?, path)
}

/// Validates a webhook; `None` if it is invalid.
fn valid_webhook(
    errors: &mut FieldErrors,
    webhook: &WebhookConfiguration,
    path: &str,
) -> Option<ValidWebhook> {
    let timeout = timeout(errors, &webhook.timeout, &format!("{path}.timeout"));
    let authorized = match webhook.authorized_ttl.as_str() {
        "" => DEFAULT_AUTHORIZED_TTL,
        text => text,
    };
    let authorized = ttl(errors, authorized, &format!("{path}.authorizedTTL"));
    let unauthorized = match webhook.unauthorized_ttl.as_str() {
        "" => DEFAULT_UNAUTHORIZED_TTL,
        text => text,
    };
    let unauthorized = ttl(errors, unauthorized, &format!("{path}.unauthorizedTTL"));
    let version = review_version(errors, webhook, path);
    let failure_policy = failure_policy(errors, &webhook.failure_policy, path);
    let kubeconfig = kubeconfig(errors, &webhook.connection_info, path);
    let match_conditions = match_conditions(errors, webhook, path);
    let is_cached = |given: Option<bool>| given.unwrap_or(true);
    let cached = |ttl: Duration, is_cached: bool| match is_cached {
        true => ttl,
        false => Duration::ZERO,
    };
    Some(ValidWebhook {
        kubeconfig: kubeconfig?,
        timeout: timeout?,
        settings: WebhookSettings {
            version: version?,
            authorized_ttl: cached(authorized?, is_cached(webhook.cache_authorized_requests)),
            unauthorized_ttl: cached(
                unauthorized?,
                is_cached(webhook.cache_unauthorized_requests),
            ),
            failure_policy: failure_policy?,
            match_conditions: match_conditions?,
        },
    })
}

fn timeout(errors: &mut FieldErrors, text: &str, path: &str) -> Option<Duration> {
    let timeout = duration(errors, text, path)?;
    if timeout > Some(TIMEOUT_MAX) || timeout.is_none() {
        errors.invalid(path, text, "must be > 0s and <= 30s");
        return None;
    }
    timeout
}

fn ttl(errors: &mut FieldErrors, text: &str, path: &str) -> Option<Duration> {
    let ttl = duration(errors, text, path)?;
    if ttl.is_none() {
        errors.invalid(path, text, "must be > 0s");
    }
    ttl
}

/// Parses a duration: `Some(None)` is a negative one, `None` is an error that has been added.
fn duration(errors: &mut FieldErrors, text: &str, path: &str) -> Option<Option<Duration>> {
    match parse_go_duration(text) {
        Some(Duration::ZERO) => errors.required(path, ""),
        Some(duration) => return Some(Some(duration)),
        None if text.is_empty() => errors.required(path, ""),
        None if is_go_duration(text) => return Some(None),
        None => errors.invalid(path, text, "must be a duration such as 3s or 1m30s"),
    }
    None
}

fn review_version(
    errors: &mut FieldErrors,
    webhook: &WebhookConfiguration,
    path: &str,
) -> Option<ReviewVersion> {
    let version_path = format!("{path}.subjectAccessReviewVersion");
    let version = match webhook.subject_access_review_version.as_str() {
        "v1" => Some(ReviewVersion::V1),
        "v1beta1" => Some(ReviewVersion::V1Beta1),
        "" => {
            errors.required(version_path, "");
            None
        }
        other => {
            errors.not_supported(version_path, other, &["v1", "v1beta1"]);
            None
        }
    };
    let condition_path = format!("{path}.matchConditionSubjectAccessReviewVersion");
    match webhook
        .match_condition_subject_access_review_version
        .as_str()
    {
        "" if !webhook.match_conditions.is_empty() => {
            errors.required(condition_path, "required if match conditions are specified")
        }
        "" | "v1" => {}
        other => errors.not_supported(condition_path, other, &["v1"]),
    }
    version
}

fn failure_policy(errors: &mut FieldErrors, policy: &str, path: &str) -> Option<FailurePolicy> {
    let path = format!("{path}.failurePolicy");
    match policy {
        "NoOpinion" => return Some(FailurePolicy::NoOpinion),
        "Deny" => return Some(FailurePolicy::Deny),
        "" => errors.required(path, ""),
        other => errors.not_supported(path, other, &["NoOpinion", "Deny"]),
    }
    None
}

fn kubeconfig(errors: &mut FieldErrors, info: &ConnectionInfo, path: &str) -> Option<PathBuf> {
    let type_path = format!("{path}.connectionInfo.type");
    match info.connection_type.as_str() {
        KUBECONFIG_FILE => {}
        "" => {
            errors.required(type_path, "");
            return None;
        }
        other => {
            errors.not_supported(type_path, other, &[KUBECONFIG_FILE]);
            return None;
        }
    }
    let path = format!("{path}.connectionInfo.kubeConfigFile");
    let file = info.kube_config_file.as_deref().unwrap_or_default();
    if file.is_empty() {
        errors.required(path, "");
        return None;
    }
    if !Path::new(file).is_absolute() {
        errors.invalid(path, file, "must be an absolute path");
        return None;
    }
    match std::fs::metadata(file) {
        Ok(metadata) if metadata.is_file() => return Some(file.into()),
        Ok(_) => errors.invalid(path, file, "must be a regular file"),
        Err(error) => errors.invalid(path, file, format_args!("error loading file: {error}")),
    }
    None
}

fn match_conditions(
    errors: &mut FieldErrors,
    webhook: &WebhookConfiguration,
    path: &str,
) -> Option<MatchConditions> {
    let (given, path) = (&webhook.match_conditions, format!("{path}.matchConditions"));
    if given.len() > MATCH_CONDITIONS_MAX {
        errors.too_many(path, given.len(), MATCH_CONDITIONS_MAX);
        return None;
    }
    let mut conditions = MatchConditions::default();
    let mut seen = BTreeSet::new();
    for (index, condition) in given.iter().enumerate() {
        let (path, text) = (format!("{path}[{index}].expression"), &condition.expression);
        if text.trim().is_empty() {
            errors.required(path, "");
        } else if !seen.insert(text) {
            errors.duplicate(path, text);
        } else if let Err(detail) = conditions.add(text) {
            errors.invalid(path, text, detail);
        }
    }
    Some(conditions)
}

//! Validates a configuration, with upstream's rules and messages
//! (`k8s.io/apiserver/pkg/apis/apiserver/validation/validation_encryption.go`).

use std::fmt::{self, Write as _};

use super::GroupResource;
use super::document::{Document, InvalidConfiguration, KeyEntry, Keys, Kms, Provider};

const AES_KEY_BYTES: &[usize] = &[16, 24, 32];
const SECRETBOX_KEY_BYTES: &[usize] = &[32];
/// The text that upstream's messages have instead of a key.
const REDACTED: &str = "REDACTED";

/// The problems of a document.
#[derive(Default)]
struct Problems(String);

impl Problems {
    fn add(&mut self, problem: fmt::Arguments<'_>) {
        if !self.0.is_empty() {
            self.0.push_str(", ");
        }
        // Writing to a String does not fail.
        let _ = self.0.write_fmt(problem);
    }

    fn required(&mut self, path: &str, detail: impl fmt::Display) {
        self.add(format_args!("{path}: Required value: {detail}"));
    }

    fn invalid(&mut self, path: &str, value: impl fmt::Debug, detail: impl fmt::Display) {
        self.add(format_args!("{path}: Invalid value: {value:?}: {detail}"));
    }
}

/// # Errors
/// All problems of the document.
pub(super) fn validate(document: &Document) -> Result<(), InvalidConfiguration> {
    let mut problems = Problems::default();
    if document.resources.is_empty() {
        problems.required("resources", "at least one resources is required");
    }
    let mut kms_names = Vec::new();
    for (index, rule) in document.resources.iter().enumerate() {
        let resources = format!("resources[{index}].resources");
        let providers = format!("resources[{index}].providers");
        if rule.resources.is_empty() {
            let detail = format_args!("at least one {resources} is required");
            problems.required(&resources, detail);
        }
        check_overlap(&resources, &rule.resources, &mut problems);
        for (index, name) in rule.resources.iter().enumerate() {
            check_name(&format!("{resources}[{index}]"), name, &mut problems);
        }
        if rule.providers.is_empty() {
            let detail = format_args!("at least one {providers} is required");
            problems.required(&providers, detail);
        }
        for (index, provider) in rule.providers.iter().enumerate() {
            let path = format!("{providers}[{index}]");
            check_provider(&path, provider, &mut kms_names, &mut problems);
        }
    }
    check_masked(document, &mut problems);
    match problems.0.is_empty() {
        true => Ok(()),
        false => Err(InvalidConfiguration(problems.0)),
    }
}

/// Adds errors for resources that one rule names twice, or that an earlier wildcard of it includes.
fn check_overlap(path: &str, names: &[String], problems: &mut Problems) {
    let all: Vec<_> = names
        .iter()
        .map(|name| GroupResource::parse(name))
        .collect();
    let pairs = || {
        let indices = 0..all.len();
        indices.flat_map(|at| (0..at).map(move |before| (before, at)))
    };
    if pairs().any(|(one, other)| all[one] == all[other]) {
        let detail = "the same resource cannot be specified multiple times";
        problems.invalid(path, names, detail);
    }
    let overlap = |one: &GroupResource, other: &GroupResource| {
        one != other
            && (one.is_everything()
                || other.is_everything()
                || one.group == other.group && (one.resource == "*" || other.resource == "*"))
    };
    if pairs().any(|(one, other)| overlap(&all[one], &all[other])) {
        let detail = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed \
                      as they will be masked";
        problems.invalid(path, names, detail);
    }
}

fn check_name(path: &str, name: &str, problems: &mut Problems) {
    let parsed = GroupResource::parse(name);
    let is_without_api = [
        "apiserveripinfo",
        "serviceipallocations",
        "servicenodeportallocations",
    ]
    .contains(&name);
    let detail = if name.chars().any(char::is_uppercase) {
        "resource name should not contain capital letters"
    } else if name == "*" {
        "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
    } else if is_without_api {
        "resources which do not have REST API/s cannot be encrypted"
    } else if parsed.group == "events.k8s.io" {
        "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config \
         file"
    } else if parsed.group == "extensions" {
        "'extensions' group has been removed and cannot be used for encryption"
    } else if parsed.group == "*" && parsed.resource != "*" {
        "encrypting the same resource across groups is not supported"
    } else {
        return;
    };
    problems.invalid(path, name, detail);
}

fn check_provider<'a>(
    path: &str,
    provider: &'a Provider,
    kms_names: &mut Vec<&'a str>,
    problems: &mut Problems,
) {
    let given: Vec<&str> = [
        ("aescbc", provider.aescbc.is_some()),
        ("aesgcm", provider.aesgcm.is_some()),
        ("secretbox", provider.secretbox.is_some()),
        ("identity", provider.identity.is_some()),
        ("kms", provider.kms.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_given)| is_given.then_some(name))
    .collect();
    match given.len() {
        1 => {}
        0 => {
            let detail = "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, \
                          Identity";
            return problems.invalid(path, given, detail);
        }
        _ => {
            let detail = "more than one provider specified in a single element, should split into different list \
                          elements";
            return problems.invalid(path, given, detail);
        }
    }
    let keys = |keys: &Option<Keys>, name, lengths, problems: &mut Problems| {
        if let Some(keys) = keys {
            check_keys(&format!("{path}.{name}.keys"), keys, lengths, problems);
        }
    };
    keys(&provider.aescbc, "aescbc", AES_KEY_BYTES, problems);
    keys(&provider.aesgcm, "aesgcm", AES_KEY_BYTES, problems);
    keys(
        &provider.secretbox,
        "secretbox",
        SECRETBOX_KEY_BYTES,
        problems,
    );
    if let Some(kms) = &provider.kms {
        check_kms(&format!("{path}.kms"), kms, kms_names, problems);
        kms_names.push(&kms.name);
    }
}

fn check_keys(path: &str, keys: &Keys, lengths: &[usize], problems: &mut Problems) {
    if keys.keys.is_empty() {
        problems.required(path, "at least one keys is required");
    }
    for (index, key) in keys.keys.iter().enumerate() {
        check_key(&format!("{path}[{index}]"), key, lengths, problems);
    }
}

fn check_key(path: &str, key: &KeyEntry, lengths: &[usize], problems: &mut Problems) {
    if key.name.is_empty() {
        let path = format!("{path}.name");
        problems.required(&path, "name is a mandatory field for a key");
    }
    let path = format!("{path}.secret");
    if key.secret.is_empty() {
        return problems.required(&path, "secret is a mandatory field for a key");
    }
    match key.decoded() {
        None => problems.invalid(&path, REDACTED, "secrets must be base64 encoded"),
        Some(secret) if !lengths.contains(&secret.len()) => {
            let expected: Vec<_> = lengths.iter().map(ToString::to_string).collect();
            let detail = format_args!(
                "secret is not of the expected length, got {}, expected one of [{}]",
                secret.len(),
                expected.join(" ")
            );
            problems.invalid(&path, REDACTED, detail);
        }
        Some(_) => {}
    }
}

fn check_kms(path: &str, kms: &Kms, names: &[&str], problems: &mut Problems) {
    let at = |field: &str| format!("{path}.{field}");
    if kms.name.is_empty() {
        problems.required(&at("name"), "name is a mandatory field for a provider");
    } else if kms.name.contains(':') {
        let detail = format_args!(
            "invalid KMS provider name {}, must not contain ':'",
            kms.name
        );
        problems.invalid(&at("name"), &kms.name, detail);
    } else if names.contains(&kms.name.as_str()) {
        let detail = format_args!(
            "duplicate KMS provider name {}, names must be unique",
            kms.name
        );
        problems.invalid(&at("name"), &kms.name, detail);
    }
    if kms.timeout().is_none() {
        let given = kms.timeout.as_deref().unwrap_or_default();
        problems.invalid(
            &at("timeout"),
            given,
            "timeout should be a positive value, such as 3s",
        );
    }
    if kms.endpoint.is_empty() {
        problems.invalid(
            &at("endpoint"),
            "",
            "endpoint is a mandatory field for a kms",
        );
    } else if kms.socket().is_none() {
        let detail = "must be unix:// and the path of a socket: only this scheme is supported for a KMS provider";
        problems.invalid(&at("endpoint"), &kms.endpoint, detail);
    }
    match kms.api_version.as_str() {
        "v2" => {
            if let Some(size) = kms.cachesize {
                problems.invalid(&at("cachesize"), size, "cachesize is not supported in v2");
            }
            if !cfg!(feature = "kms") {
                problems.invalid(
                    &at("apiVersion"),
                    "v2",
                    "this program was built without the feature kms",
                );
            }
        }
        "" | "v1" => problems.invalid(
            &at("apiVersion"),
            "v1",
            "KMSv1 is deprecated and not supported. Use KMSv2 instead (apiVersion: v2)",
        ),
        other => {
            let detail = format_args!(
                "unsupported apiVersion {other} for KMS provider, only v2 is supported"
            );
            problems.invalid(&at("apiVersion"), other, detail);
        }
    }
}

/// Adds errors for resources to which an earlier rule with a wildcard applies.
fn check_masked(document: &Document, problems: &mut Problems) {
    let mut earlier: Vec<GroupResource> = Vec::new();
    for (index, rule) in document.resources.iter().enumerate() {
        let resources: Vec<_> = rule
            .resources
            .iter()
            .map(|name| GroupResource::parse(name))
            .collect();
        for (at, resource) in resources.iter().enumerate() {
            let masks = |wildcard: &&GroupResource| {
                wildcard.is_everything() || wildcard.is(&resource.group, "*")
            };
            if let Some(wildcard) = earlier.iter().find(masks) {
                let path = format!("resources[{index}].resources[{at}]");
                let detail = format_args!(
                    "resource \"{resource}\" is masked by earlier rule \"{wildcard}\""
                );
                problems.invalid(&path, resource.to_string(), detail);
            }
        }
        earlier.extend(resources);
    }
}

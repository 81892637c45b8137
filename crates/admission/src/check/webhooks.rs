//! Validation of webhook configurations.

use std::collections::HashSet;

use serde_json::Value;

use super::super::client::ClientConfig;
use super::super::webhook::CONDITION_VARIABLES;
use super::problems::{Problems, strings};
use watchet_api::names::{NameRule, SUBDOMAIN_LENGTH_MAX, SUBDOMAIN_RULE, is_dns_subdomain};

/// The version of AdmissionReview that is sent.
const REVIEW_VERSION: &str = "v1";
/// The versions of AdmissionReview that kube-apiserver accepts. A webhook with `v1beta1` alone cannot be called.
const REVIEW_VERSIONS: [&str; 2] = [REVIEW_VERSION, "v1beta1"];

pub(super) fn check(problems: &mut Problems, configuration: &Value, mutating: bool) {
    let hooks = configuration["webhooks"].as_array();
    let mut names: HashSet<&str> = HashSet::new();
    for (index, hook) in hooks.into_iter().flatten().enumerate() {
        let field = format!("webhooks[{index}]");
        let name = hook["name"].as_str().unwrap_or_default();
        let of_name = format!("{field}.name");
        check_name(problems, &of_name, name);
        check_hook(problems, &field, hook, mutating);
        check_versions(
            problems,
            &format!("{field}.admissionReviewVersions"),
            &hook["admissionReviewVersions"],
        );
        if !name.is_empty() && !names.insert(name) {
            problems.duplicate(&of_name, name);
        }
    }
}

fn check_name(problems: &mut Problems, field: &str, name: &str) {
    if name.is_empty() {
        problems.required(field, "");
    } else if !is_dns_subdomain(name) {
        problems.invalid(field, name, SUBDOMAIN_RULE);
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        problems.invalid(field, name, why);
    }
}

fn check_versions(problems: &mut Problems, field: &str, versions: &Value) {
    let all = REVIEW_VERSIONS.join(", ");
    if strings(versions).next().is_none() {
        return problems.required(field, &format!("must specify one of {all}"));
    }
    let mut seen = HashSet::new();
    for (index, version) in strings(versions).enumerate() {
        let field = format!("{field}[{index}]");
        if !seen.insert(version) {
            problems.invalid(&field, version, "duplicate version");
            continue;
        }
        for problem in NameRule::Label1035.problems(version, false) {
            problems.invalid(&field, version, &problem);
        }
    }
    if !REVIEW_VERSIONS.iter().any(|version| seen.contains(version)) {
        let why = format!("must include at least one of {all}");
        problems.invalid_json(field, versions, &why);
    } else if !seen.contains(REVIEW_VERSION) {
        let why = format!("must include at least one of {REVIEW_VERSION}");
        problems.invalid_json(field, versions, &why);
    }
}

fn check_hook(problems: &mut Problems, field: &str, hook: &Value, mutating: bool) {
    let of = |member: &str| format!("{field}.{member}");
    for (index, rule) in hook["rules"].as_array().into_iter().flatten().enumerate() {
        problems.rule(&format!("{field}.rules[{index}]"), rule);
    }
    problems.one_of(
        &of("failurePolicy"),
        &hook["failurePolicy"],
        &["Fail", "Ignore"],
    );
    problems.one_of(
        &of("matchPolicy"),
        &hook["matchPolicy"],
        &["Equivalent", "Exact"],
    );
    match &hook["sideEffects"] {
        Value::Null => {
            let why = "must specify one of None, NoneOnDryRun";
            problems.required(&of("sideEffects"), why);
        }
        given => problems.one_of(&of("sideEffects"), given, &["None", "NoneOnDryRun"]),
    }
    if let Some(seconds) = hook["timeoutSeconds"].as_i64()
        && !(1..=30).contains(&seconds)
    {
        let why = "the timeout value must be between 1 and 30 seconds";
        problems.invalid_json(&of("timeoutSeconds"), &seconds.into(), why);
    }
    problems.selector(&of("namespaceSelector"), &hook["namespaceSelector"]);
    problems.selector(&of("objectSelector"), &hook["objectSelector"]);
    if mutating {
        let policy = &hook["reinvocationPolicy"];
        problems.one_of(&of("reinvocationPolicy"), policy, &["IfNeeded", "Never"]);
    }
    check_client(problems, &of("clientConfig"), &hook["clientConfig"]);
    problems.conditions(
        &of("matchConditions"),
        &hook["matchConditions"],
        &CONDITION_VARIABLES,
    );
}

pub(super) fn check_client(problems: &mut Problems, field: &str, client: &Value) {
    match (&client["url"], &client["service"]) {
        (Value::String(url), Value::Null) => check_url(problems, &format!("{field}.url"), url),
        (Value::Null, service @ Value::Object(_)) => {
            check_service(problems, &format!("{field}.service"), service);
        }
        _ => return problems.required(field, "exactly one of url or service is required"),
    }
    if let Err(error) = ClientConfig::parse(client)
        && client["caBundle"].is_string()
        && client["service"].is_null()
    {
        problems.invalid(&format!("{field}.caBundle"), "...", &error.to_string());
    }
}

/// Checks a URL, which is split into its parts as by Go's `url.Parse`.
fn check_url(problems: &mut Problems, field: &str, url: &str) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (before, query) = before.split_once('?').unwrap_or((before, ""));
    let is_in_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let (scheme, rest) = match before.split_once(':') {
        Some((scheme, rest)) if scheme.chars().all(is_in_scheme) => (scheme, rest),
        _ => ("", before),
    };
    let authority = rest.strip_prefix("//").unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_https = scheme.eq_ignore_ascii_case("https");
    // Go escapes the spaces of a path.
    let escaped = before.replace(' ', "%20");
    let is_parsed = !authority.contains(' ') && escaped.parse::<http::Uri>().is_ok();
    if url.contains(|c: char| c.is_ascii_control()) || is_https && !host.is_empty() && !is_parsed {
        return problems.required(field, &format!("url must be a valid URL{FORM}"));
    }
    let mut refuse = |is_wrong: bool, value: &str, why: &str| {
        if is_wrong {
            problems.invalid(field, value, why);
        }
    };
    let why = format!("'https' is the only allowed URL scheme{FORM}");
    refuse(!is_https, scheme, &why);
    let why = format!("host must be specified{FORM}");
    refuse(host.is_empty(), host, &why);
    let why = "user information is not permitted in the URL";
    refuse(authority.contains('@'), user, why);
    let why = "fragments are not permitted in the URL";
    refuse(!fragment.is_empty(), fragment, why);
    let why = "query parameters are not permitted in the URL";
    refuse(!query.is_empty(), query, why);
}

fn check_service(problems: &mut Problems, field: &str, service: &Value) {
    for member in ["name", "namespace"] {
        if service[member].as_str().unwrap_or_default().is_empty() {
            let why = format!("service {member} is required");
            problems.required(&format!("{field}.{member}"), &why);
        }
    }
    if let Some(path) = service["path"].as_str() {
        check_path(problems, &format!("{field}.path"), path);
    }
    if let Some(port) = service["port"].as_i64()
        && !(1..=65535).contains(&port)
    {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        problems.invalid_json(&format!("{field}.port"), &port.into(), why);
    }
}

/// Checks that a path consists of DNS subdomains between slashes, as upstream. One trailing slash is ignored.
fn check_path(problems: &mut Problems, field: &str, path: &str) {
    if matches!(path, "" | "/") {
        return;
    }
    let segments = path.strip_prefix('/').unwrap_or_else(|| {
        problems.invalid(field, path, "must start with a '/'");
        path
    });
    let segments = segments.strip_suffix('/').unwrap_or(segments);
    for (index, segment) in segments.split('/').enumerate() {
        if segment.is_empty() {
            let why = format!("segment[{index}] may not be empty");
            problems.invalid(field, path, &why);
        } else if segment.len() > SUBDOMAIN_LENGTH_MAX || !is_dns_subdomain(segment) {
            let why = format!("segment[{index}]: {SUBDOMAIN_RULE}");
            problems.invalid(field, path, &why);
        }
    }
}

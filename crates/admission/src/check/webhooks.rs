//! Validation of webhook configurations.

use std::collections::HashSet;

use serde_json::Value;

use super::super::client::ClientConfig;
use super::super::webhook::CONDITION_VARIABLES;
use super::problems::{Problems, strings};
use watchet_api::names::{SUBDOMAIN_LENGTH_MAX, SUBDOMAIN_RULE, is_dns_subdomain};

/// The supported version of AdmissionReview.
const REVIEW_VERSION: &str = "v1";

pub(super) fn check(problems: &mut Problems, configuration: &Value, mutating: bool) {
    let hooks = configuration["webhooks"].as_array();
    let mut names: HashSet<&str> = HashSet::new();
    for (index, hook) in hooks.into_iter().flatten().enumerate() {
        let field = format!("webhooks[{index}]");
        let name = hook["name"].as_str().unwrap_or_default();
        check_name(problems, &format!("{field}.name"), name);
        if !names.insert(name) {
            problems.duplicate(&format!("{field}.name"), name);
        }
        check_hook(problems, &field, hook);
        if mutating {
            let field = format!("{field}.reinvocationPolicy");
            problems.one_of(&field, &hook["reinvocationPolicy"], &["IfNeeded", "Never"]);
        }
    }
}

fn check_name(problems: &mut Problems, field: &str, name: &str) {
    if name.is_empty() {
        problems.required(field, "");
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        problems.invalid(field, name, why);
    } else if !is_dns_subdomain(name) {
        problems.invalid(field, name, SUBDOMAIN_RULE);
    }
}

fn check_hook(problems: &mut Problems, field: &str, hook: &Value) {
    let of = |member: &str| format!("{field}.{member}");
    let versions: Vec<&str> = strings(&hook["admissionReviewVersions"]).collect();
    if versions.is_empty() {
        let why = format!("must specify one of {REVIEW_VERSION}");
        problems.required(&of("admissionReviewVersions"), &why);
    } else if !versions.contains(&REVIEW_VERSION) {
        let why = format!("must include at least one of {REVIEW_VERSION}");
        problems.invalid(&of("admissionReviewVersions"), &versions.join(","), &why);
    }
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
        let mut cause = watchet_api::StatusCause::invalid(&of("timeoutSeconds"), "", why);
        cause.message = format!("Invalid value: {seconds}: {why}");
        problems.push(cause);
    }
    problems.selector(&of("namespaceSelector"), &hook["namespaceSelector"]);
    problems.selector(&of("objectSelector"), &hook["objectSelector"]);
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

fn check_url(problems: &mut Problems, field: &str, url: &str) {
    const FORM: &str = "; desired format: https://host[:port]/path";
    let mut refuse =
        |value: &str, why: &str| problems.invalid(field, value, &format!("{why}{FORM}"));
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    let Ok(uri) = before.parse::<http::Uri>() else {
        return refuse(url, "url must be a valid URL");
    };
    let scheme = uri.scheme_str().unwrap_or_default();
    if scheme != "https" {
        refuse(scheme, "'https' is the only allowed URL scheme");
    }
    if uri.host().unwrap_or_default().is_empty() {
        refuse(uri.host().unwrap_or_default(), "host must be specified");
    }
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    if let Some((user, _)) = authority.rsplit_once('@') {
        refuse(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        refuse(fragment, "fragments are not permitted in the URL");
    }
    if let Some(query) = uri.query() {
        refuse(query, "query parameters are not permitted in the URL");
    }
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
        problems.invalid(&format!("{field}.port"), &port.to_string(), why);
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

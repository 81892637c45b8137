//! Validates claims of devices and their templates.

use std::collections::{HashMap, HashSet};

use super::super::members::{objects, one_of, required_one_of};
use super::super::text as rules;
use super::selectors::Selectors;
use super::{EFFECTS, ITEMS_MAX, configuration, limited, limited_list, qualified_name, unique};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, is_unset, list, number, object, text};

const ALTERNATIVES_MAX: usize = 8;

/// The names of the requests of a claim, with those of their subrequests.
type RequestNames<'a> = HashMap<&'a str, HashSet<&'a str>>;

/// Validates a new claim. The spec of a claim is immutable.
pub(in super::super) fn claim(claim: &Fields, causes: &mut Causes) {
    if let Some(spec) = object(claim, "spec") {
        claim_spec(spec, &Path::Top("spec"), causes);
    }
}

/// Validates a new template. The spec of a template is immutable.
pub(in super::super) fn claim_template(template: &Fields, causes: &mut Causes) {
    let spec = object(template, "spec").and_then(|spec| object(spec, "spec"));
    if let Some(spec) = spec {
        claim_spec(spec, &Path::Top("spec").member("spec"), causes);
    }
}

fn claim_spec(spec: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let Some(devices) = object(spec, "devices") else {
        return;
    };
    let at = at.member("devices");
    let names = request_names(devices);
    let mut selectors = Selectors::default();
    let at_requests = at.member("requests");
    let requests = limited_list(devices, "requests", ITEMS_MAX, &at_requests, causes);
    for (index, request_) in objects(requests) {
        request(request_, &at_requests.item(index), &mut selectors, causes);
    }
    unique(requests, Some("name"), &at_requests, causes);
    let at_constraints = at.member("constraints");
    for (index, constraint_) in limited(devices, "constraints", ITEMS_MAX, &at_constraints, causes)
    {
        constraint(constraint_, &names, &at_constraints.item(index), causes);
    }
    let at_config = at.member("config");
    for (index, config) in limited(devices, "config", ITEMS_MAX, &at_config, causes) {
        let at = at_config.item(index);
        references(config, &names, &at, causes);
        configuration(config, &at, causes);
    }
}

fn request_names(devices: &Fields) -> RequestNames<'_> {
    let requests = objects(list(devices, "requests"));
    let names = requests.map(|(_, request)| {
        let alternatives = objects(list(request, "firstAvailable"));
        let alternatives = alternatives.map(|(_, alternative)| text(alternative, "name"));
        (text(request, "name"), alternatives.collect())
    });
    names.collect()
}

fn request(request: &Fields, at: &Path<'_>, selectors: &mut Selectors, causes: &mut Causes) {
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    name(request, at, causes);
    let has_alternatives = !list(request, "firstAvailable").is_empty();
    match (object(request, "exactly"), has_alternatives) {
        (None, false) => causes.required(at, ONE),
        (Some(_), true) => {
            let why = format!("{ONE}, but multiple fields are set");
            causes.invalid(at, serde_json::Value::Null, &why);
        }
        (Some(exactly), false) => details(exactly, &at.member("exactly"), selectors, causes),
        (None, true) => {
            let at = at.member("firstAvailable");
            let alternatives =
                limited_list(request, "firstAvailable", ALTERNATIVES_MAX, &at, causes);
            for (index, alternative) in objects(alternatives) {
                let at = at.item(index);
                name(alternative, &at, causes);
                details(alternative, &at, selectors, causes);
            }
            unique(alternatives, Some("name"), &at, causes);
        }
    }
}

fn name(request: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let name = text(request, "name");
    causes.invalid_each(&at.member("name"), name, rules::label(name));
}

/// Validates what `exactly` and the items of `firstAvailable` have in common.
fn details(request: &Fields, at: &Path<'_>, selectors: &mut Selectors, causes: &mut Causes) {
    match text(request, "deviceClassName") {
        "" => causes.required(&at.member("deviceClassName"), ""),
        class => {
            let at = at.member("deviceClassName");
            causes.invalid_each(&at, class, rules::subdomain(class));
        }
    }
    selectors.validate(request, at, causes);
    let count = number(request, "count").unwrap_or_default();
    match text(request, "allocationMode") {
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            causes.invalid(&at.member("count"), count, why);
        }
        "ExactCount" if count <= 0 => {
            causes.invalid(&at.member("count"), count, "must be greater than zero");
        }
        "All" | "ExactCount" => {}
        other => {
            let at = at.member("allocationMode");
            causes.not_supported(&at, other, &["All", "ExactCount"]);
        }
    }
    let at = at.member("tolerations");
    for (index, toleration_) in objects(list(request, "tolerations")) {
        toleration(toleration_, &at.item(index), causes);
    }
}

fn toleration(toleration: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let key = text(toleration, "key");
    if !key.is_empty() {
        causes.invalid_each(&at.member("key"), key, rules::qualified(key));
    }
    let value = text(toleration, "value");
    match text(toleration, "operator") {
        "Exists" if !value.is_empty() => {
            let why = "must be empty for operator `Exists`";
            causes.invalid(&at.member("value"), value, why);
        }
        "Equal" => causes.invalid_each(&at.member("value"), value, rules::label_value(value)),
        _ => required_one_of(toleration, "operator", &["Equal", "Exists"], at, causes),
    }
    one_of(toleration, "effect", EFFECTS, at, causes);
}

fn constraint(constraint: &Fields, names: &RequestNames<'_>, at: &Path<'_>, causes: &mut Causes) {
    references(constraint, names, at, causes);
    let given = ["matchAttribute", "distinctAttribute"];
    let given = given
        .into_iter()
        .find(|member| constraint.get(*member).is_some_and(|it| it.is_string()));
    let Some(member) = given else {
        // This is upstream's message, although no field is set.
        let why = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but \
                   multiple fields are set";
        return causes.required(at, why);
    };
    let at = at.member(member);
    let attribute = text(constraint, member);
    qualified_name(attribute, &at, causes);
    if !attribute.contains('/') {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        causes.invalid(&at, attribute, why);
    }
}

/// Validates the names of requests that a constraint or a configuration applies to.
fn references(fields: &Fields, names: &RequestNames<'_>, at: &Path<'_>, causes: &mut Causes) {
    const NOT_FOUND: &str = "must be the name of a request in the claim or the name of a request \
                             and a subrequest separated by '/'";
    if is_unset(fields, "requests") {
        return;
    }
    let at = at.member("requests");
    let references = limited_list(fields, "requests", ITEMS_MAX, &at, causes);
    for (index, reference) in references.iter().enumerate() {
        let reference = reference.as_str().unwrap_or_default();
        let at = at.item(index);
        let parts: Vec<&str> = reference.split('/').collect();
        if parts.len() <= 2 {
            for part in &parts {
                causes.invalid_each(&at, part, rules::label(part));
            }
        }
        let is_known = match parts[..] {
            [request] => names.contains_key(request),
            [request, of] => names.get(request).is_some_and(|all| all.contains(of)),
            _ => false,
        };
        if !is_known {
            causes.invalid(&at, reference, NOT_FOUND);
        }
    }
    unique(references, None, &at, causes);
}

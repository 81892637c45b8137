//! Validates the pod failure policy of a job.

use serde_json::Value;

use super::members::objects;
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, is_unset, list, object, text};

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];
const RULES_MAX: usize = 20;
const CONDITIONS_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Validates the `policy` of a job with this spec.
pub(super) fn policy(spec: &Fields, policy: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("rules");
    let given = list(policy, "rules");
    if given.len() > RULES_MAX {
        causes.too_many_items(&at, given.len(), RULES_MAX);
    }
    for (index, given) in objects(given) {
        if causes.is_full() {
            return;
        }
        rule(spec, given, &at.item(index), causes);
    }
}

fn rule(spec: &Fields, rule: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let action = text(rule, "action");
    if action == "FailIndex" && is_unset(spec, "backoffLimitPerIndex") {
        let why = "requires the backoffLimitPerIndex to be set";
        causes.invalid(&at.member("action"), action, why);
    }
    choice(rule, "action", ACTIONS, at, causes);
    let codes = object(rule, "onExitCodes");
    if let Some(codes) = codes {
        exit_codes(spec, codes, &at.member("onExitCodes"), causes);
    }
    let conditions = list(rule, "onPodConditions");
    pod_conditions(conditions, &at.member("onPodConditions"), causes);
    match (codes, conditions) {
        (Some(_), [_, ..]) => {
            let why = "specifying both OnExitCodes and OnPodConditions is not supported";
            causes.invalid_without_value(at, why);
        }
        (None, []) => {
            let why = "specifying one of OnExitCodes and OnPodConditions is required";
            causes.invalid_without_value(at, why);
        }
        _ => {}
    }
}

/// Validates a required string with few allowed values, which the error about a missing one lists.
fn choice(fields: &Fields, member: &str, all: &[&str], at: &Path<'_>, causes: &mut Causes) {
    let at = at.member(member);
    match text(fields, member) {
        "" => {
            let quoted: Vec<String> = all.iter().map(|value| format!("{value:?}")).collect();
            causes.required(&at, &format!("valid values: [{}]", quoted.join(" ")));
        }
        given if !all.contains(&given) => causes.not_supported(&at, given, all),
        _ => {}
    }
}

fn exit_codes(spec: &Fields, given: &Fields, at: &Path<'_>, causes: &mut Causes) {
    choice(given, "operator", OPERATORS, at, causes);
    if let Some(Value::String(name)) = given.get("containerName")
        && !has_container(spec, name)
    {
        let why = "must be one of the container or initContainer names in the pod template";
        causes.invalid(&at.member("containerName"), &**name, why);
    }
    let at = at.member("values");
    let codes = list(given, "values");
    match codes.len() {
        0 => causes.invalid(
            &at,
            given.get("values").cloned(),
            "at least one value is required",
        ),
        1..=EXIT_CODES_MAX => {}
        more => causes.too_many_items(&at, more, EXIT_CODES_MAX),
    }
    let mut seen = std::collections::HashSet::new();
    let numbers: Vec<i64> = codes
        .iter()
        .map(|code| code.as_i64().unwrap_or(0))
        .collect();
    for (index, code) in numbers.iter().enumerate() {
        if causes.is_full() {
            return;
        }
        if *code == 0 && text(given, "operator") == "In" {
            let why = "must not be 0 for the In operator";
            causes.invalid(&at.item(index), *code, why);
        }
        if !seen.insert(code) {
            causes.duplicate(&at.item(index), *code);
        }
    }
    if !numbers.is_sorted() {
        causes.invalid(&at, codes.to_vec(), "must be ordered");
    }
}

fn has_container(spec: &Fields, name: &str) -> bool {
    let template = object(spec, "template").and_then(|template| object(template, "spec"));
    let containers = |pod| {
        let members = ["containers", "initContainers"].into_iter();
        members.flat_map(move |member| list(pod, member))
    };
    let mut all = template.into_iter().flat_map(containers);
    all.any(|container| container["name"] == name)
}

fn pod_conditions(conditions: &[Value], at: &Path<'_>, causes: &mut Causes) {
    if conditions.len() > CONDITIONS_MAX {
        causes.too_many_items(at, conditions.len(), CONDITIONS_MAX);
    }
    for (index, condition) in objects(conditions) {
        if causes.is_full() {
            return;
        }
        let at = at.item(index);
        let kind = text(condition, "type");
        causes.invalid_each(&at.member("type"), kind, rules::qualified(kind));
        choice(condition, "status", STATUSES, &at, causes);
    }
}

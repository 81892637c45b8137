//! Validates ResourceQuotas: rejects limits of resources that no evaluator counts, and scopes that never match an
//! object.

use std::collections::BTreeSet;

use serde_json::Value;

use super::members::objects;
use super::resources::{self, COUNTS, OF_PODS, is_standard};
use super::text::IMMUTABLE;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object, text};

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

const CONFLICTS: [[&str; 2]; 2] = [
    ["BestEffort", "NotBestEffort"],
    ["Terminating", "NotTerminating"],
];

pub(super) fn quota(quota: &Fields, causes: &mut Causes) {
    let Some(spec) = object(quota, "spec") else {
        return;
    };
    let at = Path::Top("spec");
    let empty = Fields::new();
    let hard = object(spec, "hard").unwrap_or(&empty);
    for name in hard.keys() {
        if causes.is_full() {
            return;
        }
        limit(hard, name, &at.member("hard").key(name), causes);
    }
    let given = spec.get("scopes").cloned().unwrap_or_default();
    let names = list(spec, "scopes").iter().filter_map(Value::as_str);
    scopes(names, hard, &at.member("scopes"), &given, causes);
    if let Some(selector) = object(spec, "scopeSelector") {
        let at = at.member("scopeSelector");
        scope_selector(selector, hard, &at.member("matchExpressions"), causes);
    }
}

/// Validates that the scopes of a quota do not change.
pub(super) fn update(old: &Fields, new: &Fields, causes: &mut Causes) {
    fn names(quota: &Fields) -> BTreeSet<&str> {
        let scopes = object(quota, "spec").map_or(&[][..], |spec| list(spec, "scopes"));
        scopes.iter().filter_map(Value::as_str).collect()
    }
    if names(old) != names(new) {
        let given = object(new, "spec").and_then(|spec| spec.get("scopes"));
        let given = given.cloned().unwrap_or_default();
        causes.invalid(&Path::Top("spec").member("scopes"), given, IMMUTABLE);
    }
}

fn limit(hard: &Fields, name: &str, at: &Path<'_>, causes: &mut Causes) {
    resources::resource(name, at, causes);
    if !name.contains('/') && !is_standard(name) {
        causes.invalid(at, name, "must be a standard resource for quota");
    }
    resources::amount(hard, name, at, causes);
    let is_extended = resources::is_extended(name);
    let amount = resources::quantity(hard, name).filter(|amount| !amount.is_whole());
    if let (true, Some(amount)) = (is_extended || COUNTS.contains(&name), amount) {
        causes.invalid(at, amount.to_string(), "must be an integer");
    }
}

/// Validates the scope `names`; `given` is the value in error messages.
fn scopes<'a>(
    names: impl Iterator<Item = &'a str>,
    hard: &Fields,
    at: &Path<'_>,
    given: &Value,
    causes: &mut Causes,
) {
    let mut all = BTreeSet::new();
    for name in names {
        if causes.is_full() {
            return;
        }
        if !SCOPES.contains(&name) {
            causes.invalid(at, given.clone(), "unsupported scope");
        }
        applies(name, hard, at, given, causes);
        all.insert(name);
    }
    conflicts(&all, at, given, causes);
}

/// Validates that the limits of a quota are about objects that its scopes can match.
fn applies(scope: &str, hard: &Fields, at: &Path<'_>, given: &Value, causes: &mut Causes) {
    let is_about = |limit: &str| match scope {
        "BestEffort" => limit == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&limit),
        _ => limit == "pods" || OF_PODS.contains(&limit),
    };
    let standard = hard.keys().filter(|limit| is_standard(limit));
    for _ in standard.filter(|limit| SCOPES.contains(&scope) && !is_about(limit)) {
        causes.invalid(at, given.clone(), "unsupported scope applied to resource");
    }
}

fn conflicts(all: &BTreeSet<&str>, at: &Path<'_>, given: &Value, causes: &mut Causes) {
    for pair in CONFLICTS {
        if pair.iter().all(|scope| all.contains(scope)) {
            causes.invalid(at, given.clone(), "conflicting scopes");
        }
    }
}

fn scope_selector(selector: &Fields, hard: &Fields, at: &Path<'_>, causes: &mut Causes) {
    const ONLY_EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
        ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
        ResourceQuotaScopeCrossNamespacePodAffinity";
    let mut all = BTreeSet::new();
    let shown = Value::from(selector.clone());
    for (_, expression) in objects(list(selector, "matchExpressions")) {
        if causes.is_full() {
            return;
        }
        let scope = text(expression, "scopeName");
        if !SCOPES.contains(&scope) {
            causes.invalid(&at.member("scopeName"), scope, "unsupported scope");
        }
        applies(scope, hard, at, &shown, causes);
        let operator = text(expression, "operator");
        let has_values = ["PriorityClass", "VolumeAttributesClass"].contains(&scope);
        if SCOPES.contains(&scope) && !has_values && operator != "Exists" {
            causes.invalid(&at.member("operator"), operator, ONLY_EXISTS);
        }
        let values = list(expression, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => causes.required(
                &at.member("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => causes.invalid(
                &at.member("values"),
                values.to_vec(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => causes.invalid(
                &at.member("operator"),
                operator,
                "not a valid selector operator",
            ),
        }
        all.insert(scope);
    }
    conflicts(&all, at, &Value::Null, causes);
}

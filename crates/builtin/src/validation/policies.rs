//! Validates roles and bindings, disruption budgets, priority classes and leases.

use serde_json::Value;

use super::members::objects;
use super::members::{not_negative, one_of};
use super::selectors;
use super::text as rules;
use super::workloads::count_or_share;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, is_unset, list, number, object, text};

const SPEC: Path<'static> = Path::Top("spec");
const RBAC: &str = "rbac.authorization.k8s.io";
/// The maximum priority of a user's class; greater values are reserved for the system.
const PRIORITY_MAX: i64 = 1_000_000_000;

pub(super) fn rbac(plural: &str, object_: &Fields, causes: &mut Causes) {
    match plural {
        "roles" | "clusterroles" => {
            let at = Path::Top("rules");
            for (index, rule) in objects(list(object_, "rules")) {
                if causes.is_full() {
                    return;
                }
                role_rule(rule, plural == "roles", &at.item(index), causes);
            }
        }
        "rolebindings" => binding(object_, true, causes),
        "clusterrolebindings" => binding(object_, false, causes),
        _ => {}
    }
}

fn role_rule(rule: &Fields, namespaced: bool, at: &Path<'_>, causes: &mut Causes) {
    if list(rule, "verbs").is_empty() {
        causes.required(&at.member("verbs"), "verbs must contain at least one value");
    }
    let urls = list(rule, "nonResourceURLs");
    if !urls.is_empty() {
        if namespaced {
            let why = "namespaced rules cannot apply to non-resource URLs";
            causes.invalid(&at.member("nonResourceURLs"), urls.to_vec(), why);
        }
        let others = ["apiGroups", "resources", "resourceNames"];
        if others.iter().any(|member| !list(rule, member).is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            causes.invalid(&at.member("nonResourceURLs"), urls.to_vec(), why);
        }
        return;
    }
    for (member, what) in [("apiGroups", "api group"), ("resources", "resource")] {
        if list(rule, member).is_empty() {
            let why = format!("resource rules must supply at least one {what}");
            causes.required(&at.member(member), &why);
        }
    }
}

fn binding(binding: &Fields, namespaced: bool, causes: &mut Causes) {
    let at = Path::Top("roleRef");
    let empty = Fields::new();
    let role = object(binding, "roleRef").unwrap_or(&empty);
    if text(role, "apiGroup") != RBAC {
        causes.not_supported(&at.member("apiGroup"), text(role, "apiGroup"), &[RBAC]);
    }
    let kinds: &[&str] = match namespaced {
        true => &["Role", "ClusterRole"],
        false => &["ClusterRole"],
    };
    if !kinds.contains(&text(role, "kind")) {
        causes.not_supported(&at.member("kind"), text(role, "kind"), kinds);
    }
    match text(role, "name") {
        "" => causes.required(&at.member("name"), ""),
        name => causes.invalid_each(&at.member("name"), name, rules::path_segment(name)),
    }
    let at = Path::Top("subjects");
    for (index, subject) in objects(list(binding, "subjects")) {
        let at = at.item(index);
        let name = text(subject, "name");
        if name.is_empty() {
            causes.required(&at.member("name"), "");
        }
        let group = text(subject, "apiGroup");
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    causes.invalid_each(&at.member("name"), name, rules::subdomain(name));
                }
                if !group.is_empty() {
                    causes.not_supported(&at.member("apiGroup"), group, &[""]);
                }
                if !namespaced && text(subject, "namespace").is_empty() {
                    causes.required(&at.member("namespace"), "");
                }
            }
            "User" | "Group" if group != RBAC => {
                causes.not_supported(&at.member("apiGroup"), group, &[RBAC]);
            }
            "User" | "Group" => {}
            other => {
                let kinds = &["ServiceAccount", "User", "Group"];
                causes.not_supported(&at.member("kind"), other, kinds);
            }
        }
    }
}

pub(super) fn disruption_budget(budget: &Fields, causes: &mut Causes) {
    let Some(spec) = object(budget, "spec") else {
        return;
    };
    if !is_unset(spec, "minAvailable") && !is_unset(spec, "maxUnavailable") {
        let why = "minAvailable and maxUnavailable cannot be both set";
        causes.invalid(&SPEC, Value::Object(spec.clone()), why);
    }
    for member in ["minAvailable", "maxUnavailable"] {
        count_or_share(spec, member, &SPEC, causes);
        if super::workloads::percentage(spec, member) > 100 {
            let why = "must not be greater than 100%";
            causes.invalid(&SPEC.member(member), text(spec, member), why);
        }
    }
    if let Some(selector) = object(spec, "selector") {
        selectors::selector(selector, &SPEC.member("selector"), causes);
    }
    let policies = &["AlwaysAllow", "IfHealthyBudget"];
    one_of(spec, "unhealthyPodEvictionPolicy", policies, &SPEC, causes);
}

pub(super) fn priority_class(class: &Fields, causes: &mut Causes) {
    let name = object(class, "metadata").map_or("", |metadata| text(metadata, "name"));
    let value = number(class, "value").unwrap_or(0);
    let system = matches!(
        (name, value),
        ("system-node-critical", 2_000_001_000) | ("system-cluster-critical", 2_000_000_000)
    );
    if name.starts_with("system-") && !system {
        let why = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: \
             {name} is not a known system priority class"
        );
        causes.forbidden(&Path::Top("metadata").member("name"), &why);
    }
    if value > PRIORITY_MAX && !system {
        let why = format!("maximum allowed value of a user defined priority is {PRIORITY_MAX}");
        causes.forbidden(&Path::Top("value"), &why);
    }
    let policy = text(class, "preemptionPolicy");
    let policies = &["Never", "PreemptLowerPriority"];
    if !policy.is_empty() && !policies.contains(&policy) {
        causes.not_supported(&Path::Top("preemptionPolicy"), policy, policies);
    }
}

pub(super) fn lease(lease: &Fields, causes: &mut Causes) {
    let Some(spec) = object(lease, "spec") else {
        return;
    };
    if let Some(seconds) = number(spec, "leaseDurationSeconds").filter(|s| *s <= 0) {
        causes.invalid(
            &SPEC.member("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        );
    }
    not_negative(spec, &["leaseTransitions"], &SPEC, causes);
}

pub(super) fn runtime_class(class: &Fields, causes: &mut Causes) {
    match text(class, "handler") {
        "" => causes.required(&Path::Top("handler"), ""),
        handler => causes.invalid_each(&Path::Top("handler"), handler, rules::label(handler)),
    }
}

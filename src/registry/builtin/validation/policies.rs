//! What is wrong with what rules others: roles and bindings, webhooks, budgets, autoscalers, priorities,
//! leases.

use std::collections::HashSet;

use serde_json::Value;

use super::super::fields::{Fields, is_unset, list, number, object, text};
use super::Causes;
use super::containers::objects;
use super::path::Path;
use super::text as rules;
use super::workloads::count_or_share;
use super::{not_negative, one_of, selectors};

const SPEC: Path<'static> = Path::Top("spec");
const RBAC: &str = "rbac.authorization.k8s.io";
/// Greater ones are the system's.
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

pub(super) fn webhooks(configuration: &Fields, causes: &mut Causes) {
    let at = Path::Top("webhooks");
    let mut names = HashSet::new();
    for (index, hook) in objects(list(configuration, "webhooks")) {
        if causes.is_full() {
            return;
        }
        let at = at.item(index);
        let name = text(hook, "name");
        match name {
            "" => causes.required(&at.member("name"), ""),
            name if name.split('.').count() < 3 => {
                let why = "should be a domain with at least three segments separated by dots";
                causes.invalid(&at.member("name"), name, why);
            }
            name => causes.invalid_each(&at.member("name"), name, rules::subdomain(name)),
        }
        if !names.insert(name) {
            causes.duplicate(&at.member("name"), name);
        }
        webhook(hook, &at, causes);
    }
}

fn webhook(hook: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at_rules = at.member("rules");
    for (index, rule) in objects(list(hook, "rules")) {
        let at = at_rules.item(index);
        for member in ["operations", "apiGroups", "apiVersions", "resources"] {
            if list(rule, member).is_empty() {
                causes.required(&at.member(member), "");
            }
        }
        let operations = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        let at_operations = at.member("operations");
        for (index, given) in list(rule, "operations").iter().enumerate() {
            let given = given.as_str().unwrap_or_default();
            if !operations.contains(&given) {
                causes.not_supported(&at_operations.item(index), given, operations);
            }
        }
        one_of(rule, "scope", &["*", "Cluster", "Namespaced"], &at, causes);
    }
    one_of(hook, "failurePolicy", &["Fail", "Ignore"], at, causes);
    one_of(hook, "matchPolicy", &["Equivalent", "Exact"], at, causes);
    one_of(
        hook,
        "reinvocationPolicy",
        &["IfNeeded", "Never"],
        at,
        causes,
    );
    match text(hook, "sideEffects") {
        "" => {
            let why = "must specify one of None, NoneOnDryRun";
            causes.required(&at.member("sideEffects"), why);
        }
        _ => one_of(hook, "sideEffects", &["None", "NoneOnDryRun"], at, causes),
    }
    let seconds = number(hook, "timeoutSeconds").unwrap_or(10);
    if !(1..=30).contains(&seconds) {
        let why = "the timeout value must be between 1 and 30 seconds";
        causes.invalid(&at.member("timeoutSeconds"), seconds, why);
    }
    for member in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = object(hook, member) {
            selectors::selector(selector, &at.member(member), causes);
        }
    }
    let config = object(hook, "clientConfig");
    let at_config = at.member("clientConfig");
    let url = config.map_or("", |config| text(config, "url"));
    let service = config.and_then(|config| object(config, "service"));
    match (url, service) {
        ("", None) => causes.required(&at_config, "exactly one of url or service is required"),
        ("", Some(service)) => {
            let at = at_config.member("service");
            for (member, what) in [("name", "name"), ("namespace", "namespace")] {
                if text(service, member).is_empty() {
                    let why = format!("service {what} is required");
                    causes.required(&at.member(member), &why);
                }
            }
        }
        (_, Some(_)) => causes.required(&at_config, "exactly one of url or service is required"),
        (url, None) if !url.starts_with("https://") => {
            let why = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
            causes.invalid(&at_config.member("url"), url, why);
        }
        _ => {}
    }
    let versions = list(hook, "admissionReviewVersions");
    if versions.is_empty() {
        let why = "must specify one of v1, v1beta1";
        causes.required(&at.member("admissionReviewVersions"), why);
    } else if !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
        let why = "must include at least one of v1, v1beta1";
        causes.invalid(
            &at.member("admissionReviewVersions"),
            versions.to_vec(),
            why,
        );
    }
}

pub(super) fn autoscaler(autoscaler: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let spec = object(autoscaler, "spec").unwrap_or(&empty);
    let min = number(spec, "minReplicas").unwrap_or(1);
    if min < 1 {
        causes.invalid(
            &SPEC.member("minReplicas"),
            min,
            "must be greater than or equal to 1",
        );
    }
    let max = number(spec, "maxReplicas").unwrap_or(0);
    if max < 1 {
        causes.invalid(&SPEC.member("maxReplicas"), max, "must be greater than 0");
    }
    if max < min {
        let why = "must be greater than or equal to `minReplicas`";
        causes.invalid(&SPEC.member("maxReplicas"), max, why);
    }
    let at = SPEC.member("scaleTargetRef");
    let target = object(spec, "scaleTargetRef").unwrap_or(&empty);
    for member in ["kind", "name"] {
        match text(target, member) {
            "" => causes.required(&at.member(member), ""),
            name => causes.invalid_each(&at.member(member), name, rules::path_segment(name)),
        }
    }
    let at = SPEC.member("metrics");
    let types = &[
        "ContainerResource",
        "External",
        "Object",
        "Pods",
        "Resource",
    ];
    for (index, metric) in objects(list(spec, "metrics")) {
        let at = at.item(index);
        match text(metric, "type") {
            "" => causes.required(&at.member("type"), "must specify a metric source type"),
            _ => one_of(metric, "type", types, &at, causes),
        }
        let sources = [
            "containerResource",
            "external",
            "object",
            "pods",
            "resource",
        ];
        let given = sources
            .iter()
            .filter(|member| !is_unset(metric, member))
            .count();
        if given == 0 {
            let why = "must specify exactly one metric source";
            causes.required(&at, why);
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
    let handler = text(class, "handler");
    causes.invalid_each(&Path::Top("handler"), handler, rules::label(handler));
}

//! Validates horizontal pod autoscalers: the target, the metrics and the scaling behavior.

use super::members::objects;
use super::resources;
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, is_unset, list, number, object, text};

const SPEC: Path<'static> = Path::Top("spec");

/// The types of metrics in alphabetical order.
const TYPES: [&str; 5] = [
    "ContainerResource",
    "External",
    "Object",
    "Pods",
    "Resource",
];

/// The members with the source of a metric, and its type. If several members are set, the first in this order is validated.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];

const PERIOD_SECONDS_MAX: i64 = 1800;
const WINDOW_SECONDS_MAX: i64 = 3600;

pub(super) fn autoscaler(autoscaler: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let spec = object(autoscaler, "spec").unwrap_or(&empty);
    replicas(spec, causes);
    let target = object(spec, "scaleTargetRef").unwrap_or(&empty);
    // Of the core group, only replication controllers have replicas.
    let is_group_optional = text(target, "kind") == "ReplicationController";
    let at = SPEC.member("scaleTargetRef");
    reference(target, is_group_optional, &at, causes);
    let at = SPEC.member("metrics");
    for (index, given) in objects(list(spec, "metrics")) {
        if causes.is_full() {
            return;
        }
        metric(given, &at.item(index), causes);
    }
    let at = SPEC.member("behavior");
    let behavior = object(spec, "behavior").unwrap_or(&empty);
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = object(behavior, direction) {
            scaling_rules(rules, &at.member(direction), causes);
        }
    }
}

fn replicas(spec: &Fields, causes: &mut Causes) {
    let min = number(spec, "minReplicas").unwrap_or(1);
    if min < 1 {
        let why = "must be greater than or equal to 1";
        causes.invalid(&SPEC.member("minReplicas"), min, why);
    }
    let at = SPEC.member("maxReplicas");
    let max = number(spec, "maxReplicas").unwrap_or(0);
    match max {
        0 => causes.required(&at, "must be set and greater than 0"),
        ..0 => causes.invalid(&at, max, "must be greater than or equal to 1"),
        _ => {}
    }
    if max < min {
        let why = "must be greater than or equal to `minReplicas`";
        causes.invalid(&at, max, why);
    }
}

/// Validates the kind, name and `apiVersion` of another object.
fn reference(target: &Fields, is_group_optional: bool, at: &Path<'_>, causes: &mut Causes) {
    for member in ["kind", "name"] {
        match text(target, member) {
            "" => causes.required(&at.member(member), ""),
            name => causes.invalid_each(&at.member(member), name, rules::path_segment(name)),
        }
    }
    let version = text(target, "apiVersion");
    let at = at.member("apiVersion");
    let group = version.split_once('/').map_or("", |(group, _)| group);
    if version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {version}");
        causes.invalid(&at, version, &why);
    } else if group.is_empty() && !is_group_optional {
        causes.invalid(&at, version, "apiVersion must specify API group");
    }
}

fn metric(metric: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let kind = text(metric, "type");
    let at_type = at.member("type");
    if kind.is_empty() {
        causes.required(&at_type, "must specify a metric source type");
    }
    if !TYPES.contains(&kind) {
        causes.not_supported(&at_type, kind, &TYPES);
    }
    let sources = SOURCES
        .iter()
        .filter_map(|(member, of)| Some((*member, *of, object(metric, member)?)));
    let given: Vec<_> = sources.collect();
    if let Some((member, of, source)) = given.first() {
        metric_source(source, of, &at.member(member), causes);
    }
    let expected = SOURCES.iter().find(|(_, of)| *of == kind);
    if let Some((member, _)) = expected
        && !given.iter().any(|(given, ..)| given == member)
    {
        let why = "must populate information for the given metric source";
        causes.required(&at.member(member), why);
    }
    if given.len() > 1 {
        for (member, of, _) in given {
            if of != kind {
                let why = "must populate the given metric source only";
                causes.forbidden(&at.member(member), why);
            }
        }
    }
}

/// Validates the source of a metric of the type `kind`.
fn metric_source(source: &Fields, kind: &str, at: &Path<'_>, causes: &mut Causes) {
    let empty = Fields::new();
    if kind == "Object" {
        let described = object(source, "describedObject").unwrap_or(&empty);
        reference(described, true, &at.member("describedObject"), causes);
    }
    match kind {
        "Resource" | "ContainerResource" => resource(source, kind, at, causes),
        _ => {
            let at = at.member("metric");
            let name = object(source, "metric").map_or("", |metric| text(metric, "name"));
            match name {
                "" => causes.required(&at.member("name"), "must specify a metric name"),
                name => causes.invalid_each(&at.member("name"), name, rules::path_segment(name)),
            }
        }
    }
    let target = object(source, "target").unwrap_or(&empty);
    let at = at.member("target");
    metric_target(target, &at, causes);
    values(target, kind, &at, causes);
}

fn resource(source: &Fields, kind: &str, at: &Path<'_>, causes: &mut Causes) {
    let of_container = kind == "ContainerResource";
    let at_name = at.member("name");
    match text(source, "name") {
        "" => causes.required(&at_name, "must specify a resource name"),
        name if of_container => resources::container_resource(name, &at_name, causes),
        _ => {}
    }
    if of_container {
        let at = at.member("container");
        match text(source, "container") {
            "" => causes.required(&at, "must specify a container"),
            name => causes.invalid_each(&at, name, rules::label(name)),
        }
    }
}

fn metric_target(target: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let kind = text(target, "type");
    if kind.is_empty() {
        causes.required(&at.member("type"), "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let why = "must be either Utilization, Value, or AverageValue";
        causes.invalid(&at.member("type"), kind, why);
    }
    for member in ["value", "averageValue"] {
        let amount = resources::quantity(target, member);
        if let Some(amount) = amount.filter(|amount| amount.is_zero() || amount.is_negative()) {
            let at = at.member(member);
            causes.invalid(&at, amount.to_string(), "must be positive");
        }
    }
    if let Some(share) = number(target, "averageUtilization").filter(|share| *share < 1) {
        let at = at.member("averageUtilization");
        causes.invalid(&at, share, "must be greater than 0");
    }
}

/// Validates which values the target of a metric of the type `kind` has.
fn values(target: &Fields, kind: &str, at: &Path<'_>, causes: &mut Causes) {
    let has = |member: &str| !is_unset(target, member);
    let has_average = has("averageValue");
    let (missing, why) = match kind {
        "Pods" => (
            "averageValue",
            "must specify a positive target averageValue",
        ),
        "Object" => (
            "averageValue",
            "must set either a target value or averageValue",
        ),
        "External" => (
            "averageValue",
            "must set either a target value for metric or a per-pod target",
        ),
        _ => (
            "averageUtilization",
            "must set either a target raw value or a target utilization",
        ),
    };
    let other = match kind {
        "Pods" => None,
        "Object" | "External" => Some("value"),
        _ => Some("averageUtilization"),
    };
    let has_other = other.is_some_and(has);
    if !has_average && !has_other {
        causes.required(&at.member(missing), why);
    }
    if has_average && has_other {
        match kind {
            "External" => {
                let why = "may not set both a target value for metric and a per-pod target";
                causes.forbidden(&at.member("value"), why);
            }
            "Resource" | "ContainerResource" => {
                let why = "may not set both a target raw value and a target utilization";
                causes.forbidden(&at.member("averageValue"), why);
            }
            _ => {}
        }
    }
}

fn scaling_rules(given: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at_window = at.member("stabilizationWindowSeconds");
    match number(given, "stabilizationWindowSeconds") {
        Some(seconds @ ..0) => {
            let why = "must be greater than or equal to zero";
            causes.invalid(&at_window, seconds, why);
        }
        Some(seconds) if seconds > WINDOW_SECONDS_MAX => {
            let why = format!("must be less than or equal to {WINDOW_SECONDS_MAX}");
            causes.invalid(&at_window, seconds, &why);
        }
        _ => {}
    }
    let choices = &["Disabled", "Max", "Min"];
    super::members::one_of(given, "selectPolicy", choices, at, causes);
    let at_policies = at.member("policies");
    let policies = list(given, "policies");
    if policies.is_empty() {
        causes.required(&at_policies, "must specify at least one Policy");
    }
    for (index, one) in objects(policies) {
        if causes.is_full() {
            return;
        }
        policy(one, &at_policies.item(index), causes);
    }
    let tolerance = resources::quantity(given, "tolerance");
    if let Some(tolerance) = tolerance.filter(|tolerance| tolerance.is_negative()) {
        let at = at.member("tolerance");
        causes.invalid(&at, tolerance.to_string(), rules::NOT_NEGATIVE);
    }
}

fn policy(policy: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let kind = text(policy, "type");
    if !["Pods", "Percent"].contains(&kind) {
        causes.not_supported(&at.member("type"), kind, &["Percent", "Pods"]);
    }
    for member in ["value", "periodSeconds"] {
        let given = number(policy, member).unwrap_or(0);
        if given <= 0 {
            causes.invalid(&at.member(member), given, "must be greater than zero");
        }
    }
    let period = number(policy, "periodSeconds").unwrap_or(0);
    if period > PERIOD_SECONDS_MAX {
        let why = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
        causes.invalid(&at.member("periodSeconds"), period, &why);
    }
}

//! Validates the scheduling constraints of a pod: affinities, tolerations, topology spread constraints.

use super::members::objects;
use super::members::{one_of, required_one_of};
use super::selectors;
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, number, object, text};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// `tolerations`
pub(super) fn tolerations(spec: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("tolerations");
    for (index, toleration) in objects(list(spec, "tolerations")) {
        if causes.is_full() {
            return;
        }
        let at = at.item(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        if !key.is_empty() {
            causes.invalid_each(&at.member("key"), key, rules::qualified(key));
        } else if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values \
                       and all keys\"";
            causes.invalid(&at.member("operator"), operator, why);
        }
        let effect = text(toleration, "effect");
        if number(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            causes.invalid(&at.member("effect"), effect, why);
        }
        let value = text(toleration, "value");
        match operator {
            "Equal" | "" => {
                causes.invalid_each(&at.member("operator"), value, rules::label_value(value));
            }
            "Exists" if !value.is_empty() => {
                let why = "value must be empty when `operator` is 'Exists'";
                causes.invalid(&at.member("operator"), toleration.clone(), why);
            }
            "Exists" => {}
            other => causes.not_supported(&at.member("operator"), other, &["Equal", "Exists"]),
        }
        one_of(toleration, "effect", EFFECTS, &at, causes);
    }
}

/// `topologySpreadConstraints`
pub(super) fn spread(spec: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("topologySpreadConstraints");
    for (index, constraint) in objects(list(spec, "topologySpreadConstraints")) {
        let at = at.item(index);
        let skew = number(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            causes.invalid(&at.member("maxSkew"), skew, "must be greater than zero");
        }
        topology_key(constraint, &at, causes);
        let actions = &["DoNotSchedule", "ScheduleAnyway"];
        required_one_of(constraint, "whenUnsatisfiable", actions, &at, causes);
        if let Some(selector) = object(constraint, "labelSelector") {
            selectors::selector(selector, &at.member("labelSelector"), causes);
        }
    }
}

fn topology_key(fields: &Fields, at: &Path<'_>, causes: &mut Causes) {
    match text(fields, "topologyKey") {
        "" => causes.required(&at.member("topologyKey"), "can not be empty"),
        key => causes.invalid_each(&at.member("topologyKey"), key, rules::qualified(key)),
    }
}

/// `affinity`
pub(super) fn affinity(spec: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let Some(affinity) = object(spec, "affinity") else {
        return;
    };
    let at = at.member("affinity");
    if let Some(node) = object(affinity, "nodeAffinity") {
        let at = at.member("nodeAffinity");
        if let Some(selector) = object(node, REQUIRED) {
            node_selector(selector, &at.member(REQUIRED), causes);
        }
        let at = at.member(PREFERRED);
        for (index, preferred) in objects(list(node, PREFERRED)) {
            let at = at.item(index);
            weight(preferred, &at, causes);
            if let Some(term) = object(preferred, "preference") {
                node_term(term, false, &at.member("preference"), causes);
            }
        }
    }
    for member in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = object(affinity, member) else {
            continue;
        };
        let at = at.member(member);
        let required_at = at.member(REQUIRED);
        for (index, term) in objects(list(pods, REQUIRED)) {
            pod_term(term, &required_at.item(index), causes);
        }
        let preferred_at = at.member(PREFERRED);
        for (index, preferred) in objects(list(pods, PREFERRED)) {
            let at = preferred_at.item(index);
            weight(preferred, &at, causes);
            if let Some(term) = object(preferred, "podAffinityTerm") {
                pod_term(term, &at.member("podAffinityTerm"), causes);
            }
        }
    }
}

fn weight(preferred: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let weight = number(preferred, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        causes.invalid(&at.member("weight"), weight, "must be in the range 1-100");
    }
}

fn pod_term(term: &Fields, at: &Path<'_>, causes: &mut Causes) {
    for member in ["labelSelector", "namespaceSelector"] {
        if let Some(selector) = object(term, member) {
            selectors::selector(selector, &at.member(member), causes);
        }
    }
    let namespaces_at = at.member("namespaces");
    for name in list(term, "namespaces") {
        let name = name.as_str().unwrap_or_default();
        causes.invalid_each(&namespaces_at, name, rules::label(name));
    }
    topology_key(term, at, causes);
}

/// Validates a node selector, which matches if at least one of its terms does.
pub(super) fn node_selector(selector: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("nodeSelectorTerms");
    let terms = list(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        causes.required(&at, "must have at least one node selector term");
    }
    for (index, term) in objects(terms) {
        node_term(term, true, &at.item(index), causes);
    }
}

/// Validates a term of a node selector. The values of a term that is only preferred can be invalid.
fn node_term(term: &Fields, is_required: bool, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("matchExpressions");
    for (index, requirement) in objects(list(term, "matchExpressions")) {
        let at = at.item(index);
        let values = list(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => causes.required(
                &at.member("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => causes.forbidden(
                &at.member("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "Gt" | "Lt" if values.len() != 1 => causes.required(
                &at.member("values"),
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => causes.invalid(
                &at.member("operator"),
                other,
                "not a valid selector operator",
            ),
        }
        let key = text(requirement, "key");
        causes.invalid_each(&at.member("key"), key, rules::qualified(key));
        let at = at.member("values");
        for (index, value) in values.iter().enumerate().filter(|_| is_required) {
            let value = value.as_str().unwrap_or_default();
            causes.invalid_each(&at.item(index), value, rules::label_value(value));
        }
    }
}

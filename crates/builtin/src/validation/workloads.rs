//! Validates the resources that create pods: the workloads of `apps`, and replication controllers.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::members::not_negative;
use super::members::objects;
use super::text as rules;
use super::text::NOT_NEGATIVE;
use super::{core, pods, selectors};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, number, object, text};

const SPEC: Path<'static> = Path::Top("spec");

/// Validates a pod template whose restart policy must be `Always`.
fn template(spec: &Fields, kind: &str, causes: &mut Causes) {
    let at = SPEC.member("template");
    let Some(template) = object(spec, "template") else {
        return causes.required(&at, "");
    };
    pods::template(template, &at, causes);
    let Some(pod) = object(template, "spec") else {
        return;
    };
    let at = at.member("spec");
    let policy = text(pod, "restartPolicy");
    if policy != "Always" && !policy.is_empty() {
        causes.not_supported(&at.member("restartPolicy"), policy, &["Always"]);
    }
    if number(pod, "activeDeadlineSeconds").is_some() {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        causes.forbidden(&at.member("activeDeadlineSeconds"), &why);
    }
}

fn template_labels(spec: &Fields) -> Option<&Fields> {
    object(object(object(spec, "template")?, "metadata")?, "labels")
}

/// Validates that the selector matches the labels of the template. A missing selector matches nothing, an empty one
/// everything; an invalid one has its own causes.
pub(super) fn selected(spec: &Fields, causes: &mut Causes) {
    let selector = object(spec, "selector");
    let labels = template_labels(spec);
    if selector.is_none_or(selectors::is_valid)
        && !selector.is_some_and(|s| selectors::matches(s, labels))
    {
        unselected(labels, causes);
    }
}

fn unselected(labels: Option<&Fields>, causes: &mut Causes) {
    let at = SPEC.member("template");
    let at = at.member("metadata");
    let shown = labels.map_or(Value::Null, |labels| Value::Object(labels.clone()));
    causes.invalid(
        &at.member("labels"),
        shown,
        "`selector` does not match template `labels`",
    );
}

/// Validates the selector, which must not be empty, and the template; `empty` and `invalid` are the messages about the
/// selector. The template is not validated if the selector is invalid.
fn selector_and_template(
    spec: &Fields,
    (empty, invalid): (&str, &str),
    template: impl FnOnce(&mut Causes),
    causes: &mut Causes,
) {
    let at = SPEC.member("selector");
    let selector = object(spec, "selector");
    match selector {
        None => causes.required(&at, ""),
        Some(selector) => {
            selectors::selector(selector, &at, causes);
            if selectors::is_empty(selector) {
                causes.invalid(&at, Value::Object(selector.clone()), empty);
            }
        }
    }
    if let Some(selector) = selector.filter(|selector| !selectors::is_valid(selector)) {
        return causes.invalid(&at, Value::Object(selector.clone()), invalid);
    }
    selected(spec, causes);
    template(causes);
}

const EMPTY_SELECTOR: &str = "empty selector is invalid for deployment";
const INVALID_SELECTOR: &str = "invalid label selector";

pub(super) fn deployment(object_: &Fields, causes: &mut Causes) {
    let Some(spec) = object(object_, "spec") else {
        return;
    };
    not_negative(spec, &["replicas"], &SPEC, causes);
    let of_replica_set = |causes: &mut Causes| template(spec, "ReplicaSet", causes);
    let messages = (EMPTY_SELECTOR, INVALID_SELECTOR);
    selector_and_template(spec, messages, of_replica_set, causes);
    let at = SPEC.member("strategy");
    if let Some(strategy) = object(spec, "strategy") {
        match text(strategy, "type") {
            "Recreate" if object(strategy, "rollingUpdate").is_some() => causes.forbidden(
                &at.member("rollingUpdate"),
                "may not be specified when strategy `type` is 'Recreate'",
            ),
            "Recreate" => {}
            "RollingUpdate" => match object(strategy, "rollingUpdate") {
                None => {
                    let why = "this should be defaulted and never be nil";
                    causes.required(&at.member("rollingUpdate"), why);
                }
                Some(rolling) => rolling_update(rolling, &at.member("rollingUpdate"), causes),
            },
            other => {
                // The names of the members in upstream's message are those of its internal type.
                let rolling = object(strategy, "rollingUpdate").map(|rolling| {
                    let value = |member: &str| rolling.get(member).cloned().unwrap_or(json!(0));
                    json!({"MaxUnavailable": value("maxUnavailable"), "MaxSurge": value("maxSurge")})
                });
                let shown = json!({"Type": other, "RollingUpdate": rolling});
                causes.not_supported(&at, shown, &["Recreate", "RollingUpdate"]);
            }
        }
    }
    not_negative(
        spec,
        &["minReadySeconds", "revisionHistoryLimit"],
        &SPEC,
        causes,
    );
    let Some(deadline) = number(spec, "progressDeadlineSeconds") else {
        return;
    };
    not_negative(spec, &["progressDeadlineSeconds"], &SPEC, causes);
    if deadline <= number(spec, "minReadySeconds").unwrap_or(0) {
        let why = "must be greater than minReadySeconds";
        causes.invalid(&SPEC.member("progressDeadlineSeconds"), deadline, why);
    }
}

/// Validates an int-or-string: a number of pods or a percentage.
pub(super) fn count_or_share(fields: &Fields, member: &str, at: &Path<'_>, causes: &mut Causes) {
    match fields.get(member) {
        Some(Value::String(share)) => {
            let digits = share.strip_suffix('%');
            let good =
                digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
            if !good {
                let why = "a valid percent string must be a numeric string followed by an ending \
                           '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                causes.invalid(&at.member(member), &**share, why);
            }
        }
        _ => not_negative(fields, &[member], at, causes),
    }
}

/// Returns the percentage in an int-or-string member; zero if it is a number.
pub(super) fn percentage(fields: &Fields, member: &str) -> i64 {
    let digits = text(fields, member).strip_suffix('%');
    let digits = digits.filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
    // A percentage that is too large for a number counts as the largest one.
    digits.map_or(0, |digits| digits.parse().unwrap_or(i64::MAX))
}

fn is_zero(fields: &Fields, member: &str) -> bool {
    match fields.get(member) {
        Some(Value::String(_)) => percentage(fields, member) == 0,
        other => other.and_then(Value::as_i64).unwrap_or(0) == 0,
    }
}

fn rolling_update(rolling: &Fields, at: &Path<'_>, causes: &mut Causes) {
    count_or_share(rolling, "maxUnavailable", at, causes);
    count_or_share(rolling, "maxSurge", at, causes);
    if is_zero(rolling, "maxUnavailable") && is_zero(rolling, "maxSurge") {
        let why = "may not be 0 when `maxSurge` is 0";
        causes.invalid(
            &at.member("maxUnavailable"),
            rolling["maxUnavailable"].clone(),
            why,
        );
    }
    if percentage(rolling, "maxUnavailable") > 100 {
        let given = rolling["maxUnavailable"].clone();
        causes.invalid(
            &at.member("maxUnavailable"),
            given,
            "must not be greater than 100%",
        );
    }
}

pub(super) fn replica_set(object_: &Fields, causes: &mut Causes) {
    let Some(spec) = object(object_, "spec") else {
        return;
    };
    not_negative(spec, &["replicas", "minReadySeconds"], &SPEC, causes);
    let of_replica_set = |causes: &mut Causes| template(spec, "ReplicaSet", causes);
    // Upstream's message is about a deployment too.
    let messages = (EMPTY_SELECTOR, INVALID_SELECTOR);
    selector_and_template(spec, messages, of_replica_set, causes);
}

pub(super) fn replication_controller(object_: &Fields, causes: &mut Causes) {
    let Some(spec) = object(object_, "spec") else {
        return;
    };
    not_negative(spec, &["minReadySeconds"], &SPEC, causes);
    let selector = object(spec, "selector").filter(|selector| !selector.is_empty());
    if selector.is_none() {
        causes.required(&SPEC.member("selector"), "");
    }
    not_negative(spec, &["replicas"], &SPEC, causes);
    let labels = template_labels(spec);
    if object(spec, "template").is_some()
        && selector.is_some_and(|selector| !selectors::equals(selector, labels))
    {
        unselected(labels, causes);
    }
    template(spec, "ReplicationController", causes);
}

pub(super) fn daemon_set(object_: &Fields, causes: &mut Causes) {
    let Some(spec) = object(object_, "spec") else {
        return;
    };
    let at = SPEC.member("selector");
    if let Some(selector) = object(spec, "selector") {
        selectors::selector(selector, &at, causes);
    }
    selected(spec, causes);
    if let Some(selector) = object(spec, "selector").filter(|s| selectors::is_empty(s)) {
        let why = "empty selector is invalid for daemonset";
        causes.invalid(&at, Value::Object(selector.clone()), why);
    }
    template(spec, "DaemonSet", causes);
    not_negative(spec, &["minReadySeconds"], &SPEC, causes);
    let at = SPEC.member("updateStrategy");
    if let Some(strategy) = object(spec, "updateStrategy") {
        match text(strategy, "type") {
            "OnDelete" => {}
            "RollingUpdate" => match object(strategy, "rollingUpdate") {
                None => causes.required(&at.member("rollingUpdate"), ""),
                Some(rolling) => daemon_update(rolling, &at.member("rollingUpdate"), causes),
            },
            other => {
                causes.not_supported(&at.member("type"), other, &["RollingUpdate", "OnDelete"]);
            }
        }
    }
    not_negative(spec, &["revisionHistoryLimit"], &SPEC, causes);
}

fn daemon_update(rolling: &Fields, at: &Path<'_>, causes: &mut Causes) {
    count_or_share(rolling, "maxUnavailable", at, causes);
    count_or_share(rolling, "maxSurge", at, causes);
    match (
        is_zero(rolling, "maxUnavailable"),
        is_zero(rolling, "maxSurge"),
    ) {
        (true, true) => {
            let why = "cannot be 0 when maxSurge is 0";
            causes.invalid(
                &at.member("maxUnavailable"),
                rolling["maxUnavailable"].clone(),
                why,
            );
        }
        (false, false) => {
            let why = "may not be set when maxUnavailable is non-zero";
            causes.invalid(&at.member("maxSurge"), rolling["maxSurge"].clone(), why);
        }
        _ => {}
    }
}

pub(super) fn stateful_set(object_: &Fields, causes: &mut Causes) {
    let Some(spec) = object(object_, "spec") else {
        return;
    };
    let policy = text(spec, "podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel" | "") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        causes.invalid(&SPEC.member("podManagementPolicy"), policy, why);
    }
    let at = SPEC.member("updateStrategy");
    if let Some(strategy) = object(spec, "updateStrategy") {
        let rolling = object(strategy, "rollingUpdate");
        match (text(strategy, "type"), rolling) {
            ("OnDelete", Some(rolling)) => {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                let given = Value::Object(rolling.clone());
                causes.invalid(&at.member("rollingUpdate"), given, why);
            }
            ("RollingUpdate", Some(rolling)) => {
                not_negative(rolling, &["partition"], &at.member("rollingUpdate"), causes);
            }
            ("OnDelete" | "RollingUpdate", None) => {}
            _ => {
                let why = "must be 'RollingUpdate' or 'OnDelete'";
                causes.invalid(&at, Value::Object(strategy.clone()), why);
            }
        }
    }
    let at = SPEC.member("persistentVolumeClaimRetentionPolicy");
    if let Some(policy) = object(spec, "persistentVolumeClaimRetentionPolicy") {
        for member in ["whenDeleted", "whenScaled"] {
            super::members::required_one_of(policy, member, &["Retain", "Delete"], &at, causes);
        }
    }
    let at = SPEC.member("volumeClaimTemplates");
    for (index, claim) in objects(list(spec, "volumeClaimTemplates")) {
        core::claim_spec(claim, &at.item(index).member("spec"), causes);
    }
    not_negative(spec, &["replicas", "minReadySeconds"], &SPEC, causes);
    if let Some(ordinals) = object(spec, "ordinals")
        && let Some(start) = number(ordinals, "start").filter(|start| *start < 0)
    {
        causes.invalid(
            &SPEC.member("ordinals").member("start"),
            start,
            NOT_NEGATIVE,
        );
    }
    let name = text(spec, "serviceName");
    if !name.is_empty() {
        causes.invalid_each(&SPEC.member("serviceName"), name, rules::label(name));
    }
    let messages = ("empty selector is invalid for statefulset", "");
    let of_set = |causes: &mut Causes| template_with_claims(spec, causes);
    selector_and_template(spec, messages, of_set, causes);
}

/// Validates the pod template of a stateful set. The claims are the first volumes of its pods, although the template does
/// not list them.
fn template_with_claims(spec: &Fields, causes: &mut Causes) {
    let mut names = HashSet::new();
    let mut volumes: Vec<Value> = Vec::new();
    for claim in list(spec, "volumeClaimTemplates") {
        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
        if names.insert(name) {
            let claim = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
            volumes.push(claim);
        }
    }
    let mut whole = spec.clone();
    let pod = whole.get_mut("template").and_then(|t| t.get_mut("spec"));
    if let Some(pod) = pod.and_then(Value::as_object_mut) {
        let others = list(pod, "volumes").iter();
        let others =
            others.filter(|volume| !names.contains(volume["name"].as_str().unwrap_or_default()));
        volumes.extend(others.cloned());
        pod.insert("volumes".to_owned(), volumes.into());
        // The controller overwrites both, so they are not validated.
        pod.remove("hostname");
        pod.remove("subdomain");
    }
    template(&whole, "StatefulSet", causes);
}

/// Validates the replica counts in a status.
pub(super) fn status(object_: &Fields, causes: &mut Causes) {
    let at = Path::Top("status");
    let Some(status) = object(object_, "status") else {
        return;
    };
    let counts = [
        "observedGeneration",
        "replicas",
        "fullyLabeledReplicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "currentReplicas",
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ];
    not_negative(status, &counts, &at, causes);
    let Some(replicas) = number(status, "replicas") else {
        return;
    };
    for member in [
        "fullyLabeledReplicas",
        "updatedReplicas",
        "readyReplicas",
        "currentReplicas",
    ] {
        if let Some(part) = number(status, member).filter(|part| *part > replicas) {
            causes.invalid(
                &at.member(member),
                part,
                "cannot be greater than status.replicas",
            );
        }
    }
    let ready = number(status, "readyReplicas").unwrap_or(0);
    if let Some(available) = number(status, "availableReplicas") {
        let at = at.member("availableReplicas");
        if available > replicas {
            causes.invalid(&at, available, "cannot be greater than status.replicas");
        }
        if available > ready {
            causes.invalid(&at, available, "cannot be greater than readyReplicas");
        }
    }
}

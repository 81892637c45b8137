//! The quota usage of pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::super::resources::{
    RequestsOrLimits, ResourceList, is_pod_level, parse, raise, total_of_pod,
};
use super::scope::Scope;
use watchet_schema::Quantity;

const HUGE_PAGES: &str = "hugepages-";
const REQUESTS: &str = "requests.";
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// The limits of a quota that count pods.
const LIMITS: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];

/// The limits that require every container to specify its amount.
const REQUIRED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];

/// Returns true if the limit of this name counts pods.
pub(super) fn matches(limit: &str) -> bool {
    let unprefixed = limit.strip_prefix(REQUESTS);
    let is_extended = unprefixed.is_some_and(|name| {
        name.starts_with(HUGE_PAGES) || name.starts_with(DEVICE_CLASS) || !is_native(limit)
    });
    LIMITS.contains(&limit) || limit.starts_with(HUGE_PAGES) || is_extended
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns true if the pod has an `activeDeadlineSeconds`.
pub(super) fn is_terminating(pod: &Value) -> bool {
    let deadline = pod["spec"]["activeDeadlineSeconds"].as_i64();
    deadline.is_some_and(|deadline| deadline >= 0)
}

/// Returns true if the pod still uses resources: it has not ended, and the time for its termination has not passed.
fn is_using(pod: &Value, now: Timestamp) -> bool {
    let phase = pod["status"]["phase"].as_str();
    if matches!(phase, Some("Failed" | "Succeeded")) {
        return false;
    }
    let metadata = &pod["metadata"];
    let deleted = metadata["deletionTimestamp"].as_str();
    let deleted: Option<Timestamp> = deleted.and_then(|text| text.parse().ok());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64();
    let Some((deleted, grace)) = deleted.zip(grace) else {
        return true;
    };
    let end = deleted.saturating_add(SignedDuration::from_secs(grace));
    end.map_or(true, |end| now <= end)
}

/// Returns the usage of each limit by a pod, except that of the number of pods in any state.
pub(super) fn usage(pod: &Value, now: Timestamp) -> ResourceList {
    match is_using(pod, now) {
        true => by_limit(
            &total(pod, RequestsOrLimits::Requests),
            &total(pod, RequestsOrLimits::Limits),
        ),
        false => ResourceList::new(),
    }
}

/// Returns amounts by the names of the limits that they count for.
fn by_limit(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut usage: ResourceList = [("pods".to_owned(), Quantity::of_count(1))].into();
    for (name, amount) in requests {
        let is_computed = ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str());
        let is_plain = is_computed || name.starts_with(HUGE_PAGES);
        let is_extended = !is_native(name) && !name.starts_with(REQUESTS);
        if is_plain {
            usage.insert(name.clone(), amount.clone());
        }
        if is_plain || is_extended || name.starts_with(DEVICE_CLASS) {
            usage.insert(format!("{REQUESTS}{name}"), amount.clone());
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(name) {
            usage.insert(format!("limits.{name}"), amount.clone());
        }
    }
    usage
}

/// Returns the total requests or limits of a pod. For a container that is being resized, the larger of the amounts in
/// the spec and in the status counts.
fn total(pod: &Value, bound: RequestsOrLimits) -> ResourceList {
    total_of_pod(&pod["spec"], bound, |container| {
        effective(pod, container, bound)
    })
}

fn effective(pod: &Value, container: &Value, bound: RequestsOrLimits) -> ResourceList {
    let asked = bound.of(container);
    let status = &pod["status"];
    let lists = ["containerStatuses", "initContainerStatuses"].map(|list| status[list].as_array());
    let mut statuses = lists.into_iter().flatten().flatten();
    let own = statuses.find(|status| status["name"] == container["name"]);
    let Some(own) = own.filter(|own| own["resources"].is_object()) else {
        return asked;
    };
    let mut effective = bound.of(own);
    if bound == RequestsOrLimits::Requests {
        raise(&mut effective, &parse(&own["allocatedResources"]));
    }
    if !is_resize_infeasible(status) {
        raise(&mut effective, &asked);
    }
    effective
}

fn is_resize_infeasible(status: &Value) -> bool {
    let conditions = status["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let pending = conditions.find(|condition| condition["type"] == "PodResizePending");
    pending.is_some_and(|condition| condition["reason"] == "Infeasible")
}

/// Rejects a pod with containers that do not specify the amounts of limited resources.
pub(super) fn check_constraints(limits: &[&str], pod: &Value) -> Result<(), String> {
    let spec = &pod["spec"];
    let names_of = |list: &Value| -> BTreeSet<String> { parse(list).into_keys().collect() };
    let resources = &spec["resources"];
    let mut of_pod = names_of(&resources["requests"]);
    of_pod.extend(names_of(&resources["limits"]));
    if of_pod.iter().any(|name| is_pod_level(name)) {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let containers = ["containers", "initContainers"].map(|list| spec[list].as_array());
    for container in containers.into_iter().flatten().flatten() {
        let usage = by_limit(
            &RequestsOrLimits::Requests.of(container),
            &RequestsOrLimits::Limits.of(container),
        );
        let name = container["name"].as_str().unwrap_or_default();
        for limit in REQUIRED {
            if limits.contains(&limit) && !usage.contains_key(limit) {
                missing.entry(limit).or_default().insert(name);
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.into_iter().map(|(limit, names)| {
        let names = names.into_iter().collect::<Vec<_>>().join(",");
        format!("{limit} for: {names}")
    });
    let missing = missing.collect::<Vec<_>>().join("; ");
    Err(format!("must specify {missing}"))
}

/// Returns true if a pod is in a scope.
pub(super) fn is_in_scope(scope: &Scope, pod: &Value) -> bool {
    match scope.name.as_str() {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = pod["spec"]["priorityClassName"].as_str();
            scope.selects(class.filter(|class| !class.is_empty()))
        }
        "CrossNamespacePodAffinity" => has_affinity_across_namespaces(&pod["spec"]["affinity"]),
        _ => false,
    }
}

fn is_best_effort(pod: &Value) -> bool {
    if let Some(class) = pod["status"]["qosClass"].as_str().filter(|c| !c.is_empty()) {
        return class == "BestEffort";
    }
    let spec = &pod["spec"];
    let asks = |of: &Value| {
        let lists =
            [RequestsOrLimits::Requests, RequestsOrLimits::Limits].map(|bound| bound.of(of));
        let mut all = lists.into_iter().flatten();
        all.any(|(name, amount)| {
            let counts = ["cpu", "memory"].contains(&name.as_str());
            counts && !amount.is_zero() && !amount.is_negative()
        })
    };
    if spec["resources"].is_object() {
        return !asks(spec);
    }
    let containers = ["containers", "initContainers"].map(|list| spec[list].as_array());
    let mut containers = containers.into_iter().flatten().flatten();
    !containers.any(asks)
}

fn has_affinity_across_namespaces(affinity: &Value) -> bool {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let is_across = |term: &Value| {
        let namespaces = term["namespaces"].as_array();
        namespaces.is_some_and(|names| !names.is_empty()) || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let terms = |strength: &str| affinity[kind][strength].as_array().into_iter().flatten();
        let mut preferred = terms(PREFERRED).map(|weighted| &weighted["podAffinityTerm"]);
        terms(REQUIRED).any(is_across) || preferred.any(is_across)
    })
}

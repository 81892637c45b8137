//! Strategies: how resources differ when they are written, as data and small rules. What they have
//! in common is in `metadata` and in the verbs.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::names::NameRule;
use super::{Resource, metadata};
use crate::builtin::subresources;
use crate::{apiextensions, builtin};

/// How long an event is kept (§2.5).
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// Resources whose desired state has a generation.
const WITH_GENERATION: &[(&str, &str)] = &[
    ("", "pods"),
    ("", "podtemplates"),
    ("", "replicationcontrollers"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings",
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("discovery.k8s.io", "endpointslices"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
    ),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "ingresses"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    ("resource.k8s.io", "resourceslices"),
    ("scheduling.k8s.io", "priorityclasses"),
];

/// Resources that a PUT makes when they are absent.
const CREATED_ON_UPDATE: &[(&str, &str)] = &[
    ("", "endpoints"),
    ("", "events"),
    ("", "limitranges"),
    ("", "services"),
    ("coordination.k8s.io", "leases"),
    ("events.k8s.io", "events"),
    ("node.k8s.io", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
];

/// Resources that a PUT overwrites only at a version that it names.
const CONDITIONALLY_UPDATED: &[(&str, &str)] = &[
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings",
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("coordination.k8s.io", "leases"),
    ("node.k8s.io", "runtimeclasses"),
    ("policy", "poddisruptionbudgets"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "volumeattachments"),
];

fn listed(resource: &Resource, list: &[(&str, &str)]) -> bool {
    list.iter().any(|(g, p)| resource.is(g, p))
}

pub(crate) fn name_rule(resource: &Resource) -> NameRule {
    match (&*resource.group, &*resource.plural) {
        ("", "namespaces") => NameRule::Label,
        ("", "services") => NameRule::Label,
        ("rbac.authorization.k8s.io", _) | ("apiregistration.k8s.io", _) => NameRule::PathSegment,
        // The name of an address is the address, and a v6 one has colons; of a request it is anybody's.
        ("networking.k8s.io", "ipaddresses") | ("certificates.k8s.io", _) => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    }
}

pub(crate) fn has_generation(resource: &Resource) -> bool {
    resource.custom.is_some() || listed(resource, WITH_GENERATION)
}

pub(crate) fn has_status(resource: &Resource) -> bool {
    resource.subresource("status").is_some()
}

pub(crate) fn creates_on_update(resource: &Resource) -> bool {
    listed(resource, CREATED_ON_UPDATE)
}

pub(crate) fn allows_unconditional_update(resource: &Resource) -> bool {
    resource.custom.is_none() && !listed(resource, CONDITIONALLY_UPDATED)
}

pub(crate) fn ttl(resource: &Resource) -> Option<Duration> {
    is_event(resource).then_some(EVENT_TTL)
}

/// Whether a delete gives the object time to end (§1.5).
pub(crate) fn is_graceful(resource: &Resource) -> bool {
    resource.is("", "pods")
}

/// Whether dependents can hold the object's deletion back: nothing depends on an event.
pub(crate) fn is_collected(resource: &Resource) -> bool {
    !is_event(resource)
}

fn is_event(resource: &Resource) -> bool {
    resource.is("", "events") || resource.is("events.k8s.io", "events")
}

/// Whether the dependents are kept when a delete does not say what becomes of them: as the first versions
/// of Kubernetes did it, and clients count on it.
pub(crate) fn orphans_by_default(resource: &Resource) -> bool {
    resource.is("", "replicationcontrollers") || resource.is("batch", "jobs")
}

/// Whether a delete that is done answers with the object's last state and not with a Status.
pub(crate) fn returns_deleted(resource: &Resource) -> bool {
    matches!(
        (&*resource.group, &*resource.plural),
        (
            "",
            "pods"
                | "services"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "podtemplates"
                | "resourcequotas"
                | "serviceaccounts"
        ) | (
            "storage.k8s.io",
            "csidrivers"
                | "csinodes"
                | "storageclasses"
                | "volumeattachments"
                | "volumeattributesclasses"
        )
    )
}

/// Gives a new object, which has its identity, what the server decides of it.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    if resource.custom.is_some() {
        if has_status(resource) {
            put(object, "status", None);
        }
        return;
    }
    builtin::prepare_create(resource, object, has_status(resource));
    if apiextensions::is_definitions(resource) {
        apiextensions::prepare_definition_create(object);
    }
    if resource.is("", "namespaces") {
        add_namespace_finalizer(object);
    }
    prepare(resource, object);
}

/// What holds after every write.
pub(crate) fn prepare(resource: &Resource, object: &mut Value) {
    if resource.is("", "namespaces") {
        let name = object["metadata"]["name"].clone();
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
    if resource.is("", "secrets") {
        encode_string_data(object);
    }
}

/// `stringData` is a way to write `data` and is never stored.
fn encode_string_data(secret: &mut Value) {
    let taken = secret.as_object_mut().and_then(|s| s.remove("stringData"));
    let Some(Value::Object(texts)) = taken else {
        return;
    };
    if !secret["data"].is_object() {
        secret["data"] = json!({});
    }
    for (key, text) in texts {
        secret["data"][key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}

fn add_namespace_finalizer(object: &mut Value) {
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    let finalizers = &mut object["spec"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(list) if list.iter().any(|f| f == "kubernetes") => {}
        Some(list) => list.push("kubernetes".into()),
        None => *finalizers = json!(["kubernetes"]),
    }
}

/// The members of metadata that a write to the status writes too.
pub(crate) fn written_with_status(resource: &Resource) -> &'static [&'static str] {
    match resource.is("apps", "deployments") {
        _ if resource.custom.is_some() => &[],
        true => &["annotations"],
        false => &["annotations", "labels"],
    }
}

/// Puts back what a write to `subresource` of `stored` may not change.
pub(crate) fn keep_from_stored(
    resource: &Resource,
    subresource: Option<&str>,
    stored: &Value,
    object: &mut Value,
) {
    match subresource {
        part if subresources::certificates::is_of(resource) => {
            let now = metadata::now();
            subresources::certificates::keep(part, stored, object, now);
        }
        Some("status") => {
            let mut kept = stored.clone();
            put(
                &mut kept,
                "status",
                object.get_mut("status").map(Value::take),
            );
            for member in written_with_status(resource) {
                let value = object["metadata"].get_mut(*member).map(Value::take);
                put(&mut kept["metadata"], member, value);
            }
            *object = kept;
        }
        Some(part @ ("ephemeralcontainers" | "resize")) => {
            subresources::pods::keep(part, stored, object);
        }
        Some("finalize") => {
            // Upstream lets it write the metadata too.
            put(object, "status", stored.get("status").cloned());
        }
        _ => {
            if has_status(resource) {
                put(object, "status", stored.get("status").cloned());
            }
            if apiextensions::is_definitions(resource) {
                apiextensions::prepare_definition_update(object);
            }
            if resource.is("", "namespaces") {
                // Only the subresource `finalize` changes them.
                if !object["spec"].is_object() {
                    object["spec"] = json!({});
                }
                let finalizers = stored["spec"].get("finalizers").cloned();
                put(&mut object["spec"], "finalizers", finalizers);
            }
        }
    }
}

/// Sets or removes a member; of what is no object nothing can be removed.
fn put(object: &mut Value, member: &str, value: Option<Value>) {
    match (value, object.as_object_mut()) {
        (Some(value), Some(members)) if !value.is_null() => {
            members.insert(member.to_owned(), value);
        }
        (_, Some(members)) => {
            members.remove(member);
        }
        (_, None) => {}
    }
}

/// Whether `object`, as it was just written, has nothing left that holds its deletion back.
pub(crate) fn is_finished(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    metadata["deletionTimestamp"].is_string()
        && empty(&metadata["finalizers"])
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && (!resource.is("", "namespaces") || empty(&object["spec"]["finalizers"]))
}

/// Whether the desired state differs: anything but metadata and status, which is part of it where a
/// custom resource does not write it apart (§1.4).
pub(crate) fn desired_state_differs(resource: &Resource, a: &Value, b: &Value) -> bool {
    let status_counts = resource.custom.is_some() && !has_status(resource);
    let desired = |(member, _): &(&String, &Value)| match member.as_str() {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => status_counts,
        _ => true,
    };
    match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => !a.iter().filter(desired).eq(b.iter().filter(desired)),
        (a, b) => a.is_some() != b.is_some(),
    }
}

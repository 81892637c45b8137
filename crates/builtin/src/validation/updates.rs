//! Validates that an update does not change immutable fields; most rules are rows of a table.

use serde_json::Value;

use super::text::IMMUTABLE;
use super::{batch, nodes, pod_annotations, pods, quotas, resources, services, storage};
use watchet_registry::Causes;
use watchet_registry::Resource;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, flag, is_unset, object, text};
use watchet_schema::Quantity;

/// The cause of a change of an immutable field.
#[derive(Debug, Clone, Copy)]
enum ImmutableError {
    /// `Invalid value`, with this message.
    Invalid(&'static str),
    /// `Forbidden`, with this message.
    Forbidden(&'static str),
}

const FIXED: ImmutableError = ImmutableError::Invalid(IMMUTABLE);

/// Group, plural, immutable field, cause.
type Line = (&'static str, &'static str, &'static str, ImmutableError);

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("", "secrets", "type", FIXED),
    ("", "persistentvolumes", "spec.volumeMode", FIXED),
    ("", "persistentvolumeclaims", "spec.volumeMode", FIXED),
    ("apps", "daemonsets", "spec.selector", FIXED),
    ("apps", "deployments", "spec.selector", FIXED),
    ("apps", "replicasets", "spec.selector", FIXED),
    ("apps", "controllerrevisions", "data", FIXED),
    ("discovery.k8s.io", "endpointslices", "addressType", FIXED),
    ("networking.k8s.io", "ingressclasses", "spec.controller", FIXED),
    ("networking.k8s.io", "ipaddresses", "spec.parentRef", FIXED),
    ("networking.k8s.io", "servicecidrs", "spec.cidrs", FIXED),
    ("node.k8s.io", "runtimeclasses", "handler", FIXED),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "roleRef", ImmutableError::Invalid("cannot change roleRef")),
    ("rbac.authorization.k8s.io", "rolebindings", "roleRef", ImmutableError::Invalid("cannot change roleRef")),
    ("resource.k8s.io", "resourceclaims", "spec", FIXED),
    ("resource.k8s.io", "resourceclaimtemplates", "spec", FIXED),
    ("resource.k8s.io", "resourceslices", "spec.driver", FIXED),
    ("resource.k8s.io", "resourceslices", "spec.nodeName", FIXED),
    ("resource.k8s.io", "resourceslices", "spec.pool.name", FIXED),
    ("scheduling.k8s.io", "priorityclasses", "value", ImmutableError::Forbidden("may not be changed in an update.")),
    ("scheduling.k8s.io", "priorityclasses", "preemptionPolicy", FIXED),
    ("storage.k8s.io", "csidrivers", "spec.attachRequired", FIXED),
    ("storage.k8s.io", "csidrivers", "spec.volumeLifecycleModes", FIXED),
    ("storage.k8s.io", "csistoragecapacities", "nodeTopology", FIXED),
    ("storage.k8s.io", "csistoragecapacities", "storageClassName", FIXED),
    ("storage.k8s.io", "storageclasses", "parameters", FIXED),
    ("storage.k8s.io", "storageclasses", "provisioner", FIXED),
    ("storage.k8s.io", "storageclasses", "reclaimPolicy", FIXED),
    ("storage.k8s.io", "storageclasses", "volumeBindingMode", FIXED),
    ("storage.k8s.io", "volumeattachments", "spec", FIXED),
    ("storage.k8s.io", "volumeattributesclasses", "driverName", ImmutableError::Forbidden("updates to driverName are forbidden.")),
    ("storage.k8s.io", "volumeattributesclasses", "parameters", ImmutableError::Forbidden("updates to parameters are forbidden.")),
];

/// The fields of a stateful set's spec that may change.
const SET_CHANGES: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(super) fn update(resource: &Resource, old: &Fields, new: &Fields, causes: &mut Causes) {
    for (group, plural, path, error) in LINES {
        if resource.is(group, plural) {
            fixed(path, *error, old, new, causes);
        }
    }
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => {
            pod_annotations::update(old, new, causes);
            pods::update(old, new, causes);
        }
        ("", "services") => services::update(old, new, causes),
        ("", "nodes") => nodes::update(old, new, causes),
        ("", "configmaps") => sealed(&["data", "binaryData"], old, new, causes),
        ("", "secrets") => sealed(&["data"], old, new, causes),
        ("", "resourcequotas") => quotas::update(old, new, causes),
        ("", "persistentvolumes") => volume(old, new, causes),
        ("", "persistentvolumeclaims") => claim(old, new, causes),
        ("apps", "statefulsets") => stateful_set(old, new, causes),
        ("batch", "jobs") => batch::update(old, new, causes),
        _ => {}
    }
}

fn fixed(
    path: &'static str,
    error: ImmutableError,
    old: &Fields,
    new: &Fields,
    causes: &mut Causes,
) {
    let find = |fields: &Fields| -> Option<Value> {
        let mut parts = path.split('.');
        let top = fields.get(parts.next()?);
        let found = parts.try_fold(top?, |value, part| value.get(part));
        found.cloned()
    };
    let (before, now) = (find(old), find(new));
    if before == now {
        return;
    }
    match error {
        ImmutableError::Invalid(why) => {
            causes.invalid(&Path::Top(path), now.unwrap_or(Value::Null), why)
        }
        ImmutableError::Forbidden(why) => causes.forbidden(&Path::Top(path), why),
    }
}

/// Validates that data marked as `immutable` does not change.
fn sealed(members: &[&'static str], old: &Fields, new: &Fields, causes: &mut Causes) {
    if !flag(old, "immutable") {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if !flag(new, "immutable") {
        causes.forbidden(&Path::Top("immutable"), why);
    }
    let empty = Fields::new();
    for member in members {
        let data = |fields| object(fields, member).unwrap_or(&empty);
        if data(old) != data(new) {
            causes.forbidden(&Path::Top(member), why);
        }
    }
}

fn stateful_set(old: &Fields, new: &Fields, causes: &mut Causes) {
    let fixed = |fields: &Fields| {
        let mut spec = object(fields, "spec").cloned().unwrap_or_default();
        spec.retain(|member, _| !SET_CHANGES.contains(&member.as_str()));
        spec
    };
    if fixed(old) != fixed(new) {
        causes.forbidden(
            &Path::Top("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', \
             'template', 'updateStrategy', 'revisionHistoryLimit', \
             'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

/// Validates that the source of a persistent volume does not change.
fn volume(old: &Fields, new: &Fields, causes: &mut Causes) {
    let (Some(old), Some(new)) = (object(old, "spec"), object(new, "spec")) else {
        return;
    };
    if !storage::sources(old).eq(storage::sources(new)) {
        causes.forbidden(
            &Path::Top("spec").member("persistentvolumesource"),
            "spec.persistentvolumesource is immutable after creation",
        );
    }
}

/// Validates an update of a claim: its volume is set once, and only a bound claim may request more capacity.
fn claim(old: &Fields, new: &Fields, causes: &mut Causes) {
    let bound = object(old, "status").is_some_and(|status| text(status, "phase") == "Bound");
    let (Some(before), Some(now)) = (object(old, "spec"), object(new, "spec")) else {
        return;
    };
    let mut allowed = before.clone();
    let mut allow = |member: &str| match now.get(member) {
        Some(value) => drop(allowed.insert(member.to_owned(), value.clone())),
        None => drop(allowed.remove(member)),
    };
    for member in ["volumeName", "storageClassName"] {
        if is_unset(before, member) {
            allow(member);
        }
    }
    if bound {
        allow("resources");
        allow("volumeAttributesClassName");
    }
    let at = Path::Top("spec");
    if allowed != *now {
        causes.forbidden(
            &at,
            "spec is immutable after creation except resources.requests and \
             volumeAttributesClassName for bound claims",
        );
        return;
    }
    let asked = |spec: &Fields| -> Option<Quantity> {
        let requests = object(object(spec, "resources")?, "requests")?;
        resources::quantity(requests, "storage")
    };
    let capacity = object(old, "status").and_then(|status| object(status, "capacity"));
    let capacity = capacity.and_then(|capacity| resources::quantity(capacity, "storage"));
    if asked(now) < asked(before) && asked(now) < capacity.or(asked(before)) {
        let at = at.member("resources");
        let at = at.member("requests");
        causes.forbidden(
            &at.member("storage"),
            "field can not be less than status.capacity",
        );
    }
}

//! Validates volumes, claims, and the objects that describe volume drivers.

use serde_json::Value;

use super::members::one_of;
use super::text as rules;
use super::{core, resources, scheduling};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object, text};

/// The members of a persistent volume's spec that are not volume sources.
const NO_SOURCES: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// Returns the volume sources in the spec of a volume.
pub(super) fn sources(spec: &Fields) -> impl Iterator<Item = (&String, &Value)> {
    spec.iter()
        .filter(|(name, value)| !NO_SOURCES.contains(&name.as_str()) && !value.is_null())
}

pub(super) fn volume(volume: &Fields, causes: &mut Causes) {
    let at = Path::Top("spec");
    let empty = Fields::new();
    let spec = object(volume, "spec").unwrap_or(&empty);
    core::access_modes(spec, &at, causes);
    let at_capacity = at.member("capacity");
    match object(spec, "capacity").filter(|capacity| !capacity.is_empty()) {
        None => causes.required(&at_capacity, ""),
        Some(capacity) => {
            if !capacity.contains_key("storage") || capacity.len() > 1 {
                let shown = Value::Object(capacity.clone()).to_string();
                causes.not_supported(&at_capacity, &*shown, &["storage"]);
            }
            for name in capacity.keys() {
                resources::amount(capacity, name, &at_capacity.key(name), causes);
            }
        }
    }
    let policies = &["Delete", "Recycle", "Retain"];
    one_of(spec, "persistentVolumeReclaimPolicy", policies, &at, causes);
    let affinity = object(spec, "nodeAffinity");
    if let Some(required) = affinity.and_then(|affinity| object(affinity, "required")) {
        let at = at.member("nodeAffinity");
        scheduling::node_selector(required, &at.member("required"), causes);
    }
    let mut given = 0;
    for (name, source) in sources(spec) {
        given += 1;
        let at_source = at.member(name);
        if given > 1 {
            causes.forbidden(&at_source, "may not specify more than 1 volume type");
            continue;
        }
        let needed: &[&str] = match &**name {
            "csi" => &["driver", "volumeHandle"],
            "hostPath" | "local" => &["path"],
            "nfs" => &["server", "path"],
            _ => &[],
        };
        for member in needed {
            if source
                .as_object()
                .is_none_or(|source| text(source, member).is_empty())
            {
                causes.required(&at_source.member(member), "");
            }
        }
        if name == "local" && affinity.is_none() {
            causes.required(
                &at.member("nodeAffinity"),
                "Local volume requires node affinity",
            );
        }
    }
    if given == 0 {
        causes.required(&at, "must specify a volume type");
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        causes.invalid_each(
            &at.member("storageClassName"),
            class,
            rules::subdomain(class),
        );
    }
    one_of(spec, "volumeMode", &["Block", "Filesystem"], &at, causes);
}

/// Validates the resources of the group `storage.k8s.io`.
pub(super) fn any(plural: &str, object_: &Fields, causes: &mut Causes) {
    let spec = object(object_, "spec");
    let at = Path::Top("spec");
    match plural {
        "storageclasses" => class(object_, causes),
        "csidrivers" => {
            let Some(spec) = spec else { return };
            for mode in list(spec, "volumeLifecycleModes") {
                let mode = mode.as_str().unwrap_or_default();
                let modes = &["Ephemeral", "Persistent"];
                if !modes.contains(&mode) {
                    causes.not_supported(&at.member("volumeLifecycleModes"), mode, modes);
                }
            }
            let policies = &["File", "None", "ReadWriteOnceWithFSType"];
            one_of(spec, "fsGroupPolicy", policies, &at, causes);
        }
        "volumeattachments" => {
            let empty = Fields::new();
            let spec = spec.unwrap_or(&empty);
            for member in ["attacher", "nodeName"] {
                if text(spec, member).is_empty() {
                    causes.required(&at.member(member), "");
                }
            }
            let source = object(spec, "source");
            let volume = source.map_or("", |source| text(source, "persistentVolumeName"));
            let inline = source.is_some_and(|s| object(s, "inlineVolumeSpec").is_some());
            if volume.is_empty() && !inline {
                let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                causes.required(&at.member("source"), why);
            }
        }
        "csistoragecapacities" => match text(object_, "storageClassName") {
            "" => causes.required(&Path::Top("storageClassName"), ""),
            name => {
                causes.invalid_each(&Path::Top("storageClassName"), name, rules::subdomain(name));
            }
        },
        "volumeattributesclasses" if text(object_, "driverName").is_empty() => {
            causes.required(&Path::Top("driverName"), "");
        }
        _ => {}
    }
}

fn class(class: &Fields, causes: &mut Causes) {
    match text(class, "provisioner") {
        "" => causes.required(&Path::Top("provisioner"), ""),
        name => {
            let problems = rules::qualified(&name.to_lowercase());
            causes.invalid_each(&Path::Top("provisioner"), name, problems);
        }
    }
    if object(class, "parameters").is_some_and(|parameters| parameters.contains_key("")) {
        causes.invalid(&Path::Top("parameters"), "", "field can not be empty.");
    }
    top_one_of(class, "reclaimPolicy", &["Delete", "Retain"], causes);
    top_one_of(
        class,
        "volumeBindingMode",
        &["Immediate", "WaitForFirstConsumer"],
        causes,
    );
}

/// Validates that a top-level member has one of the allowed values.
fn top_one_of(
    fields: &Fields,
    member: &'static str,
    supported: &[&'static str],
    causes: &mut Causes,
) {
    let given = text(fields, member);
    if !given.is_empty() && !supported.contains(&given) {
        causes.not_supported(&Path::Top(member), given, supported);
    }
}

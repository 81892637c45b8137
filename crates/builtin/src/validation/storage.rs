//! Validates volumes, claims, and the objects that describe volume drivers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::members::{objects, one_of};
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
    core::access_modes(spec, "", &at, causes);
    capacity(spec, &at.member("capacity"), causes);
    let policies = &["Delete", "Recycle", "Retain"];
    one_of(spec, "persistentVolumeReclaimPolicy", policies, &at, causes);
    let affinity = object(spec, "nodeAffinity");
    if let Some(affinity) = affinity {
        let at = at.member("nodeAffinity");
        let at = at.member("required");
        match object(affinity, "required") {
            None => causes.required(&at, "must specify required node constraints"),
            Some(required) => scheduling::node_selector(required, &at, causes),
        }
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

/// Validates the capacity of a volume, which has the resource `storage` only.
fn capacity(spec: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let capacity = object(spec, "capacity").filter(|capacity| !capacity.is_empty());
    if capacity.is_none() {
        causes.required(at, "");
    }
    if capacity.is_none_or(|capacity| !capacity.contains_key("storage") || capacity.len() > 1) {
        let shown = capacity.cloned().map(Value::Object);
        causes.not_supported(at, shown, &["storage"]);
    }
    for name in capacity.into_iter().flat_map(Fields::keys) {
        let at = at.key(name);
        let amount = capacity.and_then(|capacity| resources::quantity(capacity, name));
        if let Some(amount) = amount.filter(|amount| amount.value() < 0) {
            causes.invalid(&at, amount.value(), "must be a valid resource quantity");
        }
        if let Some(capacity) = capacity {
            resources::positive_amount(capacity, name, &at, causes);
        }
    }
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
    topologies(list(class, "allowedTopologies"), causes);
}

/// The values of each key of a topology term.
type Topology<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Validates the topology terms of a class, which must differ.
fn topologies(terms: &[Value], causes: &mut Causes) {
    let at = Path::Top("allowedTopologies");
    // How often each term has occurred. Upstream allocates as many empty terms as there are, and compares with those too.
    let mut seen = BTreeMap::from([(Topology::new(), terms.len())]);
    for (index, term) in objects(terms) {
        if causes.is_full() {
            return;
        }
        let at = at.item(index);
        let at = at.member("matchLabelExpressions");
        let topology = topology(list(term, "matchLabelExpressions"), &at, causes);
        let occurred = seen.entry(topology).or_default();
        for _ in 0..(*occurred).min(Causes::MAX) {
            causes.duplicate(&at, "");
        }
        *occurred += 1;
    }
}

fn topology<'a>(expressions: &'a [Value], at: &Path<'_>, causes: &mut Causes) -> Topology<'a> {
    let mut topology = Topology::new();
    for (index, expression) in objects(expressions) {
        let at = at.item(index);
        let at_values = at.member("values");
        let values = list(expression, "values");
        if values.is_empty() {
            causes.required(&at_values, "");
        }
        let mut all = BTreeSet::new();
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            if !all.insert(value) {
                causes.duplicate(&at_values.item(index), value);
            }
        }
        let at_key = at.member("key");
        let key = text(expression, "key");
        causes.invalid_each(&at_key, key, rules::qualified(key));
        if topology.insert(key, all).is_some() {
            causes.duplicate(&at_key, key);
        }
    }
    topology
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

//! Validates slices of resources: the devices of a pool and the nodes that can use them.

use serde_json::Value;

use super::super::members::{objects, required_one_of};
use super::super::scheduling::node_selector;
use super::super::text as rules;
use super::{EFFECTS, driver_name, limited, limited_list, qualified_name, unique};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, flag, list, number, object, text};

const DEVICES_MAX: usize = 128;
/// The maximum number of devices if one of them has taints or consumes counters.
const DEVICES_WITH_FEATURES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
const CONSUMED_COUNTER_SETS_MAX: usize = 2;
const ATTRIBUTES_MAX: usize = 32;
const TAINTS_MAX: usize = 16;
const CONDITIONS_MAX: usize = 4;
const VALUE_BYTES_MAX: usize = 64;
const POOL_NAME_BYTES_MAX: usize = 253;
const UNSET_OR_TRUE: &str = "must be either unset or set to true";

pub(in super::super) fn slice(slice: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let spec = object(slice, "spec").unwrap_or(&empty);
    let at = Path::Top("spec");
    driver_name(text(spec, "driver"), &at.member("driver"), causes);
    let of_pool = object(spec, "pool").unwrap_or(&empty);
    pool(of_pool, &at.member("pool"), causes);
    nodes(spec, &at, causes);
    let has = |member: &str| spec.get(member).is_some_and(Value::is_array);
    if has("sharedCounters") && has("devices") {
        let why = "only one of `sharedCounters` or `devices` is allowed";
        causes.invalid(&at, "", why);
    }
    let is_limited = objects(list(spec, "devices")).any(|(_, device)| {
        !list(device, "taints").is_empty() || !list(device, "consumesCounters").is_empty()
    });
    let devices_max = match is_limited {
        true => DEVICES_WITH_FEATURES_MAX,
        false => DEVICES_MAX,
    };
    let at_devices = at.member("devices");
    let devices = limited_list(spec, "devices", devices_max, &at_devices, causes);
    let is_per_device = flag(spec, "perDeviceNodeSelection");
    for (index, device_) in objects(devices) {
        device(device_, is_per_device, &at_devices.item(index), causes);
    }
    unique(devices, Some("name"), &at_devices, causes);
    let at_sets = at.member("sharedCounters");
    let sets = limited_list(spec, "sharedCounters", COUNTER_SETS_MAX, &at_sets, causes);
    for (index, set) in objects(sets) {
        counters(set, "name", &at_sets.item(index), causes);
    }
    unique(sets, Some("name"), &at_sets, causes);
}

fn pool(pool: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at_name = at.member("name");
    match text(pool, "name") {
        "" => causes.required(&at_name, ""),
        name => {
            if name.len() > POOL_NAME_BYTES_MAX {
                causes.too_long(&at_name, POOL_NAME_BYTES_MAX);
            }
            for part in name.split('/') {
                causes.invalid_each(&at_name, part, rules::subdomain(part));
            }
        }
    }
    let count = number(pool, "resourceSliceCount").unwrap_or_default();
    if count <= 0 {
        let at = at.member("resourceSliceCount");
        causes.invalid(&at, count, "must be greater than zero");
    }
    if let Some(generation) = number(pool, "generation").filter(|number| *number < 0) {
        let why = "must be greater than or equal to zero";
        causes.invalid(&at.member("generation"), generation, why);
    }
}

/// The nodes of a ResourceSlice are given in exactly one way. The kubelet of a node may only write slices of this node, which
/// must not be given for other nodes as well.
fn nodes(spec: &Fields, at: &Path<'_>, causes: &mut Causes) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let why_empty = "must be either unset or set to a non-empty string";
    let mut given = given_nodes(spec, why_empty, at, causes);
    if let Some(selector) = object(spec, "nodeSelector") {
        let terms = list(selector, "nodeSelectorTerms");
        if terms.len() != 1 {
            let at = at.member("nodeSelector");
            let why = "must have exactly one node selector term";
            causes.invalid(&at.member("nodeSelectorTerms"), terms.to_vec(), why);
        }
    }
    match spec.get("perDeviceNodeSelection") {
        Some(Value::Bool(true)) => given.push("`perDeviceNodeSelection`"),
        Some(Value::Bool(false)) => {
            causes.invalid(&at.member("perDeviceNodeSelection"), false, UNSET_OR_TRUE);
        }
        _ => {}
    }
    match given.len() {
        0 => causes.required(at, ONE),
        1 => {}
        _ => {
            let why = format!("{ONE}, but multiple fields are set");
            causes.invalid(at, format!("{{{}}}", given.join(", ")), &why);
        }
    }
}

/// Validates the fields that give the nodes of a slice or a device. Returns those that are set.
fn given_nodes(
    fields: &Fields,
    why_empty: &str,
    at: &Path<'_>,
    causes: &mut Causes,
) -> Vec<&'static str> {
    let mut given = Vec::new();
    match fields.get("nodeName").and_then(Value::as_str) {
        None => {}
        Some("") => causes.invalid(&at.member("nodeName"), "", why_empty),
        Some(name) => {
            given.push("`nodeName`");
            causes.invalid_each(&at.member("nodeName"), name, rules::subdomain(name));
        }
    }
    if let Some(selector) = object(fields, "nodeSelector") {
        given.push("`nodeSelector`");
        node_selector(selector, &at.member("nodeSelector"), causes);
    }
    match fields.get("allNodes") {
        Some(Value::Bool(true)) => given.push("`allNodes`"),
        Some(Value::Bool(false)) => causes.invalid(&at.member("allNodes"), false, UNSET_OR_TRUE),
        _ => {}
    }
    given
}

fn device(device: &Fields, is_per_device: bool, at: &Path<'_>, causes: &mut Causes) {
    let name = text(device, "name");
    causes.invalid_each(&at.member("name"), name, rules::label(name));
    attributes(device, at, causes);
    let at_taints = at.member("taints");
    for (index, taint_) in limited(device, "taints", TAINTS_MAX, &at_taints, causes) {
        taint(taint_, &at_taints.item(index), causes);
    }
    let at_consumed = at.member("consumesCounters");
    let consumed = limited_list(
        device,
        "consumesCounters",
        CONSUMED_COUNTER_SETS_MAX,
        &at_consumed,
        causes,
    );
    for (index, consumption) in objects(consumed) {
        counters(consumption, "counterSet", &at_consumed.item(index), causes);
    }
    unique(consumed, Some("counterSet"), &at_consumed, causes);
    nodes_of_device(device, is_per_device, at, causes);
    binding_conditions(device, at, causes);
}

fn nodes_of_device(device: &Fields, is_per_device: bool, at: &Path<'_>, causes: &mut Causes) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
                       `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    if !is_per_device {
        let has = |member: &str| device.get(member).is_some_and(|value| !value.is_null());
        if ["nodeName", "nodeSelector", "allNodes"]
            .into_iter()
            .any(has)
        {
            let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if \
                       `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            causes.invalid(at, Value::Null, why);
        }
        return;
    }
    let given = given_nodes(device, "must not be empty", at, causes);
    match given.len() {
        0 => causes.required(at, ONE),
        1 => {}
        _ => causes.invalid(at, format!("{{{}}}", given.join(", ")), ONE),
    }
}

/// Validates the attributes and capacities of a device. The rules of requests for a part of a capacity are not checked.
fn attributes(device: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let empty = Fields::new();
    let attributes = object(device, "attributes").unwrap_or(&empty);
    let capacity = object(device, "capacity").unwrap_or(&empty);
    let count = attributes.len() + capacity.len();
    if count > ATTRIBUTES_MAX {
        let why = format!(
            "the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}"
        );
        causes.invalid(at, count, &why);
    }
    let at_attributes = at.member("attributes");
    for (name, value) in attributes {
        qualified_name(name, &at_attributes, causes);
        if let Some(value) = value.as_object() {
            attribute(value, &at_attributes.key(name), causes);
        }
    }
    let at_capacity = at.member("capacity");
    for (name, value) in capacity {
        qualified_name(name, &at_capacity, causes);
        let has_policy = |value: &Fields| object(value, "requestPolicy").is_some();
        let is_shared = flag(device, "allowMultipleAllocations");
        if value.as_object().is_some_and(has_policy) && !is_shared {
            let at = at_capacity.key(name);
            let why = "allowMultipleAllocations must be true";
            causes.forbidden(&at.member("requestPolicy"), why);
        }
    }
}

fn attribute(attribute: &Fields, at: &Path<'_>, causes: &mut Causes) {
    for member in ["string", "version"] {
        let Some(value) = attribute.get(member).and_then(Value::as_str) else {
            continue;
        };
        let at = at.member(member);
        if member == "version" && !rules::is_semantic_version(value) {
            let why = "must be a string compatible with semver.org spec 2.0.0";
            causes.invalid(&at, value, why);
        }
        if value.len() > VALUE_BYTES_MAX {
            causes.too_long(&at, VALUE_BYTES_MAX);
        }
    }
    let values = ["bool", "int", "string", "version"];
    let is_set = |member: &&str| attribute.get(*member).is_some_and(|value| !value.is_null());
    let why = "exactly one value must be specified";
    match values.iter().filter(|member| is_set(member)).count() {
        0 => causes.invalid(at, "", why),
        1 => {}
        _ => causes.invalid(at, attribute.clone(), why),
    }
}

fn taint(taint: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let key = text(taint, "key");
    causes.invalid_each(&at.member("key"), key, rules::qualified(key));
    let value = text(taint, "value");
    causes.invalid_each(&at.member("value"), value, rules::label_value(value));
    required_one_of(taint, "effect", EFFECTS, at, causes);
}

/// Validates a set of counters, or what a device consumes of one. `name` is the member with the name of the set.
fn counters(set: &Fields, name: &str, at: &Path<'_>, causes: &mut Causes) {
    match text(set, name) {
        "" => causes.required(&at.member(name), ""),
        given => causes.invalid_each(&at.member(name), given, rules::label(given)),
    }
    let at = at.member("counters");
    match object(set, "counters") {
        None => causes.required(&at, ""),
        Some(counters) if counters.is_empty() => causes.required(&at, ""),
        Some(counters) if counters.len() > COUNTERS_MAX => {
            causes.too_many_items(&at, counters.len(), COUNTERS_MAX);
        }
        Some(counters) => {
            for name in counters.keys() {
                causes.invalid_each(&at, name, rules::label(name));
            }
        }
    }
}

/// Validates the conditions that a scheduler waits for before it binds a pod to the device.
fn binding_conditions(device: &Fields, at: &Path<'_>, causes: &mut Causes) {
    const MEMBERS: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    for member in MEMBERS {
        let at = at.member(member);
        let conditions = limited_list(device, member, CONDITIONS_MAX, &at, causes);
        for (index, condition) in conditions.iter().enumerate() {
            let condition = condition.as_str().unwrap_or_default();
            let problems = rules::qualified(condition);
            causes.invalid_each(&at.item(index), condition, problems);
        }
    }
    let [conditions, failures] = MEMBERS.map(|member| list(device, member));
    unique(conditions, None, &at.member(MEMBERS[0]), causes);
    let at_failures = at.member(MEMBERS[1]);
    unique(failures, None, &at_failures, causes);
    for (index, failure) in failures.iter().enumerate() {
        if conditions.contains(failure) {
            let why = "bindingFailureConditions must not overlap with bindingConditions";
            causes.invalid(&at_failures.item(index), failure.clone(), why);
        }
    }
    if conditions.is_empty() != failures.is_empty() {
        let (missing, other) = match conditions.is_empty() {
            true => (MEMBERS[0], MEMBERS[1]),
            false => (MEMBERS[1], MEMBERS[0]),
        };
        let why = format!("{missing} are required to use {other}");
        let given = device.get(missing).cloned().unwrap_or_default();
        causes.invalid(&at.member(missing), given, &why);
    }
}

//! Validates nodes and updates of nodes.

use std::collections::HashSet;

use serde_json::Value;

use super::members::objects;
use super::members::required_one_of;
use super::resources;
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object, text};
use watchet_schema::Quantity;

const SPEC: Path<'static> = Path::Top("spec");
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn node(node: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let spec = object(node, "spec").unwrap_or(&empty);
    taints(spec, causes);
    amounts(node, causes);
    cidrs(spec, causes);
}

fn taints(spec: &Fields, causes: &mut Causes) {
    // Upstream's path of the taints of a node.
    let at = Path::Top("metadata");
    let at = at.member("taints");
    let mut seen = HashSet::new();
    for (index, taint) in objects(list(spec, "taints")) {
        let at = at.item(index);
        let (key, value) = (text(taint, "key"), text(taint, "value"));
        causes.invalid_each(&at.member("key"), key, rules::qualified(key));
        let problems = rules::label_value(value);
        if !problems.is_empty() {
            causes.invalid(&at.member("value"), value, &problems.join(";"));
        }
        required_one_of(taint, "effect", EFFECTS, &at, causes);
        if !seen.insert((key, text(taint, "effect"))) {
            let why = "taints must be unique by key and effect pair";
            causes.duplicate_because(&at, taint.clone(), why);
        }
    }
}

/// Validates the quantities in the status, which a new node can have already.
fn amounts(node: &Fields, causes: &mut Causes) {
    let at = Path::Top("status");
    let status = object(node, "status");
    for member in ["capacity", "allocatable"] {
        let at = at.member(member);
        let amounts = status.and_then(|status| object(status, member));
        for (name, amount) in amounts.into_iter().flatten() {
            let Some(amount) = Quantity::read(amount) else {
                continue;
            };
            let at = at.member(name);
            if amount.is_negative() {
                causes.invalid(&at, amount.to_string(), rules::NOT_NEGATIVE);
            }
            if resources::COUNTS.contains(&&**name) && !amount.is_whole() {
                causes.invalid(&at, amount.to_string(), "must be an integer");
            }
        }
    }
}

/// Validates `podCIDRs`: at most one range of each IP family.
fn cidrs(spec: &Fields, causes: &mut Causes) {
    let at = SPEC.member("podCIDRs");
    let all = list(spec, "podCIDRs");
    let mut families = HashSet::new();
    for (index, cidr) in all.iter().enumerate() {
        let cidr = cidr.as_str().unwrap_or_default();
        causes.invalid_each(&at.item(index), cidr, rules::cidr(cidr));
        families.insert(cidr.contains(':'));
    }
    if all.len() > families.len() {
        let why = "may specify no more than one CIDR for each IP family";
        causes.invalid(&at, all.to_vec(), why);
    }
}

/// Reports changes of fields of a node that are immutable once set.
pub(super) fn update(old: &Fields, new: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let (before, now) = (
        object(old, "spec").unwrap_or(&empty),
        object(new, "spec").unwrap_or(&empty),
    );
    let cidrs = list(before, "podCIDRs");
    if !cidrs.is_empty() && cidrs != list(now, "podCIDRs") {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        causes.forbidden(&SPEC.member("podCIDRs"), why);
    }
    let provider = text(before, "providerID");
    if !provider.is_empty() && provider != text(now, "providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        causes.forbidden(&SPEC.member("providerID"), why);
    }
    if text(before, "externalID") != text(now, "externalID") {
        causes.forbidden(&SPEC.member("externalID"), "may not be updated");
    }
}

/// Validates the addresses in a node's status.
pub(super) fn status(new: &Fields, causes: &mut Causes) {
    let at = Path::Top("status");
    let at = at.member("addresses");
    let addresses = object(new, "status").map_or(&[][..], |status| list(status, "addresses"));
    let mut seen: HashSet<&Value> = HashSet::new();
    for (index, address) in addresses.iter().enumerate() {
        if !seen.insert(address) {
            causes.duplicate(&at.item(index), address.clone());
        }
    }
}

//! Validates device classes, and the nodes of resource slices. Schedulers evaluate the CEL expressions that select devices;
//! here only their form is checked.

use super::members::objects;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, flag, list, object, text};

const SELECTORS_MAX: usize = 32;
/// The maximum length of an expression.
const EXPRESSION_BYTES_MAX: usize = 10 << 10;

pub(super) fn class(class: &Fields, causes: &mut Causes) {
    let Some(spec) = object(class, "spec") else {
        return;
    };
    let at = Path::Top("spec");
    let at = at.member("selectors");
    let selectors = list(spec, "selectors");
    if selectors.len() > SELECTORS_MAX {
        causes.too_many_items(&at, selectors.len(), SELECTORS_MAX);
    }
    for (index, selector) in objects(selectors).take(SELECTORS_MAX) {
        let at = at.item(index);
        let at = at.member("cel");
        match object(selector, "cel").map(|cel| text(cel, "expression")) {
            None => causes.required(&at, ""),
            Some("") => causes.required(&at.member("expression"), ""),
            Some(long) if long.len() > EXPRESSION_BYTES_MAX => {
                causes.too_long(&at.member("expression"), EXPRESSION_BYTES_MAX);
            }
            Some(_) => {}
        }
    }
}

/// The nodes of a ResourceSlice are given in exactly one way. The kubelet of a node may only write slices of this node, which
/// must not be given for other nodes as well.
pub(super) fn nodes_of_slice(slice: &Fields, causes: &mut Causes) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let empty = Fields::new();
    let spec = object(slice, "spec").unwrap_or(&empty);
    let at = Path::Top("spec");
    if spec.get("nodeName").is_some_and(|name| name == "") {
        let why = "must be either unset or set to a non-empty string";
        causes.invalid(&at.member("nodeName"), "", why);
    }
    for member in ["allNodes", "perDeviceNodeSelection"] {
        if spec.get(member).is_some_and(|value| value == false) {
            let why = "must be either unset or set to true";
            causes.invalid(&at.member(member), false, why);
        }
    }
    let given = [
        ("`nodeName`", !text(spec, "nodeName").is_empty()),
        ("`nodeSelector`", object(spec, "nodeSelector").is_some()),
        ("`allNodes`", flag(spec, "allNodes")),
        (
            "`perDeviceNodeSelection`",
            flag(spec, "perDeviceNodeSelection"),
        ),
    ];
    let given = given.into_iter().filter(|(_, is_given)| *is_given);
    let given: Vec<_> = given.map(|(member, _)| member).collect();
    match given.len() {
        0 => causes.required(&at, ONE),
        1 => {}
        _ => {
            let why = format!("{ONE}, but multiple fields are set");
            causes.invalid(&at, format!("{{{}}}", given.join(", ")), &why);
        }
    }
}

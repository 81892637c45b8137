//! Performs the steps of a write that precede validation, for the tests of validation.

use serde_json::Value;

use super::super::{new, update};
use crate::prepare;
use watchet_registry::Causes;
use watchet_registry::Resource;
use watchet_services::spec;

pub(super) fn problems_of_new(resource: &Resource, object: &Value, causes: &mut Causes) {
    new(resource, object.as_object().unwrap(), causes);
}

pub(super) fn problems_of_update(
    resource: &Resource,
    subresource: Option<&str>,
    old: &Value,
    new: &Value,
    causes: &mut Causes,
) {
    let (old, new) = (old.as_object().unwrap(), new.as_object().unwrap());
    update(resource, subresource, (old, new), causes);
}

/// Copies the fields that an update takes from the stored object.
pub(super) fn prepare_update(plural: &str, old: &Value, new: &mut Value) {
    match plural {
        "persistentvolumes" => prepare::keep_phase_time(old, new),
        "services" => {
            spec::patch_allocated_values(old.as_object().unwrap(), new.as_object_mut().unwrap())
        }
        _ => {}
    }
}

pub(super) fn merge(into: &mut Value, patch: &Value) {
    match patch {
        Value::Object(members) if into.is_object() => {
            for (member, value) in members {
                match value {
                    Value::Null => drop(into.as_object_mut().unwrap().remove(member)),
                    value => merge(&mut into[member], value),
                }
            }
        }
        value => *into = value.clone(),
    }
}

//! Resources of which one stored object is shown in two forms: which those are, and the way between a form
//! and what is stored. How one pair differs is told by its module.

use serde_json::Value;

use super::{Resource, autoscalers, events};

/// Whether objects of `resource` look different in storage.
pub(super) fn is_converted(resource: &Resource) -> bool {
    events::is_converted(resource) || autoscalers::is_converted(resource)
}

/// The stored form of an object of `resource`.
pub(super) fn to_storage(resource: &Resource, object: Value) -> Value {
    match autoscalers::is_converted(resource) {
        true => autoscalers::to_storage(object),
        false => events::to_storage(resource, object),
    }
}

/// What a client of `resource` sees of an object in stored form.
pub(super) fn from_storage(resource: &Resource, object: Value) -> Value {
    match autoscalers::is_converted(resource) {
        true => autoscalers::from_storage(object),
        false => events::from_storage(resource, object),
    }
}

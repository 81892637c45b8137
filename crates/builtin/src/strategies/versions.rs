//! The built-in kinds whose stored objects have two representations: events, whose fields have different names in the
//! core group and in `events.k8s.io`, and autoscalers, some of whose fields are annotations in v1.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::{autoscalers, events};
use watchet_schema::Types;

/// The conversions between the stored representation of a kind and the other one.
#[derive(Debug)]
pub(super) struct VersionPair {
    /// The `apiVersion` of the representation that is not stored.
    other: &'static str,
    pub(super) to_storage: fn(&Arc<Types>, Value) -> Value,
    pub(super) from_storage: fn(Value) -> Value,
    /// Returns the object in the representation that the Table printer reads; `None` if the printer reads both.
    pub(super) to_printed: Option<fn(Value) -> Value>,
}

const EVENTS: VersionPair = VersionPair {
    other: events::VERSION,
    to_storage: |_, object| events::to_core(object),
    from_storage: events::from_core,
    to_printed: None,
};

const AUTOSCALERS: VersionPair = VersionPair {
    other: autoscalers::VERSION,
    to_storage: autoscalers::to_storage,
    from_storage: autoscalers::from_storage,
    to_printed: Some(autoscalers::as_stored),
};

impl VersionPair {
    /// Returns the conversions of this resource, and whether its objects are stored in this version.
    pub(super) fn of(group: &str, version: &str, plural: &str) -> Option<(&'static Self, bool)> {
        match (group, plural) {
            ("", "events") => Some((&EVENTS, true)),
            ("events.k8s.io", "events") => Some((&EVENTS, false)),
            ("autoscaling", "horizontalpodautoscalers") => Some((&AUTOSCALERS, version != "v1")),
            _ => None,
        }
    }

    /// Converts an object, whose `apiVersion` is its present version, to another version. An object of that version is
    /// returned unchanged.
    pub(super) fn to_version<'o>(
        &self,
        types: &Arc<Types>,
        object: &'o Value,
        api_version: &str,
    ) -> Cow<'o, Value> {
        let from = object["apiVersion"].as_str().unwrap_or_default();
        let is_stored = |version: &str| version != self.other;
        if from == api_version || is_stored(from) && is_stored(api_version) {
            return Cow::Borrowed(object);
        }
        let stored = match is_stored(from) {
            true => object.clone(),
            false => (self.to_storage)(types, object.clone()),
        };
        Cow::Owned(match is_stored(api_version) {
            true => stored,
            false => (self.from_storage)(stored),
        })
    }
}

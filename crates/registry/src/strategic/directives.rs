//! The directives of strategic merge patches.

use serde_json::{Map, Value};

pub(super) const PATCH: &str = "$patch";
pub(super) const RETAIN_KEYS: &str = "$retainKeys";
pub(super) const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
pub(super) const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";

/// The error of a strategic merge patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StrategicError {
    /// The patch is invalid.
    #[error("invalid strategic merge patch: {0}")]
    Malformed(String),
    /// The patch does not fit the object.
    #[error("unable to apply strategic merge patch: {0}")]
    Inapplicable(String),
}

/// Returns the error for an unknown `$patch` directive.
pub(super) fn unknown_directive(directive: &str) -> StrategicError {
    StrategicError::Malformed(format!(
        "unknown {PATCH} directive {directive}: it must be \"merge\", \"replace\" or \"delete\""
    ))
}

/// Returns the members of a new object: a patch without directives and nulls.
pub(super) fn without_directives_in(map: Map<String, Value>) -> Map<String, Value> {
    map.into_iter()
        .filter(|(member, value)| !is_directive(member) && !value.is_null())
        .filter_map(|(member, value)| Some((member, without_directives(value)?)))
        .collect()
}

/// Returns a new value: a patch without directives. `None` if the patch deletes the value.
pub(super) fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) => match map.get(PATCH).and_then(Value::as_str) {
            Some("delete") => None,
            _ => Some(Value::Object(without_directives_in(map))),
        },
        Value::Array(list) => Some(Value::Array(
            list.into_iter().filter_map(without_directives).collect(),
        )),
        other => Some(other),
    }
}

fn is_directive(member: &str) -> bool {
    member == PATCH
        || member == RETAIN_KEYS
        || member.starts_with(SET_ELEMENT_ORDER)
        || member.starts_with(DELETE_FROM_PRIMITIVE_LIST)
}

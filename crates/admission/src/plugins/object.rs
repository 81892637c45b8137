//! Access to members of JSON objects.

use serde_json::Value;

/// Returns the name of an object; empty before it is generated.
pub(super) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the items of a list; empty if `value` is not a list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

//! The causes for values that do not fit a schema.

use serde_json::Value;

use watchet_api::StatusCause;

/// Returns the cause for an invalid value, which is shown as JSON.
pub(super) fn invalid(field: &str, value: &Value, why: &str) -> StatusCause {
    cause(
        "FieldValueInvalid",
        field,
        format!("Invalid value: {value}: {why}"),
    )
}

/// Returns a cause.
pub(super) fn cause(reason: &str, field: &str, message: String) -> StatusCause {
    StatusCause {
        reason: reason.to_owned(),
        message,
        field: field.to_owned(),
    }
}

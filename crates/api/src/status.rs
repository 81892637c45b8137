//! `Status`: the body of error responses and of deletes that return no object. `http` maps each
//! error to its status.

use serde::{Deserialize, Serialize};

/// `Status` of `meta.k8s.io/v1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`. Defaults to it if a server omits it.
    #[serde(default)]
    pub kind: String,
    /// Always `v1`.
    #[serde(default)]
    pub api_version: String,
    /// List metadata; its `continue` carries the fresh token of an expired page.
    #[serde(default)]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// `Success` or `Failure`.
    #[serde(default)]
    pub status: String,
    /// A message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// A machine-readable reason: `NotFound`, `Conflict`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The object or field that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status; absent on success.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub code: u16,
}

/// The object that a [`Status`] is about, and its problems.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// The object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource (plural); for an invalid object its kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One entry per problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// The delay before a retry, in seconds; also sent as `Retry-After`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u16,
}

/// One problem of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCause {
    /// `FieldValueRequired`, `FieldValueInvalid`, `ResourceVersionTooLarge`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl StatusCause {
    fn new(reason: &str, field: &str, message: String) -> Self {
        Self {
            reason: reason.to_owned(),
            message,
            field: field.to_owned(),
        }
    }

    /// Returns the cause for an invalid value. This and the following functions format messages as
    /// upstream's
    /// [`field.Error`](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apimachinery/pkg/util/validation/field/errors.go).
    pub fn invalid(field: &str, value: &str, why: &str) -> Self {
        let message = format!("Invalid value: {value:?}: {why}");
        Self::new("FieldValueInvalid", field, message)
    }

    /// Returns the cause for an invalid number.
    pub fn invalid_number(field: &str, value: u64, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self::new("FieldValueInvalid", field, message)
    }

    /// Returns the cause for an invalid boolean.
    pub fn invalid_flag(field: &str, value: bool, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self::new("FieldValueInvalid", field, message)
    }

    /// Returns the cause for a missing required field.
    pub fn required(field: &str, why: &str) -> Self {
        let message = match why {
            "" => "Required value".to_owned(),
            why => format!("Required value: {why}"),
        };
        Self::new("FieldValueRequired", field, message)
    }

    /// Returns the cause for a duplicate value.
    pub fn duplicate(field: &str, value: &str) -> Self {
        let message = format!("Duplicate value: {value:?}");
        Self::new("FieldValueDuplicate", field, message)
    }

    /// Returns the cause for a reference to something that does not exist.
    pub fn not_found(field: &str, value: &str) -> Self {
        let message = format!("Not found: {value:?}");
        Self::new("FieldValueNotFound", field, message)
    }

    /// Returns the cause for a field that must not be set.
    pub fn forbidden(field: &str, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// Returns the cause for a value that is not in `supported`.
    pub fn not_supported(field: &str, value: &str, supported: &[&str]) -> Self {
        Self::not_among(field, &format!("{value:?}"), supported)
    }

    /// Returns the cause for a list with a value that is not in `supported`. As upstream, the message has the whole list.
    pub fn none_supported(field: &str, values: &[String], supported: &[&str]) -> Self {
        Self::not_among(field, &serde_json::json!(values).to_string(), supported)
    }

    fn not_among(field: &str, shown: &str, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let message = format!(
            "Unsupported value: {shown}: supported values: {}",
            supported.join(", ")
        );
        Self::new("FieldValueNotSupported", field, message)
    }

    /// Returns the cause for a value with more than `bytes_max` bytes.
    pub fn too_long(field: &str, bytes_max: usize) -> Self {
        let message = format!("Too long: may not be more than {bytes_max} bytes");
        Self::new("FieldValueTooLong", field, message)
    }

    /// Returns the last cause of a truncated list.
    pub fn too_many() -> Self {
        let message = "too many errors, the list is truncated".to_owned();
        Self::new("FieldValueTooMany", "", message)
    }
}

fn is_zero(number: &u16) -> bool {
    *number == 0
}

impl Status {
    /// Returns a failure with this HTTP code, reason and message.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind: "Status".to_owned(),
            api_version: "v1".to_owned(),
            metadata: serde_json::Map::new(),
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.to_owned(),
            details: None,
            code,
        }
    }

    /// Returns a success with these details.
    pub fn success(details: StatusDetails) -> Self {
        Self {
            status: "Success".to_owned(),
            details: Some(details),
            code: 0,
            ..Self::failure(0, "", "")
        }
    }

    /// Returns a 422 for an object of `kind` with all its problems.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[StatusCause]) -> Self {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let mut problems: Vec<String> = causes
            .iter()
            .map(|cause| match cause.field.is_empty() {
                true => cause.message.clone(),
                false => format!("{}: {}", cause.field, cause.message),
            })
            .collect();
        let problems = match problems.len() {
            1 => problems.remove(0),
            _ => format!("[{}]", problems.join(", ")),
        };
        let text = format!("{qualified} {name:?} is invalid: {problems}");
        Self::failure(422, "Invalid", text).with_details(StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes: causes.to_vec(),
            ..StatusDetails::default()
        })
    }

    /// Sets the details.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialized_form() {
        let status =
            Status::failure(404, "NotFound", "pods \"x\" not found").with_details(StatusDetails {
                name: "x".into(),
                kind: "pods".into(),
                ..Default::default()
            });
        assert_eq!(
            serde_json::to_string(&status).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404}"#
        );
    }
}

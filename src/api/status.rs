//! `Status`: the body of every error, and of a delete that left nothing to show. Which failure
//! becomes which status is decided once, in `http`.

use serde::{Deserialize, Serialize};

/// Kubernetes' `v1.Status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`. Servers that leave it out mean it.
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
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For programs: `NotFound`, `Conflict`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status; absent on success.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub code: u16,
}

/// What a [`Status`] is about.
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
    /// One entry a problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// When to try again, in seconds; also sent as `Retry-After`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u16,
}

/// One problem of several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCause {
    /// `FieldValueRequired`, `FieldValueInvalid`, `ResourceVersionTooLarge`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
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

    /// A field that may not have this value, in the words of Kubernetes' field errors, like all of
    /// these.
    pub fn invalid(field: &str, value: &str, why: &str) -> Self {
        let message = format!("Invalid value: {value:?}: {why}");
        Self::new("FieldValueInvalid", field, message)
    }

    /// The same for a number.
    pub fn invalid_number(field: &str, value: u64, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self::new("FieldValueInvalid", field, message)
    }

    /// The same for a flag.
    pub fn invalid_flag(field: &str, value: bool, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self::new("FieldValueInvalid", field, message)
    }

    /// A field that is missing.
    pub fn required(field: &str, why: &str) -> Self {
        let message = match why {
            "" => "Required value".to_owned(),
            why => format!("Required value: {why}"),
        };
        Self::new("FieldValueRequired", field, message)
    }

    /// A value that may be there only once.
    pub fn duplicate(field: &str, value: &str) -> Self {
        let message = format!("Duplicate value: {value:?}");
        Self::new("FieldValueDuplicate", field, message)
    }

    /// A value that names what there is not.
    pub fn not_found(field: &str, value: &str) -> Self {
        let message = format!("Not found: {value:?}");
        Self::new("FieldValueNotFound", field, message)
    }

    /// A field that may not be there.
    pub fn forbidden(field: &str, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// A field whose value is not one of a few.
    pub fn not_supported(field: &str, value: &str, supported: &[&str]) -> Self {
        Self::not_among(field, &format!("{value:?}"), supported)
    }

    /// A list with a value that is none of those that there are: all of it is shown, as upstream does.
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

    /// A field of more than so many bytes.
    pub fn too_long(field: &str, bytes_max: usize) -> Self {
        let message = format!("Too long: may not be more than {bytes_max} bytes");
        Self::new("FieldValueTooLong", field, message)
    }

    /// The last of a list of causes that does not name them all.
    pub fn too_many() -> Self {
        let message = "too many errors, the list is truncated".to_owned();
        Self::new("FieldValueTooMany", "", message)
    }
}

fn is_zero(number: &u16) -> bool {
    *number == 0
}

impl Status {
    /// A failure with this HTTP code, reason and message.
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

    /// A success about what `details` names.
    pub fn success(details: StatusDetails) -> Self {
        Self {
            status: "Success".to_owned(),
            details: Some(details),
            code: 0,
            ..Self::failure(0, "", "")
        }
    }

    /// A 422 about an object of `kind`, with everything that is wrong with it.
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

    /// The same with these details.
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_on_the_wire() {
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

//! Paths of fields, and causes with upstream's messages of field errors. A path is on the stack and is formatted only for a
//! cause. The model is `k8s.io/apimachinery/pkg/util/validation/field`.

use std::fmt;

use serde_json::Value;

use super::causes::Causes;
use watchet_api::StatusCause;

/// The number of bytes of an invalid value in a message.
const SHOWN_BYTES_MAX: usize = 1024;

/// The path of a field in an object.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    /// A member of the object itself.
    Top(&'a str),
    /// A member of the object at a path.
    Member(&'a Path<'a>, &'a str),
    /// An item of the list at a path.
    Item(&'a Path<'a>, usize),
    /// The value of a key of the map at a path.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// Returns the path of a member.
    #[must_use]
    pub fn member(&'a self, name: &'a str) -> Self {
        Self::Member(self, name)
    }

    /// Returns the path of an item.
    #[must_use]
    pub fn item(&'a self, index: usize) -> Self {
        Self::Item(self, index)
    }

    /// Returns the path of the value of a key.
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top(name) => f.write_str(name),
            Self::Member(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

impl Causes {
    fn push_at(&mut self, reason: &str, at: &Path<'_>, message: String) {
        if !self.is_full() {
            self.push(StatusCause {
                reason: reason.to_owned(),
                message,
                field: at.to_string(),
            });
        }
    }

    /// Adds a missing field.
    pub fn required(&mut self, at: &Path<'_>, why: &str) {
        let message = match why {
            "" => "Required value".to_owned(),
            why => format!("Required value: {why}"),
        };
        self.push_at("FieldValueRequired", at, message);
    }

    /// Adds an invalid value; `why` may be empty.
    pub fn invalid(&mut self, at: &Path<'_>, value: impl Into<Value>, why: &str) {
        let shown = truncated_json(&value.into());
        let message = match why {
            "" => format!("Invalid value: {shown}"),
            why => format!("Invalid value: {shown}: {why}"),
        };
        self.push_at("FieldValueInvalid", at, message);
    }

    /// Adds an invalid value that the message does not show.
    pub fn invalid_without_value(&mut self, at: &Path<'_>, why: &str) {
        self.push_at("FieldValueInvalid", at, format!("Invalid value: {why}"));
    }

    /// Adds one cause for each problem of a string.
    pub fn invalid_each(&mut self, at: &Path<'_>, text: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid(at, text, &problem);
        }
    }

    /// Adds a field that cannot be set.
    pub fn forbidden(&mut self, at: &Path<'_>, why: &str) {
        self.push_at("FieldValueForbidden", at, format!("Forbidden: {why}"));
    }

    /// Adds a value that is not one of those supported.
    pub fn not_supported(&mut self, at: &Path<'_>, value: impl Into<Value>, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            truncated_json(&value.into()),
            supported.join(", ")
        );
        self.push_at("FieldValueNotSupported", at, message);
    }

    /// Adds a duplicate value.
    pub fn duplicate(&mut self, at: &Path<'_>, value: impl Into<Value>) {
        let message = format!("Duplicate value: {}", truncated_json(&value.into()));
        self.push_at("FieldValueDuplicate", at, message);
    }

    /// Adds a duplicate value whose error has a message.
    pub fn duplicate_because(&mut self, at: &Path<'_>, value: impl Into<Value>, why: &str) {
        let shown = truncated_json(&value.into());
        self.push_at(
            "FieldValueDuplicate",
            at,
            format!("Duplicate value: {shown}: {why}"),
        );
    }

    /// Adds a reference to something that does not exist.
    pub fn not_found(&mut self, at: &Path<'_>, text: &str) {
        let message = format!("Not found: {}", truncated_json(&text.into()));
        self.push_at("FieldValueNotFound", at, message);
    }

    /// Adds a value that is too long.
    pub fn too_long(&mut self, at: &Path<'_>, bytes_max: usize) {
        let message = format!("Too long: may not be more than {bytes_max} bytes");
        self.push_at("FieldValueTooLong", at, message);
    }

    /// Adds a list with too many items.
    pub fn too_many_items(&mut self, at: &Path<'_>, items: usize, items_max: usize) {
        let message = format!("Too many: {items}: must have at most {items_max} items");
        self.push_at("FieldValueTooMany", at, message);
    }
}

/// Returns a value as JSON, truncated if it is long.
fn truncated_json(value: &Value) -> String {
    let mut json = value.to_string();
    if json.len() > SHOWN_BYTES_MAX {
        let mut end = SHOWN_BYTES_MAX;
        while !json.is_char_boundary(end) {
            end -= 1;
        }
        json.truncate(end);
        json.push('…');
    }
    json
}

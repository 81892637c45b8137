//! Where a value is, and how what is wrong with it is told: causes in the words of Kubernetes' field
//! errors. A path lives on the stack and is written only when there is something to tell.

use std::fmt;

use serde_json::Value;

use crate::api::StatusCause;
use crate::registry::Causes;

/// How much of a bad value is shown; whoever sent a megabyte knows it.
const SHOWN_BYTES_MAX: usize = 1024;

/// The place of a value in an object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'a> {
    /// A member of the object itself.
    Top(&'a str),
    /// A member of what is there.
    Member(&'a Path<'a>, &'a str),
    /// An item of the list that is there.
    Item(&'a Path<'a>, usize),
    /// What the map that is there has under a key.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    pub(super) fn member(&'a self, name: &'a str) -> Self {
        Self::Member(self, name)
    }

    pub(super) fn item(&'a self, index: usize) -> Self {
        Self::Item(self, index)
    }

    pub(super) fn key(&'a self, key: &'a str) -> Self {
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
    fn tell(&mut self, reason: &str, at: &Path<'_>, message: String) {
        if !self.is_full() {
            self.push(StatusCause {
                reason: reason.to_owned(),
                message,
                field: at.to_string(),
            });
        }
    }

    pub(super) fn required(&mut self, at: &Path<'_>, why: &str) {
        let message = match why {
            "" => "Required value".to_owned(),
            why => format!("Required value: {why}"),
        };
        self.tell("FieldValueRequired", at, message);
    }

    pub(super) fn invalid(&mut self, at: &Path<'_>, value: impl Into<Value>, why: &str) {
        let message = format!("Invalid value: {}: {why}", shown(&value.into()));
        self.tell("FieldValueInvalid", at, message);
    }

    /// One cause for each of the problems that a text has.
    pub(super) fn invalid_each(&mut self, at: &Path<'_>, text: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid(at, text, &problem);
        }
    }

    pub(super) fn forbidden(&mut self, at: &Path<'_>, why: &str) {
        self.tell("FieldValueForbidden", at, format!("Forbidden: {why}"));
    }

    pub(super) fn not_supported(&mut self, at: &Path<'_>, text: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            shown(&text.into()),
            supported.join(", ")
        );
        self.tell("FieldValueNotSupported", at, message);
    }

    pub(super) fn duplicate(&mut self, at: &Path<'_>, value: impl Into<Value>) {
        let message = format!("Duplicate value: {}", shown(&value.into()));
        self.tell("FieldValueDuplicate", at, message);
    }

    pub(super) fn not_found(&mut self, at: &Path<'_>, text: &str) {
        let message = format!("Not found: {}", shown(&text.into()));
        self.tell("FieldValueNotFound", at, message);
    }

    pub(super) fn too_long(&mut self, at: &Path<'_>, bytes_max: usize) {
        let message = format!("Too long: may not be more than {bytes_max} bytes");
        self.tell("FieldValueTooLong", at, message);
    }

    /// Of more items than there may be.
    pub(super) fn too_many_items(&mut self, at: &Path<'_>, items: usize, items_max: usize) {
        let message = format!("Too many: {items}: must have at most {items_max} items");
        self.tell("FieldValueTooMany", at, message);
    }
}

/// A value as JSON, cut when it is long.
fn shown(value: &Value) -> String {
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

//! The names of resources in a configuration: `secrets`, `widgets.example.com`, `*.apps`, `*.` and `*.*`.

use std::fmt;

/// A resource and its group; `*` is any resource, and in `*.*` any group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupResource {
    pub(crate) resource: String,
    /// Empty for the core group.
    pub(crate) group: String,
}

impl GroupResource {
    /// Parses `resource` or `resource.group`.
    pub(crate) fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self {
            resource: resource.to_owned(),
            group: group.to_owned(),
        }
    }

    pub(crate) fn is(&self, group: &str, resource: &str) -> bool {
        self.group == group && self.resource == resource
    }

    /// Returns true for `*.*`.
    pub(crate) fn is_everything(&self) -> bool {
        self.is("*", "*")
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.resource.as_str(), self.group.as_str()) {
            ("*", "") => f.write_str("*."),
            (resource, "") => f.write_str(resource),
            (resource, group) => write!(f, "{resource}.{group}"),
        }
    }
}

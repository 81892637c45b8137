//! The version of OpenAPI of a document.

/// The version of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    /// Returns the location of schemas in the document.
    pub(super) fn schema_location(self) -> &'static str {
        match self {
            Self::V2 => "/definitions",
            Self::V3 => "/components/schemas",
        }
    }
}

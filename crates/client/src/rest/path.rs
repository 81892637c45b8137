//! Paths and queries of the API, with escaping of values from the user.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters escaped in a query's value: all but the unreserved ones of RFC 3986.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Characters escaped in a path segment: names of roles contain colons.
const SEGMENT: &AsciiSet = &VALUE.remove(b':');

/// Characters escaped in a header's name: all but those of a token (RFC 9110), and the escape
/// itself.
pub(super) const HEADER_NAME: &AsciiSet = &VALUE
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'^')
    .remove(b'`')
    .remove(b'|');

/// A path with a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    text: String,
    /// Whether there is a parameter.
    has_query: bool,
}

impl Path {
    /// Creates a path from `text`, which must be escaped.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            has_query: false,
        }
    }

    /// Appends a segment.
    pub(crate) fn segment(mut self, name: &str) -> Self {
        write!(self.text, "/{}", utf8_percent_encode(name, SEGMENT))
            .expect("writing to a String cannot fail");
        self
    }

    /// Appends a parameter.
    pub(crate) fn query(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        let mark = if self.has_query { '&' } else { '?' };
        let value = value.to_string();
        let value = utf8_percent_encode(&value, VALUE);
        write!(self.text, "{mark}{name}={value}").expect("writing to a String cannot fail");
        self.has_query = true;
        self
    }

    /// Appends a parameter if it is given and not empty.
    pub(crate) fn query_some(self, name: &str, value: Option<&str>) -> Self {
        match value.filter(|value| !value.is_empty()) {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Returns the escaped path and query.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_values_are_escaped() {
        let path = Path::new("/api/v1")
            .segment("system:a/b%")
            .query("labelSelector", "a in (b,c)");
        let path = path.query_some("fieldSelector", Some("")).query("limit", 5);
        assert_eq!(
            path.as_str(),
            "/api/v1/system:a%2Fb%25?labelSelector=a%20in%20%28b%2Cc%29&limit=5"
        );
    }
}

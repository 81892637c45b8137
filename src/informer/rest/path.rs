//! Paths and queries of the API: where a resource's objects are, and how what a user wrote is escaped in
//! there. It knows no verbs.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is escaped in a query's value: all but the unreserved characters of RFC 3986.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// In a segment of a path, names of roles have colons in them.
const SEGMENT: &AsciiSet = &VALUE.remove(b':');

/// In a header's name: all but what a token of RFC 9110 may hold, and the escape itself.
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

/// A path with a query that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::informer) struct Path {
    text: String,
    /// Whether there is a parameter yet.
    asked: bool,
}

impl Path {
    /// The path that begins with `text`, which is one.
    pub(in crate::informer) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            asked: false,
        }
    }

    /// The same with one more segment.
    pub(in crate::informer) fn segment(mut self, name: &str) -> Self {
        write!(self.text, "/{}", utf8_percent_encode(name, SEGMENT)).expect("memory");
        self
    }

    /// The same with a parameter.
    pub(in crate::informer) fn query(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        let mark = if self.asked { '&' } else { '?' };
        let value = value.to_string();
        let value = utf8_percent_encode(&value, VALUE);
        write!(self.text, "{mark}{name}={value}").expect("memory");
        self.asked = true;
        self
    }

    /// The same with a parameter, if it is given and not empty.
    pub(in crate::informer) fn query_some(self, name: &str, value: Option<&str>) -> Self {
        match value.filter(|value| !value.is_empty()) {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// As it is sent.
    pub(in crate::informer) fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_wrote_is_escaped() {
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

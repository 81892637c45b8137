//! The decoded query of a request, with Kubernetes' parsing of flags, numbers and durations.
//! `options` interprets the parameters.

use std::time::Duration;

use watchet_api::parse_go_duration;

use crate::request::percent::decode_bytes;

/// Decoded parameters, in order. The first value of a repeated parameter counts, except in
/// [`Query::all`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

/// A query that cannot be decoded; the client gets a 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidQuery {
    #[error("invalid query parameter {0:?}: it is not percent-encoded UTF-8")]
    Encoding(String),
    #[error("invalid value {value:?} of query parameter {name:?}: {problem}")]
    Value {
        name: &'static str,
        value: String,
        problem: &'static str,
    },
}

impl Query {
    /// Splits and decodes a raw query.
    pub(crate) fn parse(raw: &str) -> Result<Self, InvalidQuery> {
        let decode = |text: &str| {
            decode_bytes(text, true)
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(|| InvalidQuery::Encoding(text.to_owned()))
        };
        raw.split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(name)?, decode(value)?))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns the first value of `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns the first value of `name` if it is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Returns every value of `name`.
    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(n, _)| n == name)
            .map(|(_, value)| &**value)
    }

    /// Returns true if the flag `name` is set.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(flag)
    }

    /// Parses a whole number.
    pub(crate) fn integer(&self, name: &'static str) -> Result<Option<i64>, InvalidQuery> {
        let parse = |value: &str| {
            value.parse().map_err(|_| InvalidQuery::Value {
                name,
                value: value.to_owned(),
                problem: "it is not a whole number",
            })
        };
        self.get(name).map(parse).transpose()
    }

    /// Parses a duration in Go's notation; zero counts as absent.
    pub(crate) fn duration(&self, name: &'static str) -> Result<Option<Duration>, InvalidQuery> {
        let parse = |value: &str| {
            parse_go_duration(value).ok_or_else(|| InvalidQuery::Value {
                name,
                value: value.to_owned(),
                problem: "it is not a duration such as 30s or 1m30s",
            })
        };
        let duration = self.text(name).map(parse).transpose()?;
        Ok(duration.filter(|d| !d.is_zero()))
    }
}

/// Returns true if a flag's value means true: anything but `0` and `false`, even the empty value.
pub(crate) fn flag(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db+c&x&x=2&&e=").unwrap();
        assert_eq!(query.get("labelSelector"), Some("a=b c"));
        assert_eq!(query.all("x").collect::<Vec<_>>(), ["", "2"]);
        assert_eq!((query.text("x"), query.get("e")), (None, Some("")));
        assert!(Query::parse("a=%f").is_err());
        assert!(Query::parse("a=%ff").is_err());
    }

    #[test]
    fn flags_parse_as_upstream() {
        let query = Query::parse("a&b=0&c=FALSE&d=1&e=true&f=no").unwrap();
        let set: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"]
            .into_iter()
            .filter(|name| query.flag(name))
            .collect();
        assert_eq!(set, ["a", "d", "e", "f"]);
    }

    #[test]
    fn numbers_and_durations() {
        let query = Query::parse("a=5&b=x&c=1m1.5s&d=5&e=0s&f=-1s&g=250ms").unwrap();
        assert_eq!(query.integer("a"), Ok(Some(5)));
        assert!(query.integer("b").is_err());
        assert_eq!(query.integer("z"), Ok(None));
        assert!(Query::parse("a=").unwrap().integer("a").is_err());
        assert_eq!(query.duration("c"), Ok(Some(Duration::from_millis(61_500))));
        assert_eq!(query.duration("g"), Ok(Some(Duration::from_millis(250))));
        assert_eq!(query.duration("e"), Ok(None));
        assert!(query.duration("d").is_err());
        assert!(query.duration("f").is_err());
    }
}

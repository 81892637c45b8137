//! Parses `shardSelector=` (KEP-5866) and matches objects by the hash of their uid or namespace.
//! Clients that divide a collection each request some ranges of hashes.

use std::fmt;

use super::Object;

/// The exclusive upper limit of all hashes and the maximum end of a range.
const HASHES: u128 = 1 << 64;

/// Hash ranges; it selects an object whose hash is in one of them.
///
/// ```
/// use watchet_api::ShardSelector;
/// let half = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')";
/// let selector: ShardSelector = half.parse().unwrap();
/// assert_eq!(selector.to_string(), half);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShardSelector {
    field: ShardField,
    ranges: Vec<HashRange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ShardField {
    Uid,
    Namespace,
}

/// From `start` to before `end`, which is greater than `start` and at most [`HASHES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HashRange {
    start: u128,
    end: u128,
}

/// The text is not a shard selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse shard selector {selector:?}: {problem}")]
pub struct InvalidShardSelector {
    /// The whole text.
    pub selector: String,
    /// What is wrong, and where.
    pub problem: String,
}

impl ShardSelector {
    /// Returns true if the object's hash is in one of the ranges.
    pub fn matches(&self, object: &Object) -> bool {
        let hash = u128::from(fnv1a_64(match self.field {
            ShardField::Uid => object.uid(),
            ShardField::Namespace => object.key().namespace(),
        }));
        self.ranges
            .iter()
            .any(|range| range.start <= hash && hash < range.end)
    }
}

/// Computes FNV-1a with its 64-bit parameters, as every client and server does.
fn fnv1a_64(text: &str) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

impl fmt::Display for ShardField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        })
    }
}

impl fmt::Display for ShardSelector {
    /// The canonical text, which parses to the same selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, HashRange { start, end }) in self.ranges.iter().enumerate() {
            let or = if index > 0 { " || " } else { "" };
            let field = self.field;
            write!(
                f,
                "{or}shardRange({field}, '0x{start:016x}', '0x{end:016x}')"
            )?;
        }
        Ok(())
    }
}

impl std::str::FromStr for ShardSelector {
    type Err = InvalidShardSelector;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parser = Parser { rest: text };
        parser.selector().map_err(|problem| InvalidShardSelector {
            selector: text.to_owned(),
            problem,
        })
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn selector(&mut self) -> Result<ShardSelector, String> {
        let (field, range) = self.term()?;
        let mut ranges = vec![range];
        while !self.at_end() {
            self.expect("||")?;
            let (other, range) = self.term()?;
            if other != field {
                return Err(format!("{field} and {other} cannot be mixed"));
            }
            ranges.push(range);
        }
        Ok(ShardSelector { field, ranges })
    }

    fn term(&mut self) -> Result<(ShardField, HashRange), String> {
        self.expect("shardRange")?;
        self.expect("(")?;
        let field = self.field()?;
        self.expect(",")?;
        let start = self.bound()?;
        self.expect(",")?;
        let end = self.bound()?;
        self.expect(")")?;
        match start < end {
            true => Ok((field, HashRange { start, end })),
            false => Err("a range must begin below its end".to_owned()),
        }
    }

    fn field(&mut self) -> Result<ShardField, String> {
        self.space();
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_')))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        [ShardField::Uid, ShardField::Namespace]
            .into_iter()
            .find(|field| field.to_string() == word)
            .ok_or_else(|| {
                format!("found '{word}', expected object.metadata.uid or object.metadata.namespace")
            })
    }

    /// Parses a quoted `0x` and 16 digits; the end of all hashes has 17.
    fn bound(&mut self) -> Result<u128, String> {
        self.space();
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let quote = quote.ok_or_else(|| self.unexpected("a quoted hash"))?;
        let (text, rest) = self.rest[1..]
            .split_once(quote)
            .ok_or_else(|| format!("a {quote} without another"))?;
        self.rest = rest;
        let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let digits = text
            .strip_prefix("0x")
            .filter(|digits| digits.bytes().all(digit));
        let hash = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        match (digits.map(str::len), hash) {
            (Some(16), Some(hash)) | (Some(17), Some(hash @ HASHES)) => Ok(hash),
            _ => Err(format!(
                "{text:?}: a bound must be 0x and 16 lower-case hexadecimal digits"
            )),
        }
    }

    fn space(&mut self) {
        self.rest = self
            .rest
            .trim_start_matches(|c: char| c.is_ascii_whitespace());
    }

    fn at_end(&mut self) -> bool {
        self.space();
        self.rest.is_empty()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.unexpected(&format!("'{token}'"))),
        }
    }

    fn unexpected(&self, expected: &str) -> String {
        let found: String = self.rest.chars().take(16).collect();
        format!("found '{found}', expected {expected}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "object.metadata.uid";

    fn check(text: &str, canonical: &str) {
        let selector: ShardSelector = text.parse().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(selector.to_string(), canonical);
        assert_eq!(canonical.parse(), Ok(selector));
    }

    #[test]
    fn selectors_are_parsed_or_rejected() {
        let low = format!("shardRange({UID}, '0x0000000000000000', '0x8000000000000000')");
        let high = format!("shardRange({UID}, '0x8000000000000000', '0x10000000000000000')");
        check(&low, &low);
        check(&low.replace(' ', ""), &low);
        check(&low.replace('\'', "\""), &low);
        check(&format!("  {low}\n"), &low);
        let both = format!("{high} || {low}");
        check(&format!("{high}||{low}"), &both);
        let namespace = low.replace("uid", "namespace");
        check(&namespace, &namespace);
    }

    /// WC-220
    #[test]
    fn invalid_selectors_return_the_reason() {
        let range = |start: &str, end: &str| format!("shardRange({UID}, {start}, {end})");
        let (zero, half) = ("'0x0000000000000000'", "'0x8000000000000000'");
        let good = range(zero, half);
        for (bad, why) in [
            (String::new(), "expected 'shardRange'"),
            (" ".to_owned(), "expected 'shardRange'"),
            (range(half, zero), "begin below"),
            (range(half, half), "begin below"),
            (
                format!("{good} || {}", good.replace("uid", "namespace")),
                "cannot be mixed",
            ),
            (good.replace("uid", "name"), "expected object.metadata.uid"),
            (good.replace("uid", "uids"), "expected object.metadata.uid"),
            (range("'0x00'", half), "16 lower-case"),
            (range(zero, "'0x800000000000000A'"), "16 lower-case"),
            (range(zero, "'8000000000000000'"), "16 lower-case"),
            (range(zero, "'0x10000000000000001'"), "16 lower-case"),
            (range(zero, "'0x+000000000000001'"), "16 lower-case"),
            (range(zero, "0x8000000000000000"), "a quoted hash"),
            (range(zero, "'0x8000000000000000\""), "without another"),
            (format!("{good} && {good}"), "expected '||'"),
            (format!("{good} ||"), "expected 'shardRange'"),
            (format!("{good},{good}"), "expected '||'"),
            (good.replace(')', ""), "expected ')'"),
            (good.replace("shardRange", "range"), "expected 'shardRange'"),
        ] {
            let error = bad.parse::<ShardSelector>().expect_err(&bad);
            assert!(error.problem.contains(why), "{error}");
        }
    }

    /// Test vectors from the authors of the hash.
    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv1a_64(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64("foobar"), 0x8594_4171_f739_67e8);
    }
}

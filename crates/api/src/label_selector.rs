//! Parses `labelSelector=` and matches label sets. `predicate` combines it with the other selectors
//! of a request.

use std::fmt;

use super::labels::LabelFilter;
use super::names::{LABEL_LENGTH_MAX, SUBDOMAIN_LENGTH_MAX, is_dns_subdomain, is_label_text};

/// A conjunction of requirements. The empty selector matches everything.
///
/// ```
/// use watchet_api::LabelSelector;
/// let selector: LabelSelector = "app in (web, db),!canary".parse().unwrap();
/// assert!(selector.matches(|key| (key == "app").then_some("db")));
/// assert!(!selector.matches(|_| None));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// Bits that every matching label set has.
    filter: LabelFilter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Requirement {
    key: Box<str>,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Operator {
    Exists,
    DoesNotExist,
    Equals(Box<str>),
    NotEquals(Box<str>),
    /// Sorted and unique.
    In(Vec<Box<str>>),
    /// Sorted and unique.
    NotIn(Vec<Box<str>>),
    GreaterThan(i64),
    LessThan(i64),
}

/// A requirement on labels, as in the API's `LabelSelectorRequirement`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRequirement<'a> {
    /// The label's key.
    pub key: &'a str,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: &'static str,
    /// The values; none for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

/// The text is not a label selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse label selector {selector:?}: {problem}")]
pub struct InvalidLabelSelector {
    /// The whole text.
    pub selector: String,
    /// What is wrong, and where.
    pub problem: String,
}

impl LabelSelector {
    /// Returns true if the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements in the order of the text.
    pub fn requirements(&self) -> impl Iterator<Item = LabelRequirement<'_>> {
        self.requirements.iter().map(|requirement| {
            let texts = |values: &[Box<str>]| values.iter().map(|v| v.to_string()).collect();
            let (operator, values) = match &requirement.operator {
                Operator::Exists => ("Exists", Vec::new()),
                Operator::DoesNotExist => ("DoesNotExist", Vec::new()),
                Operator::Equals(value) => ("In", vec![value.to_string()]),
                Operator::NotEquals(value) => ("NotIn", vec![value.to_string()]),
                Operator::In(values) => ("In", texts(values)),
                Operator::NotIn(values) => ("NotIn", texts(values)),
                Operator::GreaterThan(bound) => ("Gt", vec![bound.to_string()]),
                Operator::LessThan(bound) => ("Lt", vec![bound.to_string()]),
            };
            LabelRequirement {
                key: &requirement.key,
                operator,
                values,
            }
        })
    }

    /// Returns true if every requirement holds for the labels that `value_of` looks up.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .iter()
            .all(|r| r.operator.holds(value_of(&r.key)))
    }

    /// Like [`Self::matches`], but first compares `filter`, which rejects most objects without
    /// reading labels.
    pub(super) fn selects<'a>(
        &self,
        filter: LabelFilter,
        value_of: impl Fn(&str) -> Option<&'a str>,
    ) -> bool {
        filter.may_contain(self.filter) && self.matches(value_of)
    }

    /// Returns the value that the selector requires of `key` with `=`, if any.
    pub fn exact(&self, key: &str) -> Option<&str> {
        self.requirements.iter().find_map(|r| match &r.operator {
            Operator::Equals(value) if &*r.key == key => Some(&**value),
            _ => None,
        })
    }
}

impl Requirement {
    /// Returns the bits that every matching label set has.
    fn filter(&self) -> LabelFilter {
        let key = LabelFilter::of_key(&self.key);
        match &self.operator {
            Operator::Exists | Operator::GreaterThan(_) | Operator::LessThan(_) => key,
            Operator::Equals(value) => key.with(LabelFilter::of(&self.key, value)),
            Operator::In(values) => {
                let pairs = values.iter().map(|value| LabelFilter::of(&self.key, value));
                key.with(pairs.fold(LabelFilter::ALL, LabelFilter::shared))
            }
            Operator::DoesNotExist | Operator::NotEquals(_) | Operator::NotIn(_) => {
                LabelFilter::NONE
            }
        }
    }
}

impl Operator {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Equals(want) => value == Some(want),
            Self::NotEquals(want) => value != Some(want),
            Self::In(values) => value.is_some_and(|v| is_among(values, v)),
            Self::NotIn(values) => !value.is_some_and(|v| is_among(values, v)),
            Self::GreaterThan(bound) => number().is_some_and(|n| n > *bound),
            Self::LessThan(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

/// Returns true if `values`, which is sorted, contains `value`. A binary search: a request can list
/// thousands of values, and each object is compared with them.
fn is_among(values: &[Box<str>], value: &str) -> bool {
    values.binary_search_by(|want| (**want).cmp(value)).is_ok()
}

impl fmt::Display for LabelSelector {
    /// The canonical text, which parses to the same selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, operator }) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match operator {
                Operator::Exists => write!(f, "{key}")?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
                Operator::Equals(value) => write!(f, "{key}={value}")?,
                Operator::NotEquals(value) => write!(f, "{key}!={value}")?,
                Operator::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                Operator::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                Operator::GreaterThan(bound) => write!(f, "{key}>{bound}")?,
                Operator::LessThan(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for LabelSelector {
    type Err = InvalidLabelSelector;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parser = Parser { rest: text };
        parser
            .selector()
            .map(|requirements| Self {
                filter: requirements
                    .iter()
                    .fold(LabelFilter::NONE, |filter, r| filter.with(r.filter())),
                requirements,
            })
            .map_err(|problem| InvalidLabelSelector {
                selector: text.to_owned(),
                problem,
            })
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        self.space();
        while !self.rest.is_empty() {
            requirements.push(self.requirement()?);
            self.space();
            if self.rest.is_empty() {
                break;
            }
            self.expect(",")?;
            self.space();
            if self.rest.is_empty() {
                return Err("found '' after ',', expected a requirement".to_owned());
            }
        }
        Ok(requirements)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.eat("!") {
            let key = self.key()?;
            return Ok(Requirement {
                key,
                operator: Operator::DoesNotExist,
            });
        }
        let key = self.key()?;
        self.space();
        let operator = self.operator()?;
        Ok(Requirement { key, operator })
    }

    fn operator(&mut self) -> Result<Operator, String> {
        if self.rest.is_empty() || self.rest.starts_with(',') {
            return Ok(Operator::Exists);
        }
        if self.eat("!=") {
            return Ok(Operator::NotEquals(self.value()?));
        }
        if self.eat("==") || self.eat("=") {
            return Ok(Operator::Equals(self.value()?));
        }
        if self.eat(">") {
            return Ok(Operator::GreaterThan(self.number()?));
        }
        if self.eat("<") {
            return Ok(Operator::LessThan(self.number()?));
        }
        match self.word() {
            "in" => Ok(Operator::In(self.values()?)),
            "notin" => Ok(Operator::NotIn(self.values()?)),
            other => Err(format!(
                "found '{other}', expected one of: =, ==, !=, in, notin, >, < or the end of the requirement"
            )),
        }
    }

    fn values(&mut self) -> Result<Vec<Box<str>>, String> {
        self.space();
        self.expect("(")?;
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            self.space();
            if self.eat(")") {
                values.sort();
                values.dedup();
                return Ok(values);
            }
            self.expect(",")?;
        }
    }

    fn key(&mut self) -> Result<Box<str>, String> {
        self.space();
        let key = self.word();
        check_key(key)?;
        Ok(key.into())
    }

    fn value(&mut self) -> Result<Box<str>, String> {
        self.space();
        let value = self.word();
        check_value(value)?;
        Ok(value.into())
    }

    fn number(&mut self) -> Result<i64, String> {
        self.space();
        let word = self.word();
        check_value(word)?;
        word.parse()
            .map_err(|_| format!("{word:?}: for '>' and '<' the value must be an integer"))
    }

    /// Returns the longest run without white space or characters of the grammar; may be empty.
    fn word(&mut self) -> &'a str {
        let end = self
            .rest
            .find(|c: char| c.is_ascii_whitespace() || "=!(),<>".contains(c))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn space(&mut self) {
        self.rest = self
            .rest
            .trim_start_matches(|c: char| c.is_ascii_whitespace());
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) {
            return Ok(());
        }
        let found: String = self.rest.chars().take(16).collect();
        Err(format!("found '{found}', expected '{token}'"))
    }
}

/// Validates a label key: `[dns-subdomain/]name`, the name at most 63 characters.
pub(super) fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix
        && !(is_dns_subdomain(prefix) && prefix.len() <= SUBDOMAIN_LENGTH_MAX)
    {
        return Err(format!(
            "{key:?}: the prefix of a label key must be a DNS subdomain"
        ));
    }
    if !is_label_text(name) || name.len() > LABEL_LENGTH_MAX {
        return Err(format!(
            "{key:?}: a label key must be 1 to 63 alphanumerics, '-', '_' or '.', and begin and end with an alphanumeric"
        ));
    }
    Ok(())
}

/// Validates a label value, which may be empty.
pub(super) fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() || (is_label_text(value) && value.len() <= LABEL_LENGTH_MAX) {
        return Ok(());
    }
    Err(format!(
        "{value:?}: a label value must be empty or at most 63 alphanumerics, '-', '_' or '.', and begin and end with an alphanumeric"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, labels: &[(&str, &str)], expect: bool) {
        let parsed: LabelSelector = selector.parse().unwrap();
        let matched = parsed.matches(|k| labels.iter().find(|(l, _)| *l == k).map(|(_, v)| *v));
        assert_eq!(matched, expect, "{selector} on {labels:?}");
        let canonical = parsed.to_string();
        assert_eq!(
            canonical.parse::<LabelSelector>().unwrap(),
            parsed,
            "{canonical}"
        );
    }

    #[test]
    fn selectors_are_parsed_or_rejected() {
        check("", &[], true);
        check("a", &[("a", "")], true);
        check("!a", &[("a", "")], false);
        check("a=1, b==2", &[("a", "1"), ("b", "2")], true);
        check("a!=1", &[], true);
        check("a!=1", &[("a", "1")], false);
        check("a in (1, 2)", &[("a", "2")], true);
        check("a in (1,2)", &[], false);
        check("a in ()", &[("a", "")], true);
        check("a notin (1,2)", &[], true);
        check("a notin (1,2)", &[("a", "2")], false);
        check("a>3,a<5", &[("a", "4")], true);
        check("a>3", &[("a", "x")], false);
        check("example.com/a=x_1.Y", &[("example.com/a", "x_1.Y")], true);
        check(" a = 1 ,! b ", &[("a", "1")], true);
        check(
            "in=in,notin in (notin)",
            &[("in", "in"), ("notin", "notin")],
            true,
        );
        check("a=", &[("a", "")], true);
    }

    #[test]
    fn invalid_selectors_return_the_reason() {
        for bad in [
            "=",
            "a b",
            "a,",
            ",a",
            "a in 1",
            "a in (1",
            "a>x",
            "a>-1",
            "a<+1",
            "!",
            "a/b/c",
            "-a",
            "a=-x",
            "a==!b",
            "UP.com/A!",
            &"x".repeat(64),
            &format!("a={}", "x".repeat(64)),
            &format!("{}/a", "x".repeat(254)),
        ] {
            let error = bad.parse::<LabelSelector>().expect_err(bad);
            assert!(
                error
                    .to_string()
                    .starts_with("unable to parse label selector"),
                "{error}"
            );
        }
    }
}

//! JSONPath in the dialect of kubectl and printer columns: `.spec.containers[0].image`,
//! `.status.conditions[?(@.type=="Ready")].status`, `.items[*].name`, `..name`. A path to an absent value finds nothing.
//!
//! The crate `serde_json_path` implements RFC 9535, which requires a leading `$`, has no escapes such as `a\.b`, and allows
//! member names with `-` or `/` in brackets only; upstream accepts all of these in `additionalPrinterColumns`. A shim would
//! have to parse the whole dialect to translate it, and would have different error messages for clients.

use std::cell::Cell;

use serde_json::Value;

#[cfg(test)]
mod tests;

/// The maximum number of values that one step of a path can find. Steps with several values multiply; a column shows
/// one value.
const FOUND_MAX: usize = 10_000;

/// The maximum number of values that the steps of a path and of its filters may visit together. A filter is evaluated for
/// each item, and its path can have filters of its own, so the numbers of their visits multiply.
const VISITED_MAX: usize = 100_000;

/// The maximum number of filters inside each other. Parsing, evaluating and dropping a path recurse for each.
const FILTER_DEPTH_MAX: usize = 32;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// `.name`, `['name']`
    Member(String),
    /// `.*`, `[*]`
    All,
    /// `[2]`, `[-1]`
    Index(i64),
    /// `[1:3]`, `[::2]`
    Slice(Option<i64>, Option<i64>, i64),
    /// `..`: the value and all within it.
    Descend,
    /// `[?(@.a == "b")]`
    Filter(Filter),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    /// Without a test the filter selects items in which the left side exists.
    test: Option<(Comparison, Operand)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    Less,
    Greater,
}

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

/// The error of a text that is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathError {
    /// A bracket or a quote is not closed.
    #[error("unterminated array")]
    Unterminated,
    /// The text in brackets is invalid.
    #[error("invalid array index {0}")]
    Index(String),
    /// The filters nest too deeply.
    #[error("filters nest deeper than {FILTER_DEPTH_MAX} levels")]
    Depth,
    /// A filter is invalid.
    #[error("unrecognized filter {0}")]
    Filter(String),
    /// A character other than `.` or `[`.
    #[error("unrecognized character in action: {0:?}")]
    Character(char),
}

impl JsonPath {
    /// Parses a path that begins with `.` or `[`. The empty path is the whole value.
    ///
    /// # Errors
    /// [`PathError`].
    pub(super) fn parse(text: &str) -> Result<Self, PathError> {
        Self::parse_within(text, FILTER_DEPTH_MAX)
    }

    /// Parses a path whose filters may nest to `depth` levels.
    fn parse_within(text: &str, depth: usize) -> Result<Self, PathError> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        while let Some(first) = rest.chars().next() {
            rest = match first {
                '.' if rest.starts_with("..") => {
                    steps.push(Step::Descend);
                    let below = &rest[2..];
                    match below.starts_with('[') {
                        true => below,
                        false => member(below, &mut steps),
                    }
                }
                '.' => member(&rest[1..], &mut steps),
                '[' => {
                    let length = closing(&rest[1..])?;
                    steps.push(bracket(&rest[1..=length], depth)?);
                    &rest[length + 2..]
                }
                other => return Err(PathError::Character(other)),
            };
        }
        Ok(Self(steps))
    }

    /// Returns the values that the path finds, in order. After [`VISITED_MAX`] visited values it finds no more.
    pub(super) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.find_within(value, &Visits(Cell::new(VISITED_MAX)))
    }

    fn find_within<'a>(&self, value: &'a Value, visits: &Visits) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in found {
                if !visits.count() {
                    break;
                }
                step.apply(value, &mut next, visits);
                next.truncate(FOUND_MAX);
            }
            found = next;
        }
        found
    }
}

/// The number of values that may still be visited.
struct Visits(Cell<usize>);

impl Visits {
    /// Counts the visit of a value. Returns false if it is one too many.
    fn count(&self) -> bool {
        let remaining = self.0.get().checked_sub(1);
        self.0.set(remaining.unwrap_or(0));
        remaining.is_some()
    }
}

/// Parses the name of a member, up to the next step. A backslash escapes a character of the name.
fn member<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
            '.' | '[' => {
                end = at;
                break;
            }
            _ => name.push(c),
        }
    }
    match name.as_str() {
        // `.` alone is the value itself.
        "" => {}
        "*" => steps.push(Step::All),
        _ => steps.push(Step::Member(name)),
    }
    &text[end..]
}

/// Returns the position of the bracket that closes the one before `text`.
fn closing(text: &str) -> Result<usize, PathError> {
    let (mut depth, mut quote, mut escaped) = (0, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Ok(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    Err(PathError::Unterminated)
}

fn bracket(text: &str, depth: usize) -> Result<Step, PathError> {
    let text = text.trim();
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        let depth = depth.checked_sub(1).ok_or(PathError::Depth)?;
        return filter_of(filter, depth).map(Step::Filter);
    }
    if text == "*" {
        return Ok(Step::All);
    }
    if let Some(name) = quoted(text) {
        return Ok(Step::Member(name));
    }
    let bad = || PathError::Index(text.to_owned());
    if let Ok(index) = text.parse() {
        return Ok(Step::Index(index));
    }
    let bound = |part: Option<&str>| match part.map(str::trim) {
        None | Some("") => Ok(None),
        Some(number) => number.parse().map(Some).map_err(|_| bad()),
    };
    let parts: Vec<&str> = text.split(':').collect();
    if !(2..=3).contains(&parts.len()) {
        return Err(bad());
    }
    let step = bound(parts.get(2).copied())?.unwrap_or(1);
    if step < 1 {
        return Err(bad());
    }
    Ok(Step::Slice(
        bound(Some(parts[0]))?,
        bound(Some(parts[1]))?,
        step,
    ))
}

/// Returns the text of a quoted string; `None` if `text` is not one.
fn quoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inner = text[1..].strip_suffix(quote)?;
    let mut plain = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.extend(chars.next()),
            c if c == quote => return None,
            c => plain.push(c),
        }
    }
    Some(plain)
}

fn filter_of(text: &str, depth: usize) -> Result<Filter, PathError> {
    let bad = || PathError::Filter(text.to_owned());
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => continue,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None => {
                let rest = &text[at..];
                let mut all = COMPARISONS.iter();
                if let Some((sign, comparison)) = all.find(|(sign, _)| rest.starts_with(sign)) {
                    let left = operand(&text[..at], depth)?.ok_or_else(bad)?;
                    let right = operand(&rest[sign.len()..], depth)?.ok_or_else(bad)?;
                    let test = Some((*comparison, right));
                    return Ok(Filter { left, test });
                }
            }
        }
    }
    let left = operand(text, depth)?.ok_or_else(bad)?;
    Ok(Filter { left, test: None })
}

/// Parses a side of a comparison, whose filters may nest to `depth` levels. Returns `None` if it is invalid.
fn operand(text: &str, depth: usize) -> Result<Option<Operand>, PathError> {
    let text = text.trim();
    if let Some(path) = text.strip_prefix('@') {
        return match JsonPath::parse_within(path, depth) {
            Ok(path) => Ok(Some(Operand::Path(path))),
            Err(PathError::Depth) => Err(PathError::Depth),
            Err(_) => Ok(None),
        };
    }
    if let Some(text) = quoted(text) {
        return Ok(Some(Operand::Literal(text.into())));
    }
    Ok(serde_json::from_str(text).ok().map(Operand::Literal))
}

impl Step {
    fn apply<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>, visits: &Visits) {
        match (self, value) {
            (Self::Member(name), Value::Object(members)) => found.extend(members.get(name)),
            (Self::All, Value::Object(members)) => found.extend(members.values()),
            (Self::All, Value::Array(items)) => found.extend(items),
            (Self::Index(index), Value::Array(items)) => {
                found.extend(position(*index, items.len()).and_then(|at| items.get(at)));
            }
            (Self::Slice(from, to, step), Value::Array(items)) => {
                let end =
                    |bound: &Option<i64>, default| bound.map_or(default, |b| clamp(b, items.len()));
                let (from, to) = (end(from, 0), end(to, items.len()));
                let step = usize::try_from(*step).unwrap_or(usize::MAX);
                let slice = items.get(from..to.max(from)).unwrap_or_default();
                found.extend(slice.iter().step_by(step));
            }
            (Self::Filter(filter), Value::Array(items)) => {
                found.extend(items.iter().filter(|item| filter.selects(item, visits)));
            }
            (Self::Filter(filter), Value::Object(members)) => {
                let items = members.values();
                found.extend(items.filter(|item| filter.selects(item, visits)));
            }
            (Self::Descend, value) => descend(value, found, visits),
            _ => {}
        }
    }
}

fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>, visits: &Visits) {
    if found.len() >= FOUND_MAX || !visits.count() {
        return;
    }
    found.push(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| descend(item, found, visits)),
        Value::Object(members) => {
            let items = members.values();
            items.for_each(|item| descend(item, found, visits));
        }
        _ => {}
    }
}

/// Returns the position of `index`, which counts from the end if it is negative.
fn position(index: i64, len: usize) -> Option<usize> {
    match index < 0 {
        true => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
        false => usize::try_from(index).ok(),
    }
}

/// Returns the position of the bound of a slice, which may be outside of the list.
fn clamp(bound: i64, len: usize) -> usize {
    match bound < 0 {
        true => position(bound, len).unwrap_or(0),
        false => usize::try_from(bound).map_or(len, |bound| bound.min(len)),
    }
}

impl Filter {
    fn selects(&self, item: &Value, visits: &Visits) -> bool {
        if !visits.count() {
            return false;
        }
        let left = self.left.value(item, visits);
        match &self.test {
            None => left.is_some(),
            Some((comparison, right)) => match (left, right.value(item, visits)) {
                (Some(left), Some(right)) => comparison.holds(left, right),
                _ => false,
            },
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, item: &'a Value, visits: &Visits) -> Option<&'a Value> {
        match self {
            Self::Path(path) => path.find_within(item, visits).first().copied(),
            Self::Literal(value) => Some(value),
        }
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => a.partial_cmp(&b),
                _ => None,
            },
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (a, b) => (a == b).then_some(std::cmp::Ordering::Equal),
        };
        match self {
            Self::Equal => order.is_some_and(|o| o.is_eq()),
            Self::NotEqual => !order.is_some_and(|o| o.is_eq()),
            Self::LessOrEqual => order.is_some_and(|o| o.is_le()),
            Self::GreaterOrEqual => order.is_some_and(|o| o.is_ge()),
            Self::Less => order.is_some_and(|o| o.is_lt()),
            Self::Greater => order.is_some_and(|o| o.is_gt()),
        }
    }
}

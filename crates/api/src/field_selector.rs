//! Parses `fieldSelector=`. `columns` resolves the labels for a resource, and `predicate` matches
//! objects.

use std::fmt;

/// A conjunction of parsed terms, not yet resolved for a resource.
///
/// ```
/// use watchet_api::FieldSelector;
/// let selector: FieldSelector = r"spec.nodeName=a\,b,status.phase!=Failed".parse().unwrap();
/// assert_eq!(selector.exact("spec.nodeName"), Some("a,b"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    /// The terms in the order of the text.
    pub terms: Vec<FieldTerm>,
}

/// `field=value` or `field!=value`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldTerm {
    /// The field's label.
    pub field: Box<str>,
    /// The comparison.
    pub operator: FieldOperator,
    /// The value, unescaped.
    pub value: Box<str>,
}

/// The comparison of a field term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldOperator {
    /// `=` or `==`
    Equals,
    /// `!=`
    NotEquals,
}

/// The text is not a field selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid field selector {selector:?}: {problem}")]
pub struct InvalidFieldSelector {
    /// The whole text.
    pub selector: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FieldSelector {
    /// Returns true if there are no terms.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the value that the selector requires of `field` with `=`, if any.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let pins = |t: &&FieldTerm| &*t.field == field && t.operator == FieldOperator::Equals;
        self.terms.iter().find(pins).map(|t| &*t.value)
    }
}

impl std::str::FromStr for FieldSelector {
    type Err = InvalidFieldSelector;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |problem| InvalidFieldSelector {
            selector: text.to_owned(),
            problem,
        };
        let pieces = split_unescaped(text);
        let terms = pieces
            .into_iter()
            .filter(|piece| !piece.is_empty())
            .map(parse_term);
        Ok(Self {
            terms: terms.collect::<Result<_, _>>().map_err(error)?,
        })
    }
}

impl fmt::Display for FieldSelector {
    /// The canonical text, values escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = match term.operator {
                FieldOperator::Equals => "=",
                FieldOperator::NotEquals => "!=",
            };
            write!(f, "{comma}{}{operator}{}", term.field, escape(&term.value))?;
        }
        Ok(())
    }
}

/// Splits at unescaped commas.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    pieces
}

fn parse_term(piece: &str) -> Result<FieldTerm, String> {
    for (at, _) in piece.char_indices() {
        let rest = &piece[at..];
        let (operator, length) = if rest.starts_with("!=") {
            (FieldOperator::NotEquals, 2)
        } else if rest.starts_with("==") {
            (FieldOperator::Equals, 2)
        } else if rest.starts_with('=') {
            (FieldOperator::Equals, 1)
        } else {
            continue;
        };
        let value = unescape(&rest[length..])?.into();
        return Ok(FieldTerm {
            field: piece[..at].into(),
            operator,
            value,
        });
    }
    Err(format!(
        "can't understand {piece:?}: expected field=value or field!=value"
    ))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(format!("invalid escape sequence '\\{c}'")),
                None => return Err("the text ends in a lone '\\'".to_owned()),
            },
            ',' | '=' => return Err(format!("unescaped {c:?} in the value {text:?}")),
            c => out.push(c),
        }
    }
    Ok(out)
}

fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_parsed_or_rejected() {
        let parse = |text: &str| text.parse::<FieldSelector>();
        assert!(parse("").unwrap().is_empty());
        assert!(parse(",,").unwrap().is_empty());
        let selector = parse(r"a=1,b==x\,y\=z\\,c!=").unwrap();
        assert_eq!(selector.exact("a"), Some("1"));
        assert_eq!(selector.exact("b"), Some(r"x,y=z\"));
        assert_eq!(selector.exact("c"), None);
        assert_eq!(selector.terms[2].operator, FieldOperator::NotEquals);
        assert_eq!(selector.to_string(), r"a=1,b=x\,y\=z\\,c!=");
        assert_eq!(parse(&selector.to_string()), Ok(selector));
        for bad in ["a", r"a=\x", r"a=b\", "a=b=c"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}

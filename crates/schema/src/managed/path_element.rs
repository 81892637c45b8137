//! Path elements: one step of a field path, as `fieldsV1` encodes it (KEP-555).

use std::fmt;

use serde_json::{Number, Value};

/// A path element: `f:name` is a field, `k:{"name":"a"}` the list item with these keys, `v:"a"` a
/// member of a set, `i:0` the item at an index. Stored as its text in `fieldsV1` in canonical form,
/// so that equal elements have equal texts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PathElement(Box<str>);

/// An invalid path element or field set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub(super) String);

impl PathElement {
    /// Returns the element of a field or map key.
    pub(super) fn field(name: &str) -> Self {
        Self(["f:", name].concat().into())
    }

    /// Returns the element of a list item by its keys. The names must be sorted.
    pub(super) fn key<'v>(keys: impl Iterator<Item = (&'v str, &'v Value)>) -> Self {
        let mut text = "k:{".to_owned();
        for (at, (name, value)) in keys.enumerate() {
            if at > 0 {
                text.push(',');
            }
            push_string(&mut text, name);
            text.push(':');
            push_canonical(&mut text, value);
        }
        text.push('}');
        Self(text.into())
    }

    /// Returns the element of a set member.
    pub(super) fn value(value: &Value) -> Self {
        let mut text = "v:".to_owned();
        push_canonical(&mut text, value);
        Self(text.into())
    }

    /// Parses a path element. Returns `None` for an unknown prefix, which a newer version may have
    /// written and upstream drops as well.
    ///
    /// # Errors
    /// Returns an error for a text without a prefix or with invalid content.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, Malformed> {
        let malformed = |why: &dyn fmt::Display| Malformed(format!("{text:?}: {why}"));
        let Some((sort, content)) = text.split_at_checked(2) else {
            return Err(malformed(&"key must be 2 characters long"));
        };
        if !sort.ends_with(':') {
            return Err(malformed(&"missing colon"));
        }
        match sort {
            "f:" => Ok(Some(Self(text.into()))),
            "v:" => {
                let value: Value = serde_json::from_str(content).map_err(|e| malformed(&e))?;
                Ok(Some(Self::value(&value)))
            }
            "k:" => {
                let keys: serde_json::Map<String, Value> =
                    serde_json::from_str(content).map_err(|e| malformed(&e))?;
                let keys = keys.iter().map(|(name, value)| (name.as_str(), value));
                Ok(Some(Self::key(keys)))
            }
            "i:" => {
                let index: i64 = content.parse().map_err(|e| malformed(&e))?;
                Ok(Some(Self(format!("i:{index}").into())))
            }
            _ => Ok(None),
        }
    }

    /// Returns the element as a key of `fieldsV1`.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Converts the element into its key of `fieldsV1`.
    pub(super) fn into_string(self) -> String {
        self.0.into()
    }

    /// Returns the name if this is a field.
    pub(super) fn field_name(&self) -> Option<&str> {
        self.0.strip_prefix("f:")
    }
}

/// Formats the element as in conflicts: `.spec`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sort, content) = self.0.split_at(2);
        match sort {
            "f:" => write!(f, ".{content}"),
            "v:" => write!(f, "[={content}]"),
            "k:" => {
                // It was created from such a map, or parsed as one.
                let keys: serde_json::Map<String, Value> =
                    serde_json::from_str(content).unwrap_or_default();
                f.write_str("[")?;
                for (at, (name, value)) in keys.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={value}")?;
                }
                f.write_str("]")
            }
            _ => write!(f, "[{content}]"),
        }
    }
}

fn push_string(text: &mut String, string: &str) {
    // A string always encodes.
    text.push_str(&serde_json::to_string(string).expect("a string encodes"));
}

fn push_canonical(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => push_string(text, string),
        Value::Number(number) => text.push_str(&canonical(number).to_string()),
        // Keys and set members are scalars; other values of a client are kept unchanged.
        other => text.push_str(&other.to_string()),
    }
}

/// Returns the canonical form of a number: `80.0` is `80`.
pub(super) fn canonical(number: &Number) -> Number {
    /// Integers up to this value are exact as floats.
    const EXACT_MAX: f64 = (1_u64 << 53) as f64;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT_MAX => {
            Number::from(float as i64)
        }
        _ => number.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Asserts the canonical text of `wire` and its display form.
    fn check(wire: &str, canonical: &str, displayed: &str) {
        let element = PathElement::parse(wire).unwrap().unwrap();
        assert_eq!(
            (element.as_str(), element.to_string().as_str()),
            (canonical, displayed)
        );
        assert_eq!(PathElement::parse(canonical), Ok(Some(element)));
    }

    #[test]
    fn every_prefix_is_parsed_and_displayed() {
        check("f:spec", "f:spec", ".spec");
        check("f:a:b", "f:a:b", ".a:b");
        check("f:", "f:", ".");
        check(r#"k:{"name":"a"}"#, r#"k:{"name":"a"}"#, r#"[name="a"]"#);
        check(
            r#"k:{ "protocol":"TCP", "port": 80.0 }"#,
            r#"k:{"port":80,"protocol":"TCP"}"#,
            r#"[port=80,protocol="TCP"]"#,
        );
        check(r#"v:"a\u003cb""#, r#"v:"a<b""#, r#"[="a<b"]"#);
        check("v:1", "v:1", "[=1]");
        check("v:true", "v:true", "[=true]");
        check("i:12", "i:12", "[12]");
    }

    #[test]
    fn created_elements_round_trip() {
        let (name, port) = (json!("a\"b"), json!(80));
        let made = PathElement::key([("name", &name), ("port", &port)].into_iter());
        assert_eq!(PathElement::parse(made.as_str()), Ok(Some(made)));
        let made = PathElement::value(&json!(1.5));
        assert_eq!(made.as_str(), "v:1.5");
        assert_eq!(PathElement::field("x").field_name(), Some("x"));
        assert_eq!(made.field_name(), None);
    }

    #[test]
    fn unknown_prefixes_are_dropped_and_invalid_elements_rejected() {
        assert_eq!(PathElement::parse("z:what"), Ok(None));
        for bad in ["", "f", "fx", "é:", "v:{", "k:[]", "k:1", "i:x", "no colon"] {
            assert!(PathElement::parse(bad).is_err(), "{bad:?}");
        }
    }
}

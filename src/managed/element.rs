//! Path elements: one step from a value to a part of it, as managed fields name it (KEP-555). It
//! knows texts and JSON values; which step leads to which part is told by `typed`.

use std::fmt;

use serde_json::{Number, Value};

/// One step down: `f:name` into a field, `k:{"name":"a"}` to the item of a list with these keys,
/// `v:"a"` to a member of a set, `i:0` to the item at an index. It is its text on the wire, in a
/// canonical form, so that equal steps have equal texts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Element(Box<str>);

/// A text that is no path element, or what is no set of fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub(super) String);

impl Element {
    /// The field, or the key of a map, of this name.
    pub(super) fn field(name: &str) -> Self {
        Self(format!("f:{name}").into())
    }

    /// The item of a list whose keys have these values. The names must be sorted.
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

    /// The member of a set that has this value.
    pub(super) fn value(value: &Value) -> Self {
        let mut text = "v:".to_owned();
        push_canonical(&mut text, value);
        Self(text.into())
    }

    /// Reads a path element from its text on the wire; `None` is one of a sort that is not known, which
    /// a newer version may have written and upstream drops.
    ///
    /// # Errors
    /// A text without a sort, or whose content is not what its sort says.
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

    /// Its text on the wire.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, if it leads into a field.
    pub(super) fn field_name(&self) -> Option<&str> {
        self.0.strip_prefix("f:")
    }
}

/// As people read it in conflicts: `.spec`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sort, content) = self.0.split_at(2);
        match sort {
            "f:" => write!(f, ".{content}"),
            "v:" => write!(f, "[={content}]"),
            "k:" => {
                // It was made of such a map, or parsed as one.
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
        // Keys and members of sets are scalars; what a client calls one is kept as it is.
        other => text.push_str(&other.to_string()),
    }
}

/// Numbers that are equal are written equally: `80.0` is `80`.
pub(super) fn canonical(number: &Number) -> Number {
    /// The integers up to here have a float of their own.
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

    /// What `wire` is read as, and how people see it.
    fn check(wire: &str, canonical: &str, seen: &str) {
        let element = Element::parse(wire).unwrap().unwrap();
        assert_eq!(
            (element.as_str(), element.to_string().as_str()),
            (canonical, seen)
        );
        assert_eq!(Element::parse(canonical), Ok(Some(element)));
    }

    #[test]
    fn every_sort_is_read_and_shown() {
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
    fn what_is_made_is_what_is_read() {
        let (name, port) = (json!("a\"b"), json!(80));
        let made = Element::key([("name", &name), ("port", &port)].into_iter());
        assert_eq!(Element::parse(made.as_str()), Ok(Some(made)));
        let made = Element::value(&json!(1.5));
        assert_eq!(made.as_str(), "v:1.5");
        assert_eq!(Element::field("x").field_name(), Some("x"));
        assert_eq!(made.field_name(), None);
    }

    #[test]
    fn unknown_sorts_are_dropped_and_others_refused() {
        assert_eq!(Element::parse("z:what"), Ok(None));
        for bad in ["", "f", "fx", "é:", "v:{", "k:[]", "k:1", "i:x", "no colon"] {
            assert!(Element::parse(bad).is_err(), "{bad:?}");
        }
    }
}

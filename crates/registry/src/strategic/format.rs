//! Formats a patch as Go formats a map with `%+v`. Upstream shows a strategic merge patch that way in the cause of its
//! error.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde_json::Value;

/// A value, displayed as Go does it: `map[metadata:map[labels:x]]`.
pub(crate) struct GoFormat<'a>(pub(crate) &'a Value);

impl Display for GoFormat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::String(text) => f.write_str(text),
            Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(float) => f.write_str(&float_text(float)),
                None => number.fmt(f),
            },
            Value::Bool(value) => value.fmt(f),
            Value::Array(items) => {
                f.write_str("[")?;
                separated(f, items.iter().map(GoFormat))?;
                f.write_str("]")
            }
            Value::Object(members) => {
                f.write_str("map[")?;
                let sorted: BTreeMap<_, _> = members.iter().collect();
                separated(
                    f,
                    sorted.into_iter().map(|(name, value)| Member(name, value)),
                )?;
                f.write_str("]")
            }
        }
    }
}

struct Member<'a>(&'a str, &'a Value);

impl Display for Member<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, GoFormat(self.1))
    }
}

fn separated(f: &mut fmt::Formatter<'_>, parts: impl Iterator<Item = impl Display>) -> fmt::Result {
    for (index, part) in parts.enumerate() {
        if index > 0 {
            f.write_str(" ")?;
        }
        part.fmt(f)?;
    }
    Ok(())
}

/// A float in the fewest digits; very large and very small ones with an exponent of two digits.
fn float_text(float: f64) -> String {
    let magnitude = float.abs();
    if magnitude == 0.0 || (1e-4..1e21).contains(&magnitude) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_formatted_as_go_formats_them() {
        let value = json!({
            "b": [1, "x y", null, true], "a": {"f": 1.5, "e": 1e21, "d": 0.00001, "c": 3.0},
        });
        let text = "map[a:map[c:3 d:1e-05 e:1e+21 f:1.5] b:[1 x y <nil> true]]";
        assert_eq!(GoFormat(&value).to_string(), text);
        assert_eq!(GoFormat(&json!({})).to_string(), "map[]");
    }
}

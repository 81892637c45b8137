//! An OpenAPI schema, kept as JSON text.

use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// How many levels a schema can nest. serde_json reads documents of at most 127 levels, and a schema is a member of
/// one.
const LEVELS_MAX: usize = 126;

/// An OpenAPI schema, kept as compact JSON text. The text of a large schema takes a tenth of the memory of its
/// [`Value`], and is parsed only while a schema is compiled or a document is generated.
///
/// ```
/// use watchet_schema::openapi::SchemaText;
///
/// let schema: SchemaText = serde_json::from_str(r#"{ "type": "object" }"#)?;
/// assert_eq!(schema.parse()["type"], "object");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaText(Arc<str>);

impl SchemaText {
    /// Returns the schema that the text describes.
    #[must_use]
    pub fn parse(&self) -> Value {
        serde_json::from_str(&self.0).expect("the text was written from a value of few levels")
    }
}

/// The schema `null`.
impl Default for SchemaText {
    fn default() -> Self {
        Self("null".into())
    }
}

impl<'de> Deserialize<'de> for SchemaText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let schema = Value::deserialize(deserializer)?;
        if exceeds(&schema, LEVELS_MAX) {
            let why = format!("the schema nests more than {LEVELS_MAX} levels");
            return Err(D::Error::custom(why));
        }
        Ok(Self(schema.to_string().into()))
    }
}

/// Returns true if `value` has more than `levels` levels of objects and arrays.
fn exceeds(value: &Value, levels: usize) -> bool {
    let mut members: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Object(object) => Box::new(object.values()),
        Value::Array(items) => Box::new(items.iter()),
        _ => return false,
    };
    levels == 0 || members.any(|member| exceeds(member, levels - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
    }

    /// What can be deserialized can be parsed, and nothing that nests more deeply than the parser allows is kept.
    #[test]
    fn a_schema_of_the_most_levels_can_be_parsed() {
        let deepest = nested(LEVELS_MAX);
        let text = SchemaText::deserialize(&deepest).unwrap();
        assert_eq!(text.parse(), deepest);
        let error = SchemaText::deserialize(&nested(LEVELS_MAX + 1)).unwrap_err();
        assert_eq!(error.to_string(), "the schema nests more than 126 levels");
    }

    #[test]
    fn the_default_is_null() {
        assert_eq!(SchemaText::default().parse(), Value::Null);
    }
}

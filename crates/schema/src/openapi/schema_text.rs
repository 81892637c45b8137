//! An OpenAPI schema, kept as JSON text.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
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

/// Writes the text while it reads the schema: the values of a large schema are never all in memory.
impl<'de> Deserialize<'de> for SchemaText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut json = Vec::new();
        let writer = JsonWriter {
            json: &mut json,
            levels_left: LEVELS_MAX,
        };
        writer.deserialize(deserializer)?;
        let text = String::from_utf8(json).expect("JSON of texts is UTF-8");
        Ok(Self(text.into()))
    }
}

/// Writes the value that it deserializes to `json`, as compact JSON.
struct JsonWriter<'a> {
    json: &'a mut Vec<u8>,
    /// The levels of objects and arrays that the value may have.
    levels_left: usize,
}

impl JsonWriter<'_> {
    fn write<E: serde::de::Error>(self, value: impl Serialize) -> Result<(), E> {
        serde_json::to_writer(self.json, &value).map_err(E::custom)
    }

    /// Returns the writer of the members of this object, or of the items of this array.
    ///
    /// # Errors
    /// The value nests too deeply.
    fn inner<E: serde::de::Error>(&mut self) -> Result<JsonWriter<'_>, E> {
        let levels_left = self.levels_left.checked_sub(1).ok_or_else(|| {
            E::custom(format_args!(
                "the schema nests more than {LEVELS_MAX} levels"
            ))
        })?;
        Ok(JsonWriter {
            json: self.json,
            levels_left,
        })
    }
}

impl<'de> DeserializeSeed<'de> for JsonWriter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonWriter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an OpenAPI schema")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.write(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.write(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.json.push(b'[');
        let mut is_first = true;
        loop {
            let start = self.json.len();
            if !is_first {
                self.json.push(b',');
            }
            if items.next_element_seed(self.inner()?)?.is_none() {
                self.json.truncate(start);
                break;
            }
            is_first = false;
        }
        self.json.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        self.json.push(b'{');
        let mut is_first = true;
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            if !is_first {
                self.json.push(b',');
            }
            is_first = false;
            let inner = self.inner()?;
            serde_json::to_writer(&mut *inner.json, &name).map_err(A::Error::custom)?;
            inner.json.push(b':');
            members.next_value_seed(inner)?;
        }
        self.json.push(b'}');
        Ok(())
    }
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

    /// Schemas come from the object of a request and from storage.
    #[test]
    fn the_text_is_that_of_the_value() {
        for schema in [
            r#"{"a":[1,-2,0.5,1e300,true,null,"\u0001\"é"],"b":{},"c":[],"d\n":{"e":[[]]}}"#,
            r#""text""#,
            "null",
        ] {
            let value: Value = serde_json::from_str(schema).unwrap();
            let of_value = SchemaText::deserialize(&value).unwrap();
            let of_text: SchemaText = serde_json::from_str(schema).unwrap();
            assert_eq!(of_value.parse(), value);
            assert_eq!(&*of_value.0, value.to_string());
            assert_eq!(of_text, of_value);
        }
    }

    #[test]
    fn the_default_is_null() {
        assert_eq!(SchemaText::default().parse(), Value::Null);
    }
}

//! `PrintedFields`: the fields of an object that the cells of its row in a Table are printed from. Only these are decoded,
//! which is less than a fifth of a pod.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A set of fields of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedFields(Selection);

/// The selected part of a value. In a list it applies to each item.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Selection {
    All,
    Nothing,
    Members {
        /// The selected part of members by name.
        named: Vec<(&'static str, Selection)>,
        /// The selected part of all other members.
        others: Box<Selection>,
    },
}

impl Selection {
    fn members(named: Vec<(&'static str, Self)>, others: Self) -> Self {
        let others = Box::new(others);
        Self::Members { named, others }
    }

    /// Adds the field at a path below this value.
    fn add(&mut self, path: &mut dyn Iterator<Item = &'static str>) {
        let Some(name) = path.next() else {
            *self = Self::All;
            return;
        };
        if *self == Self::Nothing {
            *self = Self::members(Vec::new(), Self::Nothing);
        }
        let Self::Members { named, .. } = self else {
            return;
        };
        let found = named.iter().position(|(member, _)| *member == name);
        let at = found.unwrap_or_else(|| {
            named.push((name, Self::Nothing));
            named.len() - 1
        });
        named[at].1.add(path);
    }

    /// Returns the selected part of the member of this name.
    fn of_member(&self, name: &str) -> &Self {
        match self {
            Self::Members { named, others } => {
                let found = named.iter().find(|(member, _)| *member == name);
                found.map_or(&**others, |(_, selection)| selection)
            }
            whole => whole,
        }
    }
}

impl PrintedFields {
    /// Returns the set of all fields.
    pub fn all() -> Self {
        Self(Selection::All)
    }

    /// Returns the set of all fields but the managed fields, which are about half of an object.
    pub fn all_but_managed_fields() -> Self {
        let metadata = vec![("managedFields", Selection::Nothing)];
        let metadata = Selection::members(metadata, Selection::All);
        Self(Selection::members(
            vec![("metadata", metadata)],
            Selection::All,
        ))
    }

    /// Returns the set of the fields at these dotted paths, with everything below them. The path of a field in the items of
    /// a list has the name of the list: `spec.containers.name`.
    pub fn from_paths(paths: &[&'static str]) -> Self {
        let mut selection = Selection::Nothing;
        for path in paths {
            selection.add(&mut path.split('.'));
        }
        Self(selection)
    }

    /// Decodes these fields of an object. Lists have all their items, without the fields that are not in the set.
    ///
    /// # Errors
    /// `json` is not JSON.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use watchet_registry::PrintedFields;
    ///
    /// let fields = PrintedFields::from_paths(&["metadata.name", "spec.containers.name"]);
    /// let pod = br#"{"metadata":{"name":"a","uid":"1"},"spec":{"containers":[{"name":"c","image":"i"},{}]}}"#;
    /// let expect = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}, {}]}});
    /// assert_eq!(fields.decode(pod)?, expect);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn decode(&self, json: &[u8]) -> Result<Value, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let value = self.0.deserialize(&mut reader)?;
        reader.end()?;
        Ok(value)
    }
}

/// The name of a member, borrowed unless it is escaped. A `Cow` alone would always be owned.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for &Selection {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        match self {
            Selection::All => Value::deserialize(reader),
            Selection::Nothing => IgnoredAny::deserialize(reader).map(|_| Value::Null),
            Selection::Members { .. } => reader.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for &Selection {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Name(name)) = members.next_key::<Name<'de>>()? {
            let selection = self.of_member(&name);
            let value = members.next_value_seed(selection)?;
            if *selection != Selection::Nothing {
                map.insert(name.into_owned(), value);
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decoded(fields: &PrintedFields, value: &Value) -> Value {
        fields.decode(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn fields_outside_of_the_set_are_left_out() {
        let object = json!({
            "metadata": {"name": "a\"b", "labels": {"a": "b"}, "managedFields": [{"manager": "m"}]},
            "spec": {"items": [{"name": "x", "rest": 1}, null, {"rest": {"name": 1}}], "n": 1.5},
            "status": null,
        });
        assert_eq!(decoded(&PrintedFields::all(), &object), object);
        let mut expect = object.clone();
        expect["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("managedFields");
        let fields = PrintedFields::all_but_managed_fields();
        assert_eq!(decoded(&fields, &object), expect);
        let fields = PrintedFields::from_paths(&[
            "metadata.name",
            "spec.items.name",
            "spec.n",
            "status.phase",
        ]);
        let expect = json!({
            "metadata": {"name": "a\"b"},
            "spec": {"items": [{"name": "x"}, null, {}], "n": 1.5},
            "status": null,
        });
        assert_eq!(decoded(&fields, &object), expect);
        assert_eq!(
            decoded(&PrintedFields::from_paths(&["spec", "spec.n"]), &object)["spec"],
            object["spec"]
        );
    }

    #[test]
    fn text_after_the_object_is_an_error() {
        let fields = PrintedFields::from_paths(&["a"]);
        assert!(fields.decode(br#"{"a":1}]"#).is_err());
        assert!(fields.decode(br#"{"b":[1,}"#).is_err());
    }
}

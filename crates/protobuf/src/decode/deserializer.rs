//! Deserializes an object from its message, without JSON in between.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};

use super::members::{Content, Entries, Items, Members, Root, Walk};
use super::scalars::{RawJson, ScalarValue, invalid};
use crate::error::InvalidProtobuf;

/// The maximum nesting of lists and maps, as in serde_json. It protects the stack. Raw JSON has the same limit of its own, so a
/// value can be nested up to 254 levels; the registry refuses more than 127.
const LEVELS_MAX: usize = 127;

impl serde::de::Error for InvalidProtobuf {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Refused(message.to_string())
    }
}

/// Deserializes an object: calls the methods of the visitor that serde_json calls for its JSON. The first members are apiVersion and kind.
#[derive(Debug)]
pub struct Deserializer<'t, 'b>(pub(super) Root<'t, 'b>);

impl<'de> serde::Deserializer<'de> for Deserializer<'_, 'de> {
    type Error = InvalidProtobuf;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidProtobuf> {
        let mut walk = Walk::new(self.0.types);
        let members = walk.members(self.0.object)?;
        visitor.visit_map(MapContentAccess {
            state: State {
                walk: &mut walk,
                levels: 1,
            },
            content: MapContent::Members(self.0.type_meta.iter(), members),
            next: None,
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidProtobuf> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, InvalidProtobuf> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

/// What is shared by the values of an object.
struct State<'w, 't, 'b> {
    walk: &'w mut Walk<'t, 'b>,
    /// The number of lists and maps around the value.
    levels: usize,
}

impl<'t, 'b> State<'_, 't, 'b> {
    /// Returns the deserializer of a value in the same list or map.
    fn value<'s>(&'s mut self, content: Content<'t, 'b>) -> ContentDeserializer<'s, 't, 'b> {
        ContentDeserializer {
            state: State {
                walk: self.walk,
                levels: self.levels,
            },
            content,
        }
    }

    /// Enters a list or map.
    fn enter(mut self) -> Result<Self, InvalidProtobuf> {
        if self.levels == LEVELS_MAX {
            return Err(InvalidProtobuf::custom(format_args!(
                "it nests lists and maps more than {LEVELS_MAX} levels deep"
            )));
        }
        self.levels += 1;
        Ok(self)
    }
}

/// Deserializes one value.
struct ContentDeserializer<'w, 't, 'b> {
    state: State<'w, 't, 'b>,
    content: Content<'t, 'b>,
}

impl<'de> serde::Deserializer<'de> for ContentDeserializer<'_, '_, 'de> {
    type Error = InvalidProtobuf;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidProtobuf> {
        match self.content {
            Content::Scalar(value) => scalar(value, visitor),
            Content::Object(object) => {
                let state = self.state.enter()?;
                let members = state.walk.members(object)?;
                visitor.visit_map(MapContentAccess {
                    state,
                    content: MapContent::Members([].iter(), members),
                    next: None,
                })
            }
            Content::List(items) => {
                let state = self.state.enter()?;
                visitor.visit_seq(ListAccess { state, items })
            }
            Content::Map(entries) => {
                let state = self.state.enter()?;
                visitor.visit_map(MapContentAccess {
                    state,
                    content: MapContent::Entries(entries),
                    next: None,
                })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidProtobuf> {
        match &self.content {
            Content::Scalar(value) if value.is_null() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, InvalidProtobuf> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

/// Gives a value to a visitor by the methods that serde_json would call.
fn scalar<'b, V: Visitor<'b>>(
    value: ScalarValue<'_, 'b>,
    visitor: V,
) -> Result<V::Value, InvalidProtobuf> {
    match value {
        ScalarValue::Null => visitor.visit_unit(),
        ScalarValue::Bool(value) => visitor.visit_bool(value),
        ScalarValue::Integer(value) => match u64::try_from(value) {
            Ok(value) => visitor.visit_u64(value),
            Err(_) => visitor.visit_i64(value),
        },
        ScalarValue::Float(value) => visitor.visit_f64(value),
        ScalarValue::Text(Cow::Borrowed(value)) => visitor.visit_borrowed_str(value),
        ScalarValue::Text(Cow::Owned(value)) => visitor.visit_string(value),
        ScalarValue::Bytes(value) => visitor.visit_string(STANDARD.encode(value)),
        ScalarValue::Texts(value) => visitor.visit_seq(SeqDeserializer::new(value.into_iter())),
        ScalarValue::Raw(RawJson { name, json }) => {
            let mut reader = serde_json::Deserializer::from_slice(json);
            let value = serde::Deserializer::deserialize_any(&mut reader, visitor);
            let value = value.map_err(|error| invalid(name, error))?;
            reader.end().map_err(|error| invalid(name, error))?;
            Ok(value)
        }
    }
}

/// The unread members of an object, or the unread entries of a map.
enum MapContent<'w, 't, 'b> {
    /// The members, after the names and values of apiVersion and kind, which only the whole object has.
    Members(std::slice::Iter<'w, (&'static str, &'b str)>, Members<'t>),
    Entries(Entries<'t, 'b>),
}

impl<'t, 'b> MapContent<'_, 't, 'b> {
    /// Returns the next name or key, and its value.
    fn next<'n>(
        &mut self,
        walk: &mut Walk<'t, 'b>,
    ) -> Result<Option<(&'n str, Content<'t, 'b>)>, InvalidProtobuf>
    where
        't: 'n,
        'b: 'n,
    {
        match self {
            Self::Members(type_meta, members) => match type_meta.next() {
                Some((name, text)) => {
                    let text = ScalarValue::Text(Cow::Borrowed(*text));
                    Ok(Some((*name, Content::Scalar(text))))
                }
                None => {
                    let member = members.next(walk)?;
                    Ok(member.map(|(field, content)| (field.name(), content)))
                }
            },
            Self::Entries(entries) => entries.next(walk),
        }
    }
}

struct MapContentAccess<'w, 't, 'b> {
    state: State<'w, 't, 'b>,
    content: MapContent<'w, 't, 'b>,
    /// The value whose name or key is read.
    next: Option<Content<'t, 'b>>,
}

impl<'de> MapAccess<'de> for MapContentAccess<'_, '_, 'de> {
    type Error = InvalidProtobuf;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, InvalidProtobuf> {
        let Some((key, content)) = self.content.next(self.state.walk)? else {
            return Ok(None);
        };
        self.next = Some(content);
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, InvalidProtobuf> {
        let value = self.next.take();
        let value =
            value.ok_or_else(|| InvalidProtobuf::custom("a value was read before its key"))?;
        seed.deserialize(self.state.value(value))
    }
}

struct ListAccess<'w, 't, 'b> {
    state: State<'w, 't, 'b>,
    items: Items<'t, 'b>,
}

impl<'de> SeqAccess<'de> for ListAccess<'_, '_, 'de> {
    type Error = InvalidProtobuf;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, InvalidProtobuf> {
        let Some(content) = self.items.next(self.state.walk)? else {
            return Ok(None);
        };
        seed.deserialize(self.state.value(content)).map(Some)
    }
}

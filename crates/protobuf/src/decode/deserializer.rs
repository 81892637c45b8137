//! Deserializes an object from its message, without JSON in between.

use std::borrow::Cow;

use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};

use super::Root;
use super::members::{Content, Items, Members, Walk};
use super::scalars::{RawJson, ScalarValue, base64, invalid};
use crate::error::InvalidProtobuf;

impl serde::de::Error for InvalidProtobuf {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Object(message.to_string())
    }
}

/// Deserializes an object as its JSON would be: a map of which apiVersion and kind are the first members. Only
/// `deserialize_any` reads; it is self-describing, as JSON is.
#[derive(Debug)]
pub struct Deserializer<'t, 'b>(pub(super) Root<'t, 'b>);

impl<'de> serde::Deserializer<'de> for Deserializer<'_, 'de> {
    type Error = InvalidProtobuf;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidProtobuf> {
        let mut walk = Walk::new(self.0.types);
        let members = walk.members(self.0.object)?;
        visitor.visit_map(MembersAccess {
            walk: &mut walk,
            type_meta: self.0.type_meta.iter(),
            members,
            next: None,
        })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Deserializes one value.
struct ContentDeserializer<'w, 't, 'b> {
    walk: &'w mut Walk<'t, 'b>,
    content: Content<'t, 'b>,
}

impl<'de> serde::Deserializer<'de> for ContentDeserializer<'_, '_, 'de> {
    type Error = InvalidProtobuf;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidProtobuf> {
        let walk = self.walk;
        match self.content {
            Content::Scalar(value) => scalar(value, visitor),
            Content::Object(object) => {
                let members = walk.members(object)?;
                visitor.visit_map(MembersAccess {
                    walk,
                    type_meta: [].iter(),
                    members,
                    next: None,
                })
            }
            Content::List(items) => visitor.visit_seq(ItemsAccess { walk, items }),
            Content::Map(entries) => visitor.visit_map(EntriesAccess {
                walk,
                entries: entries.into_iter(),
                next: None,
            }),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
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
        ScalarValue::Bytes(value) => visitor.visit_string(base64(value)),
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

struct MembersAccess<'w, 't, 'b> {
    walk: &'w mut Walk<'t, 'b>,
    /// The unread names and values that precede the members.
    type_meta: std::slice::Iter<'w, (&'static str, &'b str)>,
    members: Members<'t>,
    /// The value whose name is read.
    next: Option<Content<'t, 'b>>,
}

impl<'de> MapAccess<'de> for MembersAccess<'_, '_, 'de> {
    type Error = InvalidProtobuf;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, InvalidProtobuf> {
        let name = match self.type_meta.next() {
            Some((name, text)) => {
                let text = ScalarValue::Text(Cow::Borrowed(*text));
                self.next = Some(Content::Scalar(text));
                *name
            }
            None => {
                let Some((field, content)) = self.members.next(self.walk)? else {
                    return Ok(None);
                };
                self.next = Some(content);
                field.name()
            }
        };
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, InvalidProtobuf> {
        next_value(self.walk, self.next.take(), seed)
    }
}

struct EntriesAccess<'w, 't, 'b> {
    walk: &'w mut Walk<'t, 'b>,
    entries: std::vec::IntoIter<(&'b str, Content<'t, 'b>)>,
    /// The value whose key is read.
    next: Option<Content<'t, 'b>>,
}

impl<'de> MapAccess<'de> for EntriesAccess<'_, '_, 'de> {
    type Error = InvalidProtobuf;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, InvalidProtobuf> {
        let Some((key, content)) = self.entries.next() else {
            return Ok(None);
        };
        self.next = Some(content);
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, InvalidProtobuf> {
        next_value(self.walk, self.next.take(), seed)
    }
}

/// Deserializes the value whose key was read.
fn next_value<'t, 'b, S: DeserializeSeed<'b>>(
    walk: &mut Walk<'t, 'b>,
    content: Option<Content<'t, 'b>>,
    seed: S,
) -> Result<S::Value, InvalidProtobuf> {
    let content = content.ok_or_else(|| InvalidProtobuf::custom("a value before its key"))?;
    seed.deserialize(ContentDeserializer { walk, content })
}

struct ItemsAccess<'w, 't, 'b> {
    walk: &'w mut Walk<'t, 'b>,
    items: Items<'t, 'b>,
}

impl<'de> SeqAccess<'de> for ItemsAccess<'_, '_, 'de> {
    type Error = InvalidProtobuf;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, InvalidProtobuf> {
        let Some(content) = self.items.next(self.walk)? else {
            return Ok(None);
        };
        let walk = &mut *self.walk;
        seed.deserialize(ContentDeserializer { walk, content })
            .map(Some)
    }
}

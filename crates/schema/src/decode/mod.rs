//! Decodes objects by type, as upstream's typed decoders (KEP-2885): drops and reports unknown and
//! duplicate members, and reports values of the wrong type with the message of Go's decoder. The
//! caller decides how to handle the errors.

mod go_time;
mod memory_budget;
mod path;
mod restore;
mod type_error;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

pub use self::memory_budget::{
    MemoryBudget, MemoryExceeded, OBJECT_BYTES_MAX, PATCH_BYTES_MAX, ValueCounts, memory_of,
    memory_of_json,
};
use self::path::{Path, Step};
use self::type_error::{describe, go_type, problem};
use super::quantity::Quantity;
use super::types::{NodeId, Scalar, Shape, TypeRef, Types};

/// Maximum number of reported strict decoding errors (upstream's limit).
const MISTAKES_MAX: usize = 100;

/// Maximum number of strict decoding errors that are compared with the reported ones: a duplicate field can occur hundreds of
/// thousands of times.
const MISTAKES_COMPARED_MAX: usize = 2_000;

/// The type of a kind's objects. Cheap to clone.
#[derive(Debug, Clone)]
pub struct KindType {
    types: Arc<Types>,
    node: NodeId,
    /// True if values must match their type to be decoded. False for custom resources, whose schema
    /// validation reports all mismatches.
    typed: bool,
}

/// A decoded body.
#[derive(Debug, Default)]
pub struct Decoded {
    /// The value without unknown members and without empty values that Go does not encode.
    pub value: Value,
    /// Strict decoding errors: `unknown field "spec.foo"`, `duplicate field "spec.bar"`; distinct,
    /// at most a hundred.
    pub mistakes: Vec<String>,
    /// The first value of the wrong type.
    pub type_error: Option<String>,
}

impl KindType {
    /// Returns the type of a built-in kind; `None` for other kinds.
    pub fn builtin(types: &Arc<Types>, api_version: &str, kind: &str) -> Option<Self> {
        Some(Self {
            node: types.root_node(api_version, kind)?,
            types: types.clone(),
            typed: true,
        })
    }

    /// Returns the type of ObjectMeta.
    ///
    /// # Panics
    /// Panics if `types` are not the built-in types.
    pub fn metadata(types: &Arc<Types>) -> Self {
        Self::message(types, "meta.v1.ObjectMeta")
    }

    /// Returns a built-in type by message name.
    pub(super) fn message(types: &Arc<Types>, name: &str) -> Self {
        Self {
            node: types.message_node(name),
            types: types.clone(),
            typed: true,
        }
    }

    /// Returns the type of a custom resource version.
    ///
    /// # Panics
    /// Panics as [`Types::only_root`].
    pub fn custom(types: Arc<Types>) -> Self {
        Self {
            node: types.only_root_node(),
            types,
            typed: false,
        }
    }

    /// Returns the type itself.
    pub fn root(&self) -> TypeRef<'_> {
        self.types.view(self.node)
    }

    /// Decodes an object of this kind.
    ///
    /// # Errors
    /// Returns the errors of the deserializer, and an error if the object exceeds `memory`, which
    /// the caller distinguishes by [`MemoryBudget::check`].
    pub fn decode<'de, D: Deserializer<'de>>(
        &self,
        body: D,
        memory: &MemoryBudget,
    ) -> Result<Decoded, D::Error> {
        read(Some(self.root()), self.typed, body, memory)
    }

    /// Applies [`Self::decode`] to a decoded value.
    ///
    /// # Panics
    /// Does not panic: any value can be decoded as one.
    pub fn conform(&self, value: &Value) -> Decoded {
        self.decode(value, &MemoryBudget::unlimited())
            .expect("a value is read as a value")
    }
}

/// Decodes a value of unknown type; reports duplicate members only.
///
/// # Errors
/// The errors of [`KindType::decode`].
pub fn decode_untyped<'de, D: Deserializer<'de>>(
    body: D,
    memory: &MemoryBudget,
) -> Result<Decoded, D::Error> {
    read(None, false, body, memory)
}

fn read<'de, D: Deserializer<'de>>(
    of: Option<TypeRef<'_>>,
    typed: bool,
    body: D,
    memory: &MemoryBudget,
) -> Result<Decoded, D::Error> {
    let errors = RefCell::default();
    let reader = Reader {
        of,
        owner: "",
        path: None,
        typed,
        errors: &errors,
        memory,
    };
    let value = reader.deserialize(body)?;
    let Errors {
        mistakes,
        type_error,
        ..
    } = errors.into_inner();
    Ok(Decoded {
        value,
        mistakes,
        type_error,
    })
}

/// The errors found so far.
#[derive(Default)]
struct Errors {
    mistakes: Vec<String>,
    /// The number of mistakes found, with repetitions.
    compared: usize,
    type_error: Option<String>,
}

/// Decodes one value.
#[derive(Clone, Copy)]
struct Reader<'a, 'p> {
    /// The type; `None` if unknown.
    of: Option<TypeRef<'a>>,
    /// The name of the enclosing object type, with its package.
    owner: &'a str,
    path: Option<&'p Path<'p>>,
    typed: bool,
    errors: &'p RefCell<Errors>,
    memory: &'p MemoryBudget,
}

impl<'a> Reader<'a, '_> {
    fn shape(&self) -> Shape<'a> {
        self.of.map_or(Shape::Any, TypeRef::shape)
    }

    fn mistake(&self, what: &str, step: Step<'_>) {
        let errors = &mut *self.errors.borrow_mut();
        errors.compared += 1;
        if errors.mistakes.len() == MISTAKES_MAX || errors.compared > MISTAKES_COMPARED_MAX {
            return;
        }
        let path = Path {
            before: self.path,
            step,
        };
        let text = format!("{what} field {:?}", path.shortened());
        if !errors.mistakes.contains(&text) {
            errors.mistakes.push(text);
        }
    }

    /// Returns the value, or records that its type cannot represent it.
    fn fit(&self, value: Value) -> Value {
        if !self.typed {
            return value;
        }
        let (problem, integer) = match self.shape() {
            Shape::Any => (None, false),
            Shape::Scalar(scalar) => {
                let integer = matches!(scalar, Scalar::Int32 | Scalar::Int64);
                (problem(scalar, &value), integer)
            }
            _ => (Some(None), false),
        };
        match problem {
            None if matches!(self.shape(), Shape::Scalar(Scalar::Quantity)) => canonical(value),
            None => value,
            Some(message) => {
                self.type_error(message, || describe(&value, integer));
                Value::Null
            }
        }
    }

    /// Records a type error, with the message of the type's own decoder if it has one.
    fn type_error(&self, message: Option<String>, description: impl FnOnce() -> String) {
        let errors = &mut self.errors.borrow_mut();
        if errors.type_error.is_some() {
            return;
        }
        let general = || {
            let expected = self.of.map(go_type).unwrap_or_default();
            let mut fields = Vec::new();
            let mut path = self.path;
            while let Some(at) = path {
                if let Step::Field(name) = at.step {
                    fields.push(name);
                }
                path = at.before;
            }
            fields.reverse();
            let place = match fields.is_empty() {
                true => "Go value".to_owned(),
                false => {
                    let owner = self.owner.rsplit('.').next().unwrap_or(self.owner);
                    format!("Go struct field {owner}.{}", fields.join("."))
                }
            };
            format!(
                "json: cannot unmarshal {} into {place} of type {expected}",
                description()
            )
        };
        errors.type_error = Some(message.unwrap_or_else(general));
    }

    /// Returns the reader for the value at `path`.
    fn inner<'q>(
        &self,
        of: Option<TypeRef<'a>>,
        owner: &'a str,
        path: &'q Path<'q>,
    ) -> Reader<'a, 'q>
    where
        Self: 'q,
    {
        Reader {
            of,
            owner,
            path: Some(path),
            typed: self.typed,
            errors: self.errors,
            memory: self.memory,
        }
    }
}

/// Returns a quantity in canonical form: clients compare texts.
fn canonical(value: Value) -> Value {
    let parsed = Quantity::read(&value);
    parsed.map_or(value, |quantity| quantity.to_string().into())
}

/// Returns what replaces a null in a map or list with values of type `of`: the zero value of a scalar or of an object with known
/// members, as in Go. Null remains null if Go encodes the zero value as null (bytes, times, lists, maps, raw objects), and if the
/// type is unknown.
fn zero_value(of: Option<TypeRef<'_>>) -> Value {
    match of.map(TypeRef::shape) {
        Some(Shape::Scalar(scalar)) => match scalar {
            Scalar::String => "".into(),
            Scalar::Bool => false.into(),
            Scalar::Int32 | Scalar::Int64 | Scalar::Number | Scalar::IntOrString => 0.into(),
            Scalar::Quantity => "0".into(),
            Scalar::Bytes | Scalar::Time | Scalar::MicroTime => Value::Null,
        },
        Some(Shape::Object { open: false, .. }) => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(self.fit(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(self.fit(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(self.fit(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(self.fit(number.into()))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.memory.count_text(value).map_err(E::custom)?;
        Ok(self.fit(value.into()))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.memory.count_text(&value).map_err(E::custom)?;
        Ok(self.fit(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let item = match self.shape() {
            Shape::List { item, .. } => Some(item),
            Shape::Any => None,
            _ if !self.typed => None,
            _ => {
                self.type_error(None, || "array".to_owned());
                while items.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Value::Null);
            }
        };
        let mut list = Vec::new();
        loop {
            let path = Path {
                before: self.path,
                step: Step::Item(list.len()),
            };
            let reader = self.inner(item, self.owner, &path);
            let Some(mut value) = items.next_element_seed(reader)? else {
                return Ok(Value::Array(list));
            };
            if self.typed && value.is_null() {
                value = zero_value(item);
            }
            let mut counted = self.memory.count_item(list.is_empty());
            if value.as_object().is_some_and(Map::is_empty) {
                counted = counted.and_then(|()| self.memory.count_empty_map());
            }
            counted.map_err(serde::de::Error::custom)?;
            list.push(value);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let shape = self.shape();
        if self.typed && matches!(shape, Shape::List { .. } | Shape::Scalar(_)) {
            self.type_error(None, || "object".to_owned());
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut map = Map::new();
        let mut has_nulls = false;
        while let Some(name) = members.next_key::<String>()? {
            let (of, owner, step) = match shape {
                Shape::Object { fields, open, .. } => match fields.get(&name) {
                    Some(of) => (Some(of), fields.type_name(), Step::Field(&name)),
                    None if open => (None, self.owner, Step::Key(&name)),
                    None => {
                        self.mistake("unknown", Step::Key(&name));
                        members.next_value::<IgnoredAny>()?;
                        continue;
                    }
                },
                Shape::Map { value, .. } => (Some(value), self.owner, Step::Key(&name)),
                _ => (None, self.owner, Step::Key(&name)),
            };
            let path = Path {
                before: self.path,
                step,
            };
            let mut value = members.next_value_seed(self.inner(of, owner, &path))?;
            if self.typed && of.is_some_and(|of| of.is_omitted(&value)) {
                value = Value::Null;
            }
            if self.typed && value.is_null() && matches!(shape, Shape::Map { .. }) {
                value = zero_value(of);
            }
            has_nulls |= value.is_null();
            let counted = self.memory.count_member(&name, map.is_empty());
            counted.map_err(serde::de::Error::custom)?;
            let is_field = matches!(step, Step::Field(_));
            match map.entry(name) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    let name = entry.key().as_str();
                    let step = if is_field {
                        Step::Field(name)
                    } else {
                        Step::Key(name)
                    };
                    self.mistake("duplicate", step);
                    entry.insert(value);
                }
            }
        }
        // Null means unset; Go's types cannot distinguish the two.
        if has_nulls && self.typed && matches!(shape, Shape::Object { .. }) {
            map.retain(|_, value| !value.is_null());
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests;

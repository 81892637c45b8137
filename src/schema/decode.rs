//! Reading objects by their type, as typed decoding does (KEP-2885): members that the type does not have
//! are dropped and told of, as are members that are given twice, and a value that its type cannot hold is
//! named in the words that Go's decoder has for it. What becomes of mistakes is for the caller to decide;
//! what values mean is told elsewhere.

mod misfit;
mod restore;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use self::misfit::{describe, go_type, problem};
use super::quantity::Quantity;
use super::types::{NodeId, Scalar, Shape, TypeRef, Types};

/// How many mistakes of one body are told; upstream's.
const MISTAKES_MAX: usize = 100;

/// The type of one kind's objects, with the arena that it is in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct KindType {
    types: Arc<Types>,
    node: NodeId,
    /// Whether values must be of their type to be read at all. Those of a custom resource need not: its
    /// schema says more than types, and what violates it is refused with a cause for each.
    typed: bool,
}

/// A body as it was read.
#[derive(Debug, Default)]
pub struct Decoded {
    /// Without what its type does not have, and without empty values that Go does not encode.
    pub value: Value,
    /// `unknown field "spec.foo"`, `duplicate field "spec.bar"`: the first hundred, each once.
    pub mistakes: Vec<String>,
    /// The first value that its type cannot hold.
    pub misfit: Option<String>,
}

impl KindType {
    /// Of a built-in kind; `None` for another.
    pub fn builtin(types: &Arc<Types>, api_version: &str, kind: &str) -> Option<Self> {
        Some(Self {
            node: types.root_node(api_version, kind)?,
            types: types.clone(),
            typed: true,
        })
    }

    /// The type of every object's metadata.
    ///
    /// # Panics
    /// When these are not the built-in types.
    pub fn metadata(types: &Arc<Types>) -> Self {
        Self::message(types, "meta.v1.ObjectMeta")
    }

    /// A built-in type by the name of its message.
    pub(super) fn message(types: &Arc<Types>, name: &str) -> Self {
        Self {
            node: types.message_node(name),
            types: types.clone(),
            typed: true,
        }
    }

    /// Of a custom resource's version.
    ///
    /// # Panics
    /// As [`Types::only_root`].
    pub fn custom(types: Arc<Types>) -> Self {
        Self {
            node: types.only_root_node(),
            types,
            typed: false,
        }
    }

    /// The type itself.
    pub fn root(&self) -> TypeRef<'_> {
        self.types.view(self.node)
    }

    /// Reads an object of this kind.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn decode<'de, D: Deserializer<'de>>(&self, body: D) -> Result<Decoded, D::Error> {
        read(Some(self.root()), self.typed, body)
    }

    /// The same of what is there already.
    ///
    /// # Panics
    /// Never: any value can be read as one.
    pub fn conform(&self, value: &Value) -> Decoded {
        self.decode(value).expect("a value is read as a value")
    }
}

/// Reads what nobody knows the type of; only members that are given twice are noticed.
///
/// # Errors
/// The deserializer's.
pub fn decode_untyped<'de, D: Deserializer<'de>>(body: D) -> Result<Decoded, D::Error> {
    read(None, false, body)
}

fn read<'de, D: Deserializer<'de>>(
    of: Option<TypeRef<'_>>,
    typed: bool,
    body: D,
) -> Result<Decoded, D::Error> {
    let notes = RefCell::default();
    let reader = Reader {
        of,
        owner: "",
        path: None,
        typed,
        notes: &notes,
    };
    let value = reader.deserialize(body)?;
    let Notes { mistakes, misfit } = notes.into_inner();
    Ok(Decoded {
        value,
        mistakes,
        misfit,
    })
}

/// What was noticed so far.
#[derive(Default)]
struct Notes {
    mistakes: Vec<String>,
    misfit: Option<String>,
}

/// The way to a value, written down only when there is something to tell of it.
#[derive(Clone, Copy)]
struct Path<'p> {
    before: Option<&'p Path<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    /// A member of an object whose type has it.
    Field(&'p str),
    /// A member of a map, or one that is not known.
    Key(&'p str),
    Item(usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(before) = self.before {
            before.fmt(f)?;
        }
        match self.step {
            Step::Field(name) | Step::Key(name) => {
                let dot = if self.before.is_some() { "." } else { "" };
                write!(f, "{dot}{name}")
            }
            Step::Item(index) => write!(f, "[{index}]"),
        }
    }
}

/// Reads one value.
#[derive(Clone, Copy)]
struct Reader<'a, 'p> {
    /// Its type; `None` below what has none.
    of: Option<TypeRef<'a>>,
    /// The name of the object type that it is in, as Go's messages have it.
    owner: &'a str,
    path: Option<&'p Path<'p>>,
    typed: bool,
    notes: &'p RefCell<Notes>,
}

impl<'a> Reader<'a, '_> {
    fn shape(&self) -> Shape<'a> {
        self.of.map_or(Shape::Any, TypeRef::shape)
    }

    fn mistake(&self, what: &str, step: Step<'_>) {
        let path = Path {
            before: self.path,
            step,
        };
        let text = format!("{what} field {:?}", path.to_string());
        let mistakes = &mut self.notes.borrow_mut().mistakes;
        if mistakes.len() < MISTAKES_MAX && !mistakes.contains(&text) {
            mistakes.push(text);
        }
    }

    /// The value, unless its type cannot hold it.
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
            Some(told) => {
                self.misfit(told, || describe(&value, integer));
                Value::Null
            }
        }
    }

    /// Notes that a value does not fit: in the words of the type's own decoder, or of the general one.
    fn misfit(&self, told: Option<String>, given: impl FnOnce() -> String) {
        let notes = &mut self.notes.borrow_mut();
        if notes.misfit.is_some() {
            return;
        }
        let general = || {
            let wanted = self.of.map(go_type).unwrap_or_default();
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
                false => format!("Go struct field {}.{}", self.owner, fields.join(".")),
            };
            format!(
                "json: cannot unmarshal {} into {place} of type {wanted}",
                given()
            )
        };
        notes.misfit = Some(told.unwrap_or_else(general));
    }

    /// The reader of what `path` leads to.
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
            notes: self.notes,
        }
    }
}

/// A quantity as Kubernetes writes it again, whoever wrote it how: clients compare texts.
fn canonical(value: Value) -> Value {
    let parsed = Quantity::read(&value);
    parsed.map_or(value, |quantity| quantity.to_string().into())
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

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(self.fit(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
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
                self.misfit(None, || "array".to_owned());
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
            match items.next_element_seed(reader)? {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let shape = self.shape();
        if self.typed && matches!(shape, Shape::List { .. } | Shape::Scalar(_)) {
            self.misfit(None, || "object".to_owned());
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let (of, owner, step) = match shape {
                Shape::Object { fields, open, .. } => match fields.get(&name) {
                    Some(of) => {
                        let owner = fields.type_name();
                        let owner = owner.rsplit('.').next().unwrap_or(owner);
                        (Some(of), owner, Step::Field(&name))
                    }
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
            if map.contains_key(&name) {
                self.mistake("duplicate", step);
            }
            if self.typed && of.is_some_and(|of| of.is_omitted(&value)) {
                value = Value::Null;
            }
            map.insert(name, value);
        }
        // Null is how a member is not given; Go's types cannot tell the difference.
        if self.typed && matches!(shape, Shape::Object { .. }) {
            map.retain(|_, value| !value.is_null());
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests;

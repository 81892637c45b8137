//! Types from the perspective of field management: which values are leaves with one manager, which
//! have parts, and the path element of each part.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::{Fields, ListKind, Quantity, Scalar, Shape, TypeRef};

use super::path_element::{Malformed, PathElement, canonical};

/// The zero value of texts.
static EMPTY_TEXT: Value = Value::String(String::new());

/// The zero value of numbers.
static ZERO: LazyLock<Value> = LazyLock::new(|| 0.into());

/// A type: the schema's, or deduced from a value if there is no schema.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type<'a> {
    /// Maps have members; all other values are leaves.
    Deduced,
    Schema(TypeRef<'a>),
}

/// The structure of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Atom<'a> {
    /// The value has one manager.
    Leaf,
    /// A list whose items have managers.
    List(Items<'a>),
    /// A map or object whose members have managers.
    Map(Members<'a>),
}

/// The items of a list with managers per item.
#[derive(Debug, Clone, Copy)]
pub(super) struct Items<'a> {
    pub(super) item: Type<'a>,
    /// The keys of object items; empty if the items are scalars.
    keys: &'a [Box<str>],
}

/// The members of a map or object with managers per member.
#[derive(Debug, Clone, Copy)]
pub(super) enum Members<'a> {
    /// Deduced from the value.
    Deduced,
    /// All members have this type.
    Map(TypeRef<'a>),
    Object {
        fields: Fields<'a>,
        /// True if unknown fields are allowed.
        open: bool,
    },
}

impl<'a> Type<'a> {
    /// Returns the structure of `left` and `right`, if they match the type.
    pub(super) fn atom(self, left: Option<&Value>, right: Option<&Value>) -> Atom<'a> {
        match self {
            Self::Deduced => deduce(left, right),
            Self::Schema(known) => match known.shape() {
                Shape::Any => deduce(left, right),
                Shape::Scalar(_)
                | Shape::List {
                    kind: ListKind::Atomic,
                    ..
                }
                | Shape::Map { atomic: true, .. }
                | Shape::Object { atomic: true, .. } => Atom::Leaf,
                Shape::List { item, kind } => Atom::List(Items {
                    item: Self::Schema(item),
                    keys: match kind {
                        ListKind::Map(keys) => keys,
                        ListKind::Atomic | ListKind::Set => &[],
                    },
                }),
                Shape::Map { value, .. } => Atom::Map(Members::Map(value)),
                Shape::Object { fields, open, .. } => Atom::Map(Members::Object { fields, open }),
            },
        }
    }

    /// Returns true if two values are equal: `1` equals `1.0`, and a quantity `1` equals `1000m`,
    /// because a server may have stored either form.
    pub(super) fn same(self, left: &Value, right: &Value) -> bool {
        let Self::Schema(known) = self else {
            return same(left, right);
        };
        match (known.shape(), left, right) {
            (Shape::Scalar(Scalar::Quantity), ..) => {
                let amounts = (Quantity::read(left), Quantity::read(right));
                left == right || amounts.0.is_some() && amounts.0 == amounts.1
            }
            (Shape::List { item, .. }, Value::Array(l), Value::Array(r)) => {
                let item = Self::Schema(item);
                l.len() == r.len() && l.iter().zip(r).all(|(l, r)| item.same(l, r))
            }
            (Shape::Map { value, .. }, Value::Object(l), Value::Object(r)) => {
                Members::Map(value).are_same(l, r)
            }
            (Shape::Object { fields, open, .. }, Value::Object(l), Value::Object(r)) => {
                Members::Object { fields, open }.are_same(l, r)
            }
            _ => same(left, right),
        }
    }

    /// Returns true if the type is deduced from the value.
    pub(super) fn is_deduced(self) -> bool {
        match self {
            Self::Deduced => true,
            Self::Schema(known) => matches!(known.shape(), Shape::Any),
        }
    }
}

fn deduce<'a>(left: Option<&Value>, right: Option<&Value>) -> Atom<'a> {
    match left.or(right).is_some_and(Value::is_object) || right.is_some_and(Value::is_object) {
        true => Atom::Map(Members::Deduced),
        false => Atom::Leaf,
    }
}

impl<'a> Members<'a> {
    /// Returns the type of the member `name`, and true if it is a struct field rather than a map
    /// key. Members that are not in the schema are deduced.
    pub(super) fn get(self, name: &str) -> (Type<'a>, bool) {
        match self {
            Self::Deduced => (Type::Deduced, false),
            Self::Map(value) => (Type::Schema(value), false),
            Self::Object { fields, .. } => match fields.get(name) {
                Some(field) => (Type::Schema(field), true),
                None => (Type::Deduced, false),
            },
        }
    }

    fn are_same(self, left: &Map<String, Value>, right: &Map<String, Value>) -> bool {
        let same = |((name, l), (other, r)): ((&String, &Value), (&String, &Value))| {
            name == other && self.get(name).0.same(l, r)
        };
        left.len() == right.len() && left.iter().zip(right).all(same)
    }

    /// Returns true if a member `name` is allowed.
    pub(super) fn allows(self, name: &str) -> bool {
        match self {
            Self::Deduced | Self::Map(_) => true,
            Self::Object { fields, open } => open || fields.get(name).is_some(),
        }
    }
}

impl<'a> Items<'a> {
    /// Returns the path element of an item.
    ///
    /// # Errors
    /// Returns an error for a set member that is not a scalar, or an item without a key that has no
    /// default.
    pub(super) fn element(self, item: &Value) -> Result<PathElement, Malformed> {
        if self.keys.is_empty() {
            return member_of_set(item);
        }
        let Value::Object(item) = item else {
            return Err(Malformed(
                match item {
                    Value::Null => "associative list with keys may not have a null element",
                    _ => "associative list with keys may not have non-map elements",
                }
                .to_owned(),
            ));
        };
        let mut keys = Vec::with_capacity(self.keys.len());
        for key in self.keys {
            let Some(value) = item.get(&**key).or_else(|| self.default(key)) else {
                return Err(Malformed(format!(
                    "associative list with keys has an element that omits key field {key:?} (and \
                     doesn't have default value)"
                )));
            };
            keys.push((&**key, value));
        }
        keys.sort_unstable_by_key(|(name, _)| *name);
        Ok(PathElement::key(keys.into_iter()))
    }

    /// As [`Self::element`], for an item of a stored object, which may be null or lack a key. Kube-apiserver has the zero
    /// value there, because it has decoded the object to its Go type.
    pub(super) fn stored_element(self, item: &Value) -> Result<PathElement, Malformed> {
        let empty = Map::new();
        let item = match item {
            Value::Null if self.keys.is_empty() => return Ok(PathElement::value(&EMPTY_TEXT)),
            Value::Null => &empty,
            Value::Object(item) if !self.keys.is_empty() => item,
            _ => return self.element(item),
        };
        let value = |key: &str| {
            let value = item.get(key).or_else(|| self.default(key));
            value.unwrap_or_else(|| self.zero(key))
        };
        let keys = self.keys.iter().map(|key| (&**key, value(key)));
        let mut keys: Vec<(&str, &Value)> = keys.collect();
        keys.sort_unstable_by_key(|(name, _)| *name);
        Ok(PathElement::key(keys.into_iter()))
    }

    fn key_type(self, key: &str) -> Option<TypeRef<'a>> {
        let Type::Schema(item) = self.item else {
            return None;
        };
        match item.shape() {
            Shape::Object { fields, .. } => fields.get(key),
            _ => None,
        }
    }

    fn default(self, key: &str) -> Option<&'a Value> {
        self.key_type(key)?.default()
    }

    fn zero(self, key: &str) -> &'static Value {
        match self.key_type(key).map(TypeRef::shape) {
            Some(Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Number)) => &ZERO,
            _ => &EMPTY_TEXT,
        }
    }

    /// Indexes the items by path element.
    ///
    /// # Errors
    /// As [`Self::stored_element`].
    pub(super) fn index(self, items: &[Value]) -> Result<Index<'_>, Malformed> {
        let element = |(at, item)| {
            let element = self.stored_element(item);
            element.map_err(|Malformed(why)| Malformed(format!("element {at}: {why}")))
        };
        let order: Vec<PathElement> = items
            .iter()
            .enumerate()
            .map(element)
            .collect::<Result<_, _>>()?;
        let mut sorted: Vec<usize> = (0..items.len()).collect();
        sorted.sort_by(|a, b| order[*a].cmp(&order[*b]));
        Ok(Index {
            items: sorted.iter().map(|at| &items[*at]).collect(),
            order,
            sorted,
        })
    }
}

/// The items of a list by path element.
///
/// # Invariant
/// `items[i]` is the list item at position `sorted[i]`, whose element is `order[sorted[i]]`.
pub(super) struct Index<'v> {
    /// The elements of all items, including duplicates.
    pub(super) order: Vec<PathElement>,
    /// The positions of the items, sorted by element; duplicates in list order.
    sorted: Vec<usize>,
    /// The items, in the order of `sorted`.
    items: Vec<&'v Value>,
}

impl<'v> Index<'v> {
    /// Returns the items with this element; several are duplicates.
    pub(super) fn get(&self, element: &PathElement) -> &[&'v Value] {
        let begin = (self.sorted).partition_point(|at| self.order[*at] < *element);
        let rest = &self.sorted[begin..];
        let count = rest.partition_point(|at| self.order[*at] == *element);
        &self.items[begin..begin + count]
    }

    /// Returns the distinct elements, sorted.
    pub(super) fn distinct_elements(&self) -> impl Iterator<Item = &PathElement> {
        let duplicates = self
            .sorted
            .chunk_by(|a, b| self.order[*a] == self.order[*b]);
        duplicates.map(|equal| &self.order[equal[0]])
    }
}

fn member_of_set(item: &Value) -> Result<PathElement, Malformed> {
    let wrong = match item {
        Value::Object(_) => "associative list without keys has an element that's a map type",
        Value::Array(_) => "not supported: associative list with lists as elements",
        Value::Null => "associative list without keys has an element that's an explicit null",
        _ => return Ok(PathElement::value(item)),
    };
    Err(Malformed(wrong.to_owned()))
}

/// Returns the items of a list, or an empty slice.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the members of a non-empty object.
pub(super) fn members(value: Option<&Value>) -> Option<&Map<String, Value>> {
    let members = value.and_then(Value::as_object)?;
    (!members.is_empty()).then_some(members)
}

/// Returns the members of two objects by name, in order.
pub(super) fn zip<'v>(
    left: Option<&'v Map<String, Value>>,
    right: Option<&'v Map<String, Value>>,
    mut with: impl FnMut(&'v str, Option<&'v Value>, Option<&'v Value>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut left = left.into_iter().flatten().peekable();
    let mut right = right.into_iter().flatten().peekable();
    loop {
        let name = match (left.peek(), right.peek()) {
            (None, None) => return Ok(()),
            (Some((l, _)), Some((r, _))) => (*l).min(*r).as_str(),
            (Some((name, _)), None) | (None, Some((name, _))) => name.as_str(),
        };
        let l = left.next_if(|(l, _)| *l == name).map(|(_, value)| value);
        let r = right.next_if(|(r, _)| *r == name).map(|(_, value)| value);
        with(name, l, r)?;
    }
}

/// Returns true if two values without a type are equal; `1` equals `1.0`.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => l == r || canonical(l) == canonical(r),
        (Value::Array(l), Value::Array(r)) => {
            l.len() == r.len() && l.iter().zip(r).all(|(l, r)| same(l, r))
        }
        (Value::Object(l), Value::Object(r)) => {
            l.len() == r.len()
                && l.iter()
                    .zip(r)
                    .all(|((k, l), (other, r))| k == other && same(l, r))
        }
        _ => left == right,
    }
}

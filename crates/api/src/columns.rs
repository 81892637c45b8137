//! Field columns: the fields of a resource that a field selector may name, and their extraction
//! from JSON in one pass. The registry defines the columns of each resource.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// One selectable field besides `metadata.name` and `metadata.namespace`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldColumn {
    /// The name in a field selector: `spec.nodeName`. Empty for a field that only other versions of
    /// the resource select by.
    pub label: Box<str>,
    /// Another accepted name for it: `spec.host`.
    pub alias: Option<Box<str>>,
    /// The path of the value in the object's JSON. A string reads as itself, a number or a boolean
    /// as its text, anything else as `default`. An empty path matches nothing.
    pub path: Box<[Box<str>]>,
    /// The value if the object has none (usually empty; `false` for a boolean field).
    pub default: Box<str>,
    /// The label of the column that provides the value if this one is empty.
    pub fallback: Option<Box<str>>,
}

impl FieldColumn {
    /// Returns a column whose label is also its path, with an empty default.
    pub fn new(label: &str) -> Self {
        Self {
            label: label.into(),
            alias: None,
            path: label.split('.').map(Into::into).collect(),
            default: "".into(),
            fallback: None,
        }
    }
}

/// The field that a selector's label names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldRef {
    /// `metadata.name`
    Name,
    /// `metadata.namespace`
    Namespace,
    /// The column with this index in [`ColumnSet::fields`].
    Column(usize),
}

/// The resource has no selectable field with this label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field label not supported: {0}")]
pub struct UnknownField(pub String);

/// The selectable fields of one resource, in a fixed order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ColumnSet {
    fields: Box<[FieldColumn]>,
    tree: Node,
    /// Pairs of column indexes: if the first is empty it takes the value of the second.
    fallbacks: Box<[(usize, usize)]>,
    /// A few cluster-scoped resources do not support `metadata.namespace` in selectors.
    without_namespace: bool,
}

impl ColumnSet {
    /// Returns the set of these fields; their order fixes their indexes.
    pub fn new(fields: Vec<FieldColumn>) -> Self {
        let mut tree = Node::default();
        let mut fallbacks = Vec::new();
        for (index, field) in fields.iter().enumerate() {
            if !field.path.is_empty() {
                tree.insert(&field.path, index);
            }
            let source = |other: &FieldColumn| field.fallback.as_ref() == Some(&other.label);
            fallbacks.extend(fields.iter().position(source).map(|source| (index, source)));
        }
        Self {
            fields: fields.into(),
            tree,
            fallbacks: fallbacks.into(),
            without_namespace: false,
        }
    }

    /// Returns the set without `metadata.namespace`.
    #[must_use]
    pub fn without_namespace(mut self) -> Self {
        self.without_namespace = true;
        self
    }

    /// Returns the fields in index order.
    pub fn fields(&self) -> &[FieldColumn] {
        &self.fields
    }

    /// Returns the field that `label` names.
    ///
    /// # Errors
    /// [`UnknownField`] when the resource has no such selectable field.
    pub fn resolve(&self, label: &str) -> Result<FieldRef, UnknownField> {
        match label {
            "metadata.name" => Ok(FieldRef::Name),
            "metadata.namespace" if !self.without_namespace => Ok(FieldRef::Namespace),
            _ => self
                .fields
                .iter()
                .position(|f| {
                    !label.is_empty() && &*f.label == label || f.alias.as_deref() == Some(label)
                })
                .map(FieldRef::Column)
                .ok_or_else(|| UnknownField(label.to_owned())),
        }
    }

    /// Returns the default values; `member` replaces them while the object is read.
    pub(super) fn values(&self) -> Values<'_> {
        let defaults = self.fields.iter().map(|f| Cow::Borrowed(&*f.default));
        Values {
            set: self,
            texts: defaults.collect(),
        }
    }
}

/// The columns of one object while its JSON is read.
pub(super) struct Values<'a> {
    set: &'a ColumnSet,
    texts: Vec<Cow<'a, str>>,
}

impl<'a> Values<'a> {
    /// Returns the visitor for the object's member `name` if it contains a column.
    pub(super) fn member(&mut self, name: &str) -> Option<Extract<'a, '_>> {
        Some(Extract {
            node: self.set.tree.child(name)?,
            values: &mut self.texts,
        })
    }

    /// Returns the values by column index.
    pub(super) fn finish(mut self) -> Vec<Cow<'a, str>> {
        for (empty, source) in &self.set.fallbacks {
            if self.texts[*empty].is_empty() {
                self.texts[*empty] = self.texts[*source].clone();
            }
        }
        self.texts
    }
}

/// A tree of the columns' paths.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Node {
    column: Option<usize>,
    children: Vec<(Box<str>, Node)>,
}

impl Node {
    fn insert(&mut self, path: &[Box<str>], column: usize) {
        let Some((first, rest)) = path.split_first() else {
            self.column = Some(column);
            return;
        };
        let at = match self.children.iter().position(|(name, _)| name == first) {
            Some(at) => at,
            None => {
                self.children.push((first.clone(), Node::default()));
                self.children.len() - 1
            }
        };
        self.children[at].1.insert(rest, column);
    }

    fn child(&self, name: &str) -> Option<&Node> {
        self.children
            .iter()
            .find(|(child, _)| &**child == name)
            .map(|(_, node)| node)
    }
}

/// Visits one JSON value together with its node of the path tree and stores column values.
pub(super) struct Extract<'a, 'v> {
    node: &'a Node,
    values: &'v mut Vec<Cow<'a, str>>,
}

impl<'a> Extract<'a, '_> {
    fn set(self, text: impl Into<Cow<'a, str>>) {
        if let Some(column) = self.node.column {
            self.values[column] = text.into();
        }
    }
}

impl<'a> DeserializeSeed<'a> for Extract<'a, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Extract<'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(FindChild(self.node))? {
            match child {
                Some(node) => map.next_value_seed(Extract {
                    node,
                    values: &mut *self.values,
                })?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<(), E> {
        self.set(text);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.set(text.to_owned());
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.set(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.set(value.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.set(value.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.set(value.to_string());
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Deserializes a member name and finds its node without allocating the name.
struct FindChild<'a>(&'a Node);

impl<'de, 'a> DeserializeSeed<'de> for FindChild<'a> {
    type Value = Option<&'a Node>;

    fn deserialize<D: serde::Deserializer<'de>>(self, de: D) -> Result<Self::Value, D::Error> {
        de.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for FindChild<'a> {
    type Value = Option<&'a Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.child(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_aliases_name_columns() {
        let mut node = FieldColumn::new("spec.nodeName");
        node.alias = Some("spec.host".into());
        let set = ColumnSet::new(vec![node, FieldColumn::new("status.replicas")]);
        assert_eq!(set.resolve("spec.host"), Ok(FieldRef::Column(0)));
        assert_eq!(set.resolve("metadata.name"), Ok(FieldRef::Name));
        assert_eq!(set.resolve("spec.x"), Err(UnknownField("spec.x".into())));
        assert_eq!(set.resolve("metadata.namespace"), Ok(FieldRef::Namespace));
        assert!(
            set.without_namespace()
                .resolve("metadata.namespace")
                .is_err()
        );
    }
}

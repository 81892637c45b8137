//! `SelectionPredicate`: the selectors of a list or watch (namespace, name, labels, fields, shard),
//! resolved for one resource. It implements `Hash` because the dispatcher evaluates equal
//! predicates once.

use super::{
    ColumnSet, FieldOperator, FieldRef, FieldSelector, LabelSelector, Object, ObjectKey,
    ShardSelector, UnknownField,
};

/// The namespace and name that a request is restricted to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Only objects in this namespace.
    pub namespace: Option<Box<str>>,
    /// True if the namespace is part of the URL, not of a selector.
    pub in_namespace: bool,
    /// Only the object with this name.
    pub name: Option<Box<str>>,
}

/// A field selector whose labels are resolved for a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ResolvedFieldSelector {
    terms: Vec<(FieldRef, FieldOperator, Box<str>)>,
}

impl ResolvedFieldSelector {
    /// Resolves every term's label in `columns`.
    ///
    /// # Errors
    /// Returns [`UnknownField`] for the first label that the resource does not support.
    pub fn resolve(selector: &FieldSelector, columns: &ColumnSet) -> Result<Self, UnknownField> {
        let resolve =
            |t: &super::FieldTerm| Ok((columns.resolve(&t.field)?, t.operator, t.value.clone()));
        Ok(Self {
            terms: selector
                .terms
                .iter()
                .map(resolve)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Returns true if the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns true if a term uses a column, not only name or namespace.
    pub fn has_columns(&self) -> bool {
        self.terms.iter().any(|(field, ..)| is_column(*field))
    }

    /// Returns the selector with only its name and namespace terms.
    #[must_use]
    pub fn without_columns(&self) -> Self {
        let terms = self.terms.iter().filter(|(field, ..)| !is_column(*field));
        Self {
            terms: terms.cloned().collect(),
        }
    }

    /// Returns the value that the selector requires of `field` with `=`, if any.
    pub fn exact(&self, field: FieldRef) -> Option<&str> {
        let pins = |(f, op, _): &&(FieldRef, FieldOperator, Box<str>)| {
            *f == field && *op == FieldOperator::Equals
        };
        self.terms.iter().find(pins).map(|(_, _, value)| &**value)
    }

    fn matches(&self, object: &Object) -> bool {
        self.terms.iter().all(|(field, operator, value)| {
            let equal = object.field(*field) == &**value;
            equal == (*operator == FieldOperator::Equals)
        })
    }
}

fn is_column(field: FieldRef) -> bool {
    matches!(field, FieldRef::Column(_))
}

/// The selection of a list, watch or deletecollection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SelectionPredicate {
    /// From the URL, or from exact `metadata.name` and `metadata.namespace` terms.
    pub scope: Scope,
    /// `labelSelector`
    pub labels: LabelSelector,
    /// `fieldSelector`
    pub fields: ResolvedFieldSelector,
    /// `shardSelector`
    pub shard: Option<ShardSelector>,
}

impl SelectionPredicate {
    /// Returns the predicate of a request for `namespace` with these selectors. Exact
    /// `metadata.name` and `metadata.namespace` terms narrow the scope, so that they cost a lookup
    /// instead of a scan.
    pub fn new(
        namespace: Option<&str>,
        labels: LabelSelector,
        fields: ResolvedFieldSelector,
    ) -> Self {
        let from_url = namespace.filter(|n| !n.is_empty());
        let selected = || fields.exact(FieldRef::Namespace).filter(|n| !n.is_empty());
        let scope = Scope {
            namespace: from_url.or_else(selected).map(Into::into),
            in_namespace: from_url.is_some(),
            name: fields.exact(FieldRef::Name).map(Into::into),
        };
        Self {
            scope,
            labels,
            fields,
            shard: None,
        }
    }

    /// Restricts the predicate to a shard, if one is given.
    #[must_use]
    pub fn sharded(self, shard: Option<ShardSelector>) -> Self {
        Self { shard, ..self }
    }

    /// Returns true if the predicate selects `object`.
    pub fn matches(&self, object: &Object) -> bool {
        self.matches_ignoring_shard(object)
            && self
                .shard
                .as_ref()
                .is_none_or(|shard| shard.matches(object))
    }

    /// Returns true if the predicate without its shard selector selects `object`.
    pub fn matches_ignoring_shard(&self, object: &Object) -> bool {
        self.scope.covers(object.key())
            && self.fields.matches(object)
            && object.is_selected_by(&self.labels)
    }

    /// Returns true if there are no label, field or shard selectors (a namespace is allowed), so
    /// that the number of remaining objects is known.
    pub fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.shard.is_none()
    }
}

impl Scope {
    /// Returns true if `key` is in the predicate's scope.
    pub fn covers(&self, key: &ObjectKey) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|n| n == key.namespace())
            && self.name.as_deref().is_none_or(|n| n == key.name())
    }

    /// Returns the common prefix of all keys in scope; empty if there is none.
    pub fn key_prefix(&self) -> String {
        self.namespace
            .as_deref()
            .map(|n| format!("{n}/"))
            .unwrap_or_default()
    }

    /// Returns the prefix of the listed collection, which continue tokens are relative to: its
    /// namespace, or empty.
    pub fn list_prefix(&self) -> String {
        if self.in_namespace {
            self.key_prefix()
        } else {
            String::new()
        }
    }
}

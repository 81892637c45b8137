//! `SelectionPredicate`: everything that narrows a list or a watch (namespace, name, labels,
//! fields, shard), resolved against one resource, and its verdict on an object. Watches with equal
//! predicates share a verdict in the dispatcher, so it is a value that hashes.

use super::{
    ColumnSet, FieldOperator, FieldRef, FieldSelector, LabelSelector, Object, ObjectKey,
    ShardSelector, UnknownField,
};

/// Which part of a resource is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Only this namespace.
    pub namespace: Option<Box<str>>,
    /// Whether the namespace is the collection's, from the URL, and not a selector's.
    pub in_namespace: bool,
    /// Only objects of this name.
    pub name: Option<Box<str>>,
}

/// A field selector whose labels are known to be the resource's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ResolvedFieldSelector {
    terms: Vec<(FieldRef, FieldOperator, Box<str>)>,
}

impl ResolvedFieldSelector {
    /// Checks every term's label against `columns`.
    ///
    /// # Errors
    /// [`UnknownField`] for the first label that the resource does not select by.
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

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether it looks at anything but names.
    pub fn has_columns(&self) -> bool {
        self.terms.iter().any(|(field, ..)| is_column(*field))
    }

    /// The same as far as it looks at names.
    pub fn without_columns(&self) -> Self {
        let terms = self.terms.iter().filter(|(field, ..)| !is_column(*field));
        Self {
            terms: terms.cloned().collect(),
        }
    }

    /// The value that it pins `field` to, if it does.
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

/// What a list, watch or collection delete is narrowed to.
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
    /// The predicate of a request for `namespace` with these selectors. Exact name and namespace
    /// terms narrow the scope, so that they cost a look-up and not a scan.
    pub fn new(
        namespace: Option<&str>,
        labels: LabelSelector,
        fields: ResolvedFieldSelector,
    ) -> Self {
        let of_collection = namespace.filter(|n| !n.is_empty());
        let selected = || fields.exact(FieldRef::Namespace).filter(|n| !n.is_empty());
        let scope = Scope {
            namespace: of_collection.or_else(selected).map(Into::into),
            in_namespace: of_collection.is_some(),
            name: fields.exact(FieldRef::Name).map(Into::into),
        };
        Self {
            scope,
            labels,
            fields,
            shard: None,
        }
    }

    /// The same, of one shard alone if one is given.
    pub fn sharded(self, shard: Option<ShardSelector>) -> Self {
        Self { shard, ..self }
    }

    /// Whether `object` is selected.
    pub fn matches(&self, object: &Object) -> bool {
        self.matches_but_for_shard(object)
            && self
                .shard
                .as_ref()
                .is_none_or(|shard| shard.matches(object))
    }

    /// Whether `object` is selected or would be, were it of the shard.
    pub fn matches_but_for_shard(&self, object: &Object) -> bool {
        self.scope.covers(object.key())
            && self.fields.matches(object)
            && object.is_selected_by(&self.labels)
    }

    /// Whether neither labels nor fields nor a shard narrow it (a namespace may): then totals are known.
    pub fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.shard.is_none()
    }
}

impl Scope {
    /// Whether an object of this key lies inside.
    pub fn covers(&self, key: &ObjectKey) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|n| n == key.namespace())
            && self.name.as_deref().is_none_or(|n| n == key.name())
    }

    /// The prefix that the keys inside share; empty when they share none.
    pub fn key_prefix(&self) -> String {
        self.namespace
            .as_deref()
            .map(|n| format!("{n}/"))
            .unwrap_or_default()
    }

    /// The prefix of the collection that is listed, which the starts of its continue tokens are
    /// relative to: that of its namespace, or empty.
    pub fn list_prefix(&self) -> String {
        if self.in_namespace {
            self.key_prefix()
        } else {
            String::new()
        }
    }
}

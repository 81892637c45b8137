//! An arena of types and the views of it. How it is filled is told by `builtins` and `custom`; that the
//! same types are messages of protobuf shows in their fields' numbers, and nowhere else here.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

/// Types that refer to each other, in one piece: all built-ins, or one version of a custom resource.
/// Immutable once made; share it in an `Arc`.
#[derive(Debug, Default)]
pub struct Types {
    pub(super) nodes: Vec<Node>,
    pub(super) objects: Vec<ObjectType>,
    pub(super) rules: Vec<Rule>,
    pub(super) keys: Vec<Box<[Box<str>]>>,
    pub(super) defaults: Vec<Value>,
    /// Built-in messages by name: `core.v1.Pod`.
    pub(super) by_name: HashMap<Cow<'static, str>, ObjectId>,
    /// The one type that a custom resource's version is.
    pub(super) root: Option<NodeId>,
}

/// The place of a node in its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(super) u32);

/// The place of an object type in its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId(pub(super) u32);

/// One type as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Any,
    /// JSON inside of a message.
    Raw,
    /// A message of which JSON shows the one member that is given.
    Union(ObjectId),
    Scalar(Scalar),
    List {
        item: NodeId,
        kind: ListRule,
        /// In protobuf it is a message of its own around its items.
        wrapped: bool,
    },
    Map {
        value: NodeId,
        atomic: bool,
    },
    Object {
        object: ObjectId,
        atomic: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ListRule {
    Atomic,
    Set,
    /// By the keys at this place.
    Map(u32),
}

/// The members of an object.
#[derive(Debug)]
pub(super) struct ObjectType {
    pub(super) name: Cow<'static, str>,
    pub(super) fields: Box<[Field]>,
    pub(super) open: bool,
    pub(super) atomic: bool,
}

/// A member of an object.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(super) name: Cow<'static, str>,
    pub(super) node: NodeId,
    /// In protobuf; 0 is in no message.
    pub(super) number: u32,
    /// Its members are the outer object's own in JSON.
    pub(super) inline: bool,
    /// The empty value means that it is not given (Go's `omitempty` of a field that is no pointer).
    pub(super) drop_empty: bool,
    pub(super) rule: Option<u32>,
    pub(super) default: Option<u32>,
}

/// A merge rule as it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) merge: bool,
    pub(super) key: Option<Box<str>>,
    pub(super) retain_keys: bool,
    pub(super) replace: bool,
}

/// What a value without parts may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// Any string.
    String,
    /// `true` or `false`
    Bool,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// Any number.
    Number,
    /// A string of base64.
    Bytes,
    /// A string: a time in seconds.
    Time,
    /// A string: a time in microseconds.
    MicroTime,
    /// A string, or a number that is as good as one: `100m`.
    Quantity,
    /// An integer or a string: `25%`.
    IntOrString,
}

/// A type in its arena.
#[derive(Debug, Clone, Copy)]
pub struct TypeRef<'a> {
    types: &'a Types,
    node: NodeId,
    /// Whose type it is, when it is a member's.
    field: Option<&'a Field>,
}

/// What a type is.
#[derive(Debug, Clone, Copy)]
pub enum Shape<'a> {
    /// Untyped: what it is shows in the value.
    Any,
    /// A value without parts.
    Scalar(Scalar),
    /// A list.
    List {
        /// Of this.
        item: TypeRef<'a>,
        /// What its items are to managers of fields.
        kind: ListKind<'a>,
    },
    /// A map from strings.
    Map {
        /// To this.
        value: TypeRef<'a>,
        /// Whether it has one manager as a whole.
        atomic: bool,
    },
    /// An object with known members.
    Object {
        /// Those.
        fields: Fields<'a>,
        /// Whether it has one manager as a whole.
        atomic: bool,
        /// Whether members that are not known are kept.
        open: bool,
    },
}

/// What the items of a list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind<'a> {
    /// Parts of one value.
    Atomic,
    /// Values that are there or not.
    Set,
    /// Objects told apart by these members.
    Map(&'a [Box<str>]),
}

/// How a strategic merge patch treats a member. Without any rule a list is replaced and an object is
/// merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeRule<'a> {
    /// A list is merged: by the key, or as a set.
    pub merge: bool,
    /// What tells its items apart.
    pub key: Option<&'a str>,
    /// Clients send `$retainKeys` with it.
    pub retain_keys: bool,
    /// An object is replaced.
    pub replace: bool,
}

/// The members of an object type.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    types: &'a Types,
    object: &'a ObjectType,
}

impl Types {
    /// The type of a built-in kind's objects; `None` for a kind that is not built in.
    pub fn root(&self, api_version: &str, kind: &str) -> Option<TypeRef<'_>> {
        self.root_node(api_version, kind)
            .map(|node| self.view(node))
    }

    /// A built-in type by the name of its message, which must exist.
    pub(super) fn message_node(&self, name: &str) -> NodeId {
        NodeId(self.by_name[name].0)
    }

    /// A built-in type by the name of its message.
    pub(super) fn message(&self, name: &str) -> Option<TypeRef<'_>> {
        let object = self.by_name.get(name)?;
        Some(self.view(NodeId(object.0)))
    }

    pub(super) fn root_node(&self, api_version: &str, kind: &str) -> Option<NodeId> {
        let object = self.object_of(api_version, kind)?;
        Some(NodeId(object.0))
    }

    /// The type of a custom resource's objects.
    ///
    /// # Panics
    /// When these are the built-in types, which have many roots.
    pub fn only_root(&self) -> TypeRef<'_> {
        self.view(self.only_root_node())
    }

    pub(super) fn only_root_node(&self) -> NodeId {
        self.root.expect("the types of one custom resource")
    }

    pub(super) fn view(&self, node: NodeId) -> TypeRef<'_> {
        let types = self;
        TypeRef {
            types,
            node,
            field: None,
        }
    }

    pub(crate) fn node(&self, id: NodeId) -> Node {
        self.nodes[id.0 as usize]
    }

    pub(crate) fn object_name(&self, id: ObjectId) -> &str {
        &self.objects[id.0 as usize].name
    }

    pub(crate) fn object_fields(&self, id: ObjectId) -> &[Field] {
        &self.objects[id.0 as usize].fields
    }
}

impl Field {
    /// As in JSON.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Its number in protobuf; `None` when it is in the envelope or nowhere.
    pub(crate) fn number(&self) -> Option<u32> {
        (self.number != 0).then_some(self.number)
    }

    /// Whether its members are the outer object's own in JSON.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline
    }

    /// Whether the empty value means that it is not given.
    pub(crate) fn drops_empty(&self) -> bool {
        self.drop_empty
    }
}

impl<'a> TypeRef<'a> {
    /// What it is.
    pub fn shape(self) -> Shape<'a> {
        let types = self.types;
        match types.node(self.node) {
            Node::Any | Node::Raw | Node::Union(_) => Shape::Any,
            Node::Scalar(scalar) => Shape::Scalar(scalar),
            Node::List { item, kind, .. } => Shape::List {
                item: types.view(item),
                kind: match kind {
                    ListRule::Atomic => ListKind::Atomic,
                    ListRule::Set => ListKind::Set,
                    ListRule::Map(keys) => ListKind::Map(&types.keys[keys as usize]),
                },
            },
            Node::Map { value, atomic } => Shape::Map {
                value: types.view(value),
                atomic,
            },
            Node::Object { object, atomic } => {
                let object = &types.objects[object.0 as usize];
                Shape::Object {
                    fields: Fields { types, object },
                    atomic: atomic || object.atomic,
                    open: object.open,
                }
            }
        }
    }

    /// How a strategic merge patch treats it, when it is a member's type.
    pub fn merge_rule(self) -> MergeRule<'a> {
        let rule = self.field.and_then(|field| field.rule);
        let Some(rule) = rule.map(|at| &self.types.rules[at as usize]) else {
            return MergeRule::default();
        };
        MergeRule {
            merge: rule.merge,
            key: rule.key.as_deref(),
            retain_keys: rule.retain_keys,
            replace: rule.replace,
        }
    }

    /// Returns true if `value` is what a Go client leaves out of this member when it encodes it.
    pub fn is_omitted(self, value: &Value) -> bool {
        let is_empty = || match value {
            Value::Null => true,
            Value::Bool(flag) => !flag,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
        };
        self.field.is_some_and(|field| field.drop_empty) && is_empty()
    }

    /// The value of a member that is not given, where the schema names one. Most built-ins' defaults are
    /// not in their schema: these are the ones that count when items of lists are told apart.
    pub fn default(self) -> Option<&'a Value> {
        let default = self.field.and_then(|field| field.default)?;
        self.types.defaults.get(default as usize)
    }
}

impl<'a> Fields<'a> {
    /// The type's name, `core.v1.PodSpec`; empty for those of custom resources.
    pub fn type_name(self) -> &'a str {
        &self.object.name
    }

    /// The type of the member of this name.
    pub fn get(self, name: &str) -> Option<TypeRef<'a>> {
        self.object.fields.iter().find_map(|field| {
            if field.inline {
                return self.inner(field).and_then(|inner| inner.get(name));
            }
            (field.name == name).then(|| self.member(field))
        })
    }

    /// The members by name, in no order that means anything.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, TypeRef<'a>)> {
        let mut found = Vec::with_capacity(self.object.fields.len());
        self.collect(&mut found);
        found.into_iter()
    }

    fn collect(self, found: &mut Vec<(&'a str, TypeRef<'a>)>) {
        for field in &self.object.fields {
            match self.inner(field).filter(|_| field.inline) {
                Some(inner) => inner.collect(found),
                None => found.push((&field.name, self.member(field))),
            }
        }
    }

    fn member(self, field: &'a Field) -> TypeRef<'a> {
        TypeRef {
            types: self.types,
            node: field.node,
            field: Some(field),
        }
    }

    /// The members of a field that is an object.
    fn inner(self, field: &Field) -> Option<Fields<'a>> {
        match self.types.node(field.node) {
            Node::Object { object, .. } => Some(Fields {
                types: self.types,
                object: &self.types.objects[object.0 as usize],
            }),
            _ => None,
        }
    }
}

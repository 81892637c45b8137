//! An arena of types and views of it. `builtins` and `custom` fill it; protobuf encoding uses the
//! field numbers.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

/// Types that refer to each other: all built-ins, or one version of a custom resource. Immutable;
/// share it in an `Arc`.
#[derive(Debug, Default)]
pub struct Types {
    pub(super) nodes: Vec<Node>,
    pub(super) objects: Vec<ObjectType>,
    pub(super) rules: Vec<Rule>,
    pub(super) keys: Vec<Box<[Box<str>]>>,
    pub(super) defaults: Vec<Value>,
    /// Built-in messages by name: `core.v1.Pod`.
    pub(super) by_name: HashMap<Cow<'static, str>, ObjectId>,
    /// The root type of a custom resource version.
    pub(super) root: Option<NodeId>,
}

/// The index of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId(pub(super) u32);

/// The index of an object type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectId(pub(super) u32);

impl ObjectId {
    /// Returns the position among [`Types::objects`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A stored type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Node {
    /// Any JSON value.
    Any,
    /// JSON embedded in a protobuf message.
    Raw,
    /// A message whose JSON is the one member that is set.
    Union(ObjectId),
    /// A string, a number or a boolean.
    Scalar(Scalar),
    /// A list.
    List {
        /// The type of its items.
        item: NodeId,
        /// What identifies an item.
        kind: ListRule,
        /// In protobuf a message that wraps the items.
        wrapped: bool,
    },
    /// A map with string keys.
    Map {
        /// The type of its values.
        value: NodeId,
        /// Whether it is owned and replaced as a whole.
        atomic: bool,
    },
    /// An object with named members.
    Object {
        /// Its type.
        object: ObjectId,
        /// Whether it is owned and replaced as a whole.
        atomic: bool,
    },
}

/// What identifies the items of a list (KEP-555).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListRule {
    /// Nothing: the list is replaced as a whole.
    Atomic,
    /// Its value.
    Set,
    /// With the keys at this index.
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
pub struct Field {
    pub(super) name: Cow<'static, str>,
    pub(super) node: NodeId,
    /// The protobuf field number; 0 if it has none.
    pub(super) number: u32,
    /// True if its members belong to the outer object in JSON.
    pub(super) inline: bool,
    /// True if Go stores a pointer, so that the member can be absent.
    pub(super) pointer: bool,
    /// True if the empty value means unset (Go's `omitempty` of a field that is not a pointer).
    pub(super) drop_empty: bool,
    pub(super) rule: Option<u32>,
    pub(super) default: Option<u32>,
}

/// A stored merge rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) merge: bool,
    pub(super) key: Option<Box<str>>,
    pub(super) retain_keys: bool,
    pub(super) replace: bool,
}

/// The type of a value without parts.
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
    /// A base64 string.
    Bytes,
    /// A string with a time in seconds.
    Time,
    /// A string with a time in microseconds.
    MicroTime,
    /// A quantity such as `100m`: a string or a number.
    Quantity,
    /// An integer or a string such as `25%`.
    IntOrString,
}

/// A view of a type.
#[derive(Debug, Clone, Copy)]
pub struct TypeRef<'a> {
    types: &'a Types,
    node: NodeId,
    /// The member that has this type, if any.
    field: Option<&'a Field>,
}

/// The structure of a type.
#[derive(Debug, Clone, Copy)]
pub enum Shape<'a> {
    /// Untyped.
    Any,
    /// A value without parts.
    Scalar(Scalar),
    /// A list.
    List {
        /// The item type.
        item: TypeRef<'a>,
        /// The list type in field management.
        kind: ListKind<'a>,
    },
    /// A map with string keys.
    Map {
        /// The value type.
        value: TypeRef<'a>,
        /// True if the map has one manager as a whole.
        atomic: bool,
    },
    /// An object with known members.
    Object {
        /// The members.
        fields: Fields<'a>,
        /// True if the object has one manager as a whole.
        atomic: bool,
        /// True if unknown members are preserved.
        open: bool,
    },
}

/// The list type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind<'a> {
    /// The list has one manager as a whole.
    Atomic,
    /// A set of scalars.
    Set,
    /// Objects identified by these members.
    Map(&'a [Box<str>]),
}

/// How a strategic merge patch treats a member. Without a rule, lists are replaced and objects are
/// merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeRule<'a> {
    /// The list is merged by key or as a set.
    pub merge: bool,
    /// The key that identifies items.
    pub key: Option<&'a str>,
    /// Clients send `$retainKeys`.
    pub retain_keys: bool,
    /// The object is replaced.
    pub replace: bool,
}

/// The members of an object type.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    types: &'a Types,
    object: &'a ObjectType,
}

impl Types {
    /// Returns the type of a built-in kind's objects; `None` for other kinds.
    pub fn root(&self, api_version: &str, kind: &str) -> Option<TypeRef<'_>> {
        self.root_node(api_version, kind)
            .map(|node| self.view(node))
    }

    /// Returns a built-in type by message name, which must exist.
    pub(super) fn message_node(&self, name: &str) -> NodeId {
        NodeId(self.by_name[name].0)
    }

    /// Returns a built-in type by message name.
    pub(super) fn message(&self, name: &str) -> Option<TypeRef<'_>> {
        let object = self.by_name.get(name)?;
        Some(self.view(NodeId(object.0)))
    }

    pub(super) fn root_node(&self, api_version: &str, kind: &str) -> Option<NodeId> {
        let object = self.object_of(api_version, kind)?;
        Some(NodeId(object.0))
    }

    /// Returns the type of a custom resource's objects.
    ///
    /// # Panics
    /// Panics for built-in types, which have several roots.
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

    /// Returns the type with this index.
    pub fn node(&self, id: NodeId) -> Node {
        self.nodes[id.0 as usize]
    }

    /// Returns all object types, in the order of their indexes.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + use<> {
        (0..self.objects.len() as u32).map(ObjectId)
    }

    /// Returns the name of an object type, as in OpenAPI.
    pub fn object_name(&self, id: ObjectId) -> &str {
        &self.objects[id.0 as usize].name
    }

    /// Returns the members of an object type.
    pub fn object_fields(&self, id: ObjectId) -> &[Field] {
        &self.objects[id.0 as usize].fields
    }
}

impl Field {
    /// Returns the JSON name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the protobuf field number; `None` if it has none.
    pub fn number(&self) -> Option<u32> {
        (self.number != 0).then_some(self.number)
    }

    /// Returns true if its members belong to the outer object in JSON.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// Returns true if the member is a pointer in Go: generated code encodes other scalars and messages in protobuf
    /// also if they have the zero value.
    pub fn is_pointer(&self) -> bool {
        self.pointer
    }

    /// Returns true if the empty value means unset.
    pub fn drops_empty(&self) -> bool {
        self.drop_empty
    }
}

impl<'a> TypeRef<'a> {
    /// Returns the structure of the type.
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

    /// Returns the merge rule of a member's type.
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

    /// Returns true if a Go client omits `value` of this member when it encodes it.
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

    /// Returns the default of a member that the schema contains. Most defaults of built-ins are not
    /// in their schema; these matter for the keys of list items.
    pub fn default(self) -> Option<&'a Value> {
        let default = self.field.and_then(|field| field.default)?;
        self.types.defaults.get(default as usize)
    }
}

impl<'a> Fields<'a> {
    /// Returns the type's name, `core.v1.PodSpec`; empty for custom resources.
    pub fn type_name(self) -> &'a str {
        &self.object.name
    }

    /// Returns the type of a member.
    pub fn get(self, name: &str) -> Option<TypeRef<'a>> {
        self.object.fields.iter().find_map(|field| {
            if field.inline {
                return self.inner(field).and_then(|inner| inner.get(name));
            }
            (field.name == name).then(|| self.member(field))
        })
    }

    /// Returns the members by name, in unspecified order.
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

    /// Returns the members of a field that is an object.
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

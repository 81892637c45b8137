//! The plan of the encoder: the messages of the built-in types with everything that encoding looks up, computed once
//! per server from the tables of `schema`.

mod names;

use watchet_schema::{Field, Node, ObjectId, Scalar, Types};

use crate::write::{FIXED64, bytes, key, varint_field};
use names::Names;

/// The encodings of all messages.
#[derive(Debug)]
pub(super) struct Plan {
    messages: Vec<MessagePlan>,
}

/// The encoding of a message.
#[derive(Debug)]
pub(super) struct MessagePlan {
    /// The fields in the order of their numbers, which is that of Go's generated code. The position of a field is its
    /// *slot*.
    pub(super) fields: Box<[FieldPlan]>,
    /// The slots of the JSON members; those of an inlined field lead to the field.
    names: Names,
}

/// The encoding of a field.
#[derive(Debug)]
pub(super) struct FieldPlan {
    pub(super) number: u32,
    pub(super) shape: Shape,
    /// True if its members are part of the outer object in JSON.
    pub(super) inline: bool,
    /// What is encoded if JSON has no value: nothing for pointers, lists and maps, else the zero value.
    pub(super) absent: Box<[u8]>,
    /// The JSON name.
    pub(super) name: Box<str>,
}

/// How often a field occurs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// At most once.
    One(Value),
    /// Once for each item of a list.
    Repeated(Value),
    /// Once for each entry of a map, a message of the key (1) and the value (2).
    Map(Value),
}

/// The encoding of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    /// Base64 in JSON.
    Bytes,
    /// Without fractions of seconds.
    Time,
    /// In microseconds.
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON inside a message.
    Raw,
    /// A message of strings, a list in JSON.
    StringList,
    Message(ObjectId),
    /// A message whose JSON is the one member that is set.
    Union(ObjectId),
}

impl Plan {
    /// Compiles the plan of these types.
    ///
    /// # Panics
    /// Panics if a field has a type that no built-in type has, or if the names of a message cannot be hashed; a test
    /// compiles the built-in types.
    pub(super) fn new(types: &Types) -> Self {
        let messages = types.objects().map(|message| {
            let mut numbered: Vec<&Field> = types.object_fields(message).iter().collect();
            numbered.retain(|field| field.number().is_some());
            numbered.sort_by_key(|field| field.number());
            let mut names = Vec::new();
            for (slot, field) in numbered.iter().enumerate() {
                json_names(types, field, &mut |name| {
                    names.push((name.to_owned(), slot))
                });
            }
            MessagePlan {
                fields: numbered
                    .iter()
                    .map(|field| FieldPlan::new(types, field))
                    .collect(),
                names: Names::new(names),
            }
        });
        let messages = messages.collect();
        Self { messages }
    }

    /// Returns the encoding of a message.
    pub(super) fn message(&self, message: ObjectId) -> &MessagePlan {
        &self.messages[message.index()]
    }
}

impl MessagePlan {
    /// Returns the slot of a JSON member; `None` if the message does not have it.
    pub(super) fn slot(&self, name: &str) -> Option<usize> {
        self.names.find(name)
    }
}

impl FieldPlan {
    fn new(types: &Types, field: &Field) -> Self {
        let number = field.number().unwrap_or_default();
        let shape = match types.node(field.node()) {
            Node::List {
                item,
                wrapped: false,
                ..
            } => Shape::Repeated(Value::new(types.node(item))),
            Node::Map { value, .. } => Shape::Map(Value::new(types.node(value))),
            node => Shape::One(Value::new(node)),
        };
        let mut absent = Vec::new();
        if let Shape::One(value) = shape
            && !field.is_pointer()
        {
            value.write_zero_field(types, number, &mut absent);
        }
        Self {
            number,
            shape,
            inline: field.is_inline(),
            absent: absent.into(),
            name: field.name().into(),
        }
    }
}

impl Value {
    fn new(node: Node) -> Self {
        match node {
            Node::Scalar(scalar) => match scalar {
                Scalar::String => Self::String,
                Scalar::Bool => Self::Bool,
                Scalar::Int32 => Self::Int32,
                Scalar::Int64 => Self::Int64,
                Scalar::Number => Self::Double,
                Scalar::Bytes => Self::Bytes,
                Scalar::Time => Self::Time,
                Scalar::MicroTime => Self::MicroTime,
                Scalar::Quantity => Self::Quantity,
                Scalar::IntOrString => Self::IntOrString,
            },
            Node::Raw => Self::Raw,
            Node::List { wrapped: true, .. } => Self::StringList,
            Node::Object { object, .. } => Self::Message(object),
            Node::Union(object) => Self::Union(object),
            Node::Any | Node::List { .. } | Node::Map { .. } => {
                unreachable!("no built-in type has {node:?} as the value of a field")
            }
        }
    }

    /// Appends the zero value as the field `number`.
    fn write_zero_field(self, types: &Types, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Bool | Self::Int32 | Self::Int64 => varint_field(number, 0, out),
            Self::Double => {
                key(number, FIXED64, out);
                out.extend_from_slice(&[0; 8]);
            }
            // A nil slice.
            Self::Bytes => {}
            _ => {
                let mut content = Vec::new();
                self.write_zero_content(types, &mut content);
                bytes(number, &content, out);
            }
        }
    }

    /// Appends the content of the zero value of anything but a number.
    fn write_zero_content(self, types: &Types, out: &mut Vec<u8>) {
        match self {
            Self::Message(message) | Self::Union(message) => {
                let mut fields: Vec<&Field> = types.object_fields(message).iter().collect();
                fields.sort_by_key(|field| field.number());
                for field in fields.into_iter().filter(|field| field.number().is_some()) {
                    out.extend_from_slice(&FieldPlan::new(types, field).absent);
                }
            }
            _ => self.write_zero_text(out),
        }
    }

    /// Appends the content of the zero value of anything but a number or a message of several fields.
    pub(super) fn write_zero_text(self, out: &mut Vec<u8>) {
        match self {
            Self::Quantity => bytes(1, b"0", out),
            Self::IntOrString => {
                varint_field(1, 0, out);
                varint_field(2, 0, out);
                bytes(3, b"", out);
            }
            _ => {}
        }
    }
}

/// Calls `add` with the names under which the value of a field is in JSON.
fn json_names(types: &Types, field: &Field, add: &mut impl FnMut(&str)) {
    match types.node(field.node()) {
        Node::Object { object, .. } if field.is_inline() => {
            for inner in types.object_fields(object) {
                json_names(types, inner, add);
            }
        }
        _ => add(field.name()),
    }
}

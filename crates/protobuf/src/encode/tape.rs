//! The tape: an object between its two encodings. [`read`](super::transcode) fills it from JSON in one pass, in the order
//! of the JSON; then all lengths are known, and the message is written once, front to back, in the order of its field
//! numbers.
//!
//! # Definitions
//!
//! - *Node*: a value with the length of its content. Texts are not copied: a node has their position in the JSON, or in
//!   `aside` if their encoding differs from the JSON.
//! - *Slots*: a message has one for each field of its type. A slot has the index of the field's node, of the first node
//!   of a list or map, or 0 if JSON does not have the member.
//!
//! # Invariants
//!
//! - The length of a message includes the zero values of absent fields, which Go's generated code encodes too.
//! - A node refers only to nodes and slots of its own tape; node 0 is not used.

use watchet_schema::ObjectId;

use crate::plan::{FieldPlan, Plan, Shape};
use crate::write::{BYTES, FIXED64, VARINT, bytes_len, key, key_len, varint, varint_len};

/// The values of one object.
#[derive(Debug)]
pub(super) struct Tape<'p> {
    pub(super) plan: &'p Plan,
    nodes: Vec<Node>,
    slots: Vec<NodeIndex>,
    aside: Vec<u8>,
}

/// A position in `nodes`; 0 is none.
pub(super) type NodeIndex = u32;

#[derive(Debug, Clone, Copy)]
struct Node {
    content: Content,
    /// The bytes of the content; 0 for numbers.
    len: u32,
    /// The next item of the same list or map.
    next: NodeIndex,
}

/// The value of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    /// A number of the wire type 0.
    Varint(u64),
    /// A number of the wire type 1.
    Fixed64(u64),
    /// Bytes of the JSON from this offset on.
    Json(u32),
    /// Bytes of `aside` from this offset on.
    Aside(u32),
    /// A message of this type, with its slots from this index on.
    Message(ObjectId, u32),
    /// An entry of a map.
    Entry(NodeIndex, NodeIndex),
}

/// Converts an offset or length of one object's bytes.
pub(super) fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("an object is smaller than 4 GiB")
}

impl<'p> Tape<'p> {
    /// Creates a tape for an object with `json_bytes` bytes of JSON.
    pub(super) fn new(plan: &'p Plan, json_bytes: usize) -> Self {
        let mut tape = Self {
            plan,
            nodes: Vec::with_capacity(json_bytes / 24 + 8),
            slots: Vec::with_capacity(json_bytes / 8 + 64),
            aside: Vec::with_capacity(json_bytes / 4),
        };
        tape.push(Content::Varint(0), 0);
        tape
    }

    /// Adds a value whose content has `len` bytes.
    pub(super) fn push(&mut self, content: Content, len: usize) -> NodeIndex {
        self.nodes.push(Node {
            content,
            len: narrow(len),
            next: 0,
        });
        narrow(self.nodes.len() - 1)
    }

    /// Adds a value with the bytes that `write` appends.
    pub(super) fn push_aside(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> NodeIndex {
        let at = self.aside.len();
        write(&mut self.aside);
        self.push(Content::Aside(narrow(at)), self.aside.len() - at)
    }

    /// Adds a message without values.
    pub(super) fn push_message(&mut self, message: ObjectId) -> NodeIndex {
        let at = self.slots.len();
        let fields = self.plan.message(message).fields.len();
        self.slots.resize(at + fields, 0);
        self.push(Content::Message(message, narrow(at)), 0)
    }

    /// Adds an entry of a map.
    pub(super) fn push_entry(&mut self, key: NodeIndex, value: NodeIndex) -> NodeIndex {
        let len = self.len_of(1, key) + self.len_of(2, value);
        self.push(Content::Entry(key, value), len)
    }

    /// Sets the item after `item` in its list or map.
    pub(super) fn link(&mut self, item: NodeIndex, next: NodeIndex) {
        self.nodes[item as usize].next = next;
    }

    /// Returns the bytes of a text; `json` is the object.
    pub(super) fn text<'a>(&'a self, node: NodeIndex, json: &'a [u8]) -> &'a [u8] {
        let Node { content, len, .. } = self.nodes[node as usize];
        let (bytes, at) = match content {
            Content::Json(at) => (json, at),
            Content::Aside(at) => (&self.aside[..], at),
            _ => return &[],
        };
        &bytes[at as usize..][..len as usize]
    }

    /// Sets the value of a field of a message.
    pub(super) fn set(&mut self, message: NodeIndex, slot: usize, value: NodeIndex) {
        let at = self.slots_of(message).1 + slot;
        self.slots[at] = value;
    }

    /// Returns the value of a field of a message.
    pub(super) fn get(&self, message: NodeIndex, slot: usize) -> NodeIndex {
        self.slots[self.slots_of(message).1 + slot]
    }

    /// Returns the type of a message and the index of its first slot.
    fn slots_of(&self, message: NodeIndex) -> (ObjectId, usize) {
        match self.nodes[message as usize].content {
            Content::Message(message, at) => (message, at as usize),
            other => unreachable!("{other:?} is no message"),
        }
    }

    /// Computes the length of a message, all values of which are set; returns it.
    pub(super) fn finish(&mut self, message: NodeIndex) -> usize {
        let (of, at) = self.slots_of(message);
        let plan = self.plan;
        let mut len = 0;
        for (slot, field) in plan.message(of).fields.iter().enumerate() {
            let mut node = self.slots[at + slot];
            if node == 0 {
                len += field.absent.len();
                continue;
            }
            if field.inline {
                self.finish(node);
            }
            while node != 0 {
                len += self.len_of(field.number, node);
                node = self.nodes[node as usize].next;
            }
        }
        self.nodes[message as usize].len = narrow(len);
        len
    }

    /// Returns the length of a value as the field `number`.
    fn len_of(&self, number: u32, node: NodeIndex) -> usize {
        if node == 0 {
            return 0;
        }
        let Node { content, len, .. } = self.nodes[node as usize];
        match content {
            Content::Varint(value) => key_len(number) + varint_len(value),
            Content::Fixed64(_) => key_len(number) + size_of::<u64>(),
            _ => bytes_len(number, len as usize),
        }
    }

    /// Returns the length of a finished message.
    pub(super) fn len(&self, message: NodeIndex) -> usize {
        self.nodes[message as usize].len as usize
    }

    /// Appends the content of a message; `json` is the object that was read.
    pub(super) fn write(&self, message: NodeIndex, json: &[u8], out: &mut Vec<u8>) {
        let (of, at) = self.slots_of(message);
        for (slot, field) in self.plan.message(of).fields.iter().enumerate() {
            match self.slots[at + slot] {
                0 => out.extend_from_slice(&field.absent),
                node => self.write_field(field, node, json, out),
            }
        }
    }

    fn write_field(&self, field: &FieldPlan, mut node: NodeIndex, json: &[u8], out: &mut Vec<u8>) {
        debug_assert!(!matches!(field.shape, Shape::One(_)) || self.nodes[node as usize].next == 0);
        while node != 0 {
            self.write_value(field.number, node, json, out);
            node = self.nodes[node as usize].next;
        }
    }

    fn write_value(&self, number: u32, node: NodeIndex, json: &[u8], out: &mut Vec<u8>) {
        if node == 0 {
            return;
        }
        let Node { content, len, .. } = self.nodes[node as usize];
        match content {
            Content::Varint(value) => {
                key(number, VARINT, out);
                varint(value, out);
                return;
            }
            Content::Fixed64(bits) => {
                key(number, FIXED64, out);
                out.extend_from_slice(&bits.to_le_bytes());
                return;
            }
            _ => {}
        }
        key(number, BYTES, out);
        varint(len.into(), out);
        match content {
            Content::Message(..) => self.write(node, json, out),
            Content::Entry(name, value) => {
                self.write_value(1, name, json, out);
                self.write_value(2, value, json, out);
            }
            _ => out.extend_from_slice(self.text(node, json)),
        }
    }
}

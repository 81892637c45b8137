//! Bounds the memory that an object takes before it is deserialized. A message of two bytes can become a map of 700 bytes, but
//! most messages are longer. So the bound is computed from the fields. That takes 15 % of the instructions of deserializing a pod.

use watchet_schema::{Node, ObjectId, Scalar, Types, ValueCounts, memory_of_json};

use super::members::{FieldSearch, Root};
use crate::schema::DEPTH_MAX;
use crate::wire::{Reader, WireValue};

/// The memory of a field while its message is open: 32 bytes in the list of fields, of which up to half is spare capacity.
const FIELD_BYTES: usize = 2 * 32;

/// The memory of a map entry while its map is open, with that of sorting the entries.
const ENTRY_BYTES: usize = 2 * 40;

/// The maximum number of characters of a time.
const TIME_BYTES: usize = 30;

/// An upper bound of the memory that deserializing an object takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodedMemory {
    /// The memory of the object in bytes, as a [`MemoryBudget`](watchet_schema::MemoryBudget) counts it.
    pub object_bytes: usize,
    /// The memory in bytes that is only needed while the object is deserialized.
    pub working_bytes: usize,
}

/// Returns the bound for an object.
pub(super) fn bound(root: &Root<'_, '_>) -> DecodedMemory {
    let mut count = Count {
        types: root.types,
        values: ValueCounts::default(),
        raw_bytes: 0,
        working_bytes: 0,
    };
    count.values.maps += 1;
    for (name, text) in root.type_meta {
        count.member(name);
        count.text(text.len());
    }
    count.message(root.object.id, root.object.bytes, root.object.depth);
    DecodedMemory {
        object_bytes: count.values.memory() + count.raw_bytes,
        working_bytes: count.working_bytes,
    }
}

struct Count<'t> {
    types: &'t Types,
    values: ValueCounts,
    /// The memory of the values in raw JSON.
    raw_bytes: usize,
    working_bytes: usize,
}

impl Count<'_> {
    /// Counts the known fields of a message, up to the first malformed one, where deserializing fails too.
    fn message(&mut self, id: ObjectId, bytes: &[u8], depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        let table = self.types.object_fields(id);
        let mut reader = Reader(bytes);
        let mut search = FieldSearch::new(table);
        let mut previous = None;
        while let Ok(Some((number, wire))) = reader.field() {
            if let Some(slot) = search.find(number) {
                // Occurrences of a list or map that are not adjacent count as several.
                let is_first = previous.replace(slot) != Some(slot);
                let field = &table[slot];
                self.working_bytes += FIELD_BYTES;
                let node = self.types.node(field.node());
                self.occurrence(field.name(), node, wire, is_first, depth);
            }
        }
    }

    /// Counts an occurrence of a field.
    fn occurrence(
        &mut self,
        name: &str,
        node: Node,
        wire: WireValue<'_>,
        is_first: bool,
        depth: usize,
    ) {
        match node {
            Node::List {
                item,
                wrapped: false,
                ..
            } => {
                if is_first {
                    self.member(name);
                    self.values.lists += 1;
                }
                match (self.types.node(item), wire) {
                    // Packed numbers, of one byte at least.
                    (Node::Scalar(Scalar::Int32 | Scalar::Int64), WireValue::Bytes(packed)) => {
                        self.values.items += packed.len();
                    }
                    (item, wire) => {
                        self.values.items += 1;
                        self.value(item, wire, depth);
                    }
                }
            }
            Node::Map { value, .. } => {
                if is_first {
                    self.member(name);
                    self.values.maps += 1;
                }
                self.entry(
                    self.types.node(value),
                    wire.bytes().unwrap_or_default(),
                    depth,
                );
            }
            node => {
                self.member(name);
                self.value(node, wire, depth);
            }
        }
    }

    /// Counts a map entry. Of several values the last one is deserialized.
    fn entry(&mut self, node: Node, entry: &[u8], depth: usize) {
        self.working_bytes += ENTRY_BYTES;
        self.values.members += 1;
        self.text(entry.len());
        let mut value = WireValue::Bytes(&[]);
        let mut reader = Reader(entry);
        while let Ok(Some((number, part))) = reader.field() {
            if number == 2 {
                value = part;
            }
        }
        self.value(node, value, depth);
    }

    fn value(&mut self, node: Node, wire: WireValue<'_>, depth: usize) {
        // Numbers and booleans take no more memory than their place.
        let WireValue::Bytes(bytes) = wire else {
            return;
        };
        match node {
            Node::Object { object: id, .. } | Node::Union(id) => {
                self.values.maps += 1;
                self.message(id, bytes, depth + 1);
            }
            Node::List { .. } => {
                self.values.lists += 1;
                let mut reader = Reader(bytes);
                while let Ok(Some((_, text))) = reader.field() {
                    self.values.items += 1;
                    self.text(text.bytes().unwrap_or_default().len());
                }
            }
            Node::Raw => {
                if let Ok(Some(WireValue::Bytes(json))) = Reader(bytes).find(1) {
                    self.raw_bytes += memory_of_json(json);
                }
            }
            Node::Scalar(Scalar::Bytes) => self.text(4 * bytes.len().div_ceil(3)),
            Node::Scalar(Scalar::Time | Scalar::MicroTime) => self.text(TIME_BYTES),
            // A quantity without a text is "0".
            Node::Scalar(_) => self.text(bytes.len() + 1),
            Node::Map { .. } | Node::Any => {}
        }
    }

    /// Counts a member and its name.
    fn member(&mut self, name: &str) {
        self.values.members += 1;
        self.text(name.len());
    }

    fn text(&mut self, length: usize) {
        self.values.texts += 1;
        self.values.text_bytes += length;
    }
}

//! Bounds the memory that an object takes before it is deserialized. Messages of two bytes become maps of 700 bytes, but those of
//! most objects are longer: the fields are counted, in a tenth of the time of deserializing them.

use watchet_schema::{Node, ObjectId, Scalar, Types, memory_of_json, memory_of_values};

use super::members::Root;
use crate::schema::DEPTH_MAX;
use crate::wire::{Reader, WireValue};

/// The memory of a field while its message is read: its occurrence, in a list that grows by doubling, and its map entry.
const FIELD_BYTES: usize = 2 * 32 + 40;

/// An upper bound of the memory that deserializing an object takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodedMemory {
    /// The memory of the object in bytes, as a [`MemoryBudget`](watchet_schema::MemoryBudget) counts it.
    pub object_bytes: usize,
    /// The memory in bytes that is only needed while it is read.
    pub working_bytes: usize,
}

/// Returns the bound for an object.
pub(super) fn bound(root: &Root<'_, '_>) -> DecodedMemory {
    let mut count = Count {
        types: root.types,
        // The object, its apiVersion and its kind.
        values: 3,
        maps: 1,
        text_bytes: 0,
        raw_bytes: 0,
    };
    for (name, text) in root.type_meta {
        count.text_bytes += name.len() + text.len();
    }
    count.message(root.object.id, root.object.bytes, root.object.depth);
    // Bytes are a third longer in base64, and a time of ten bytes has 27 characters.
    let text_bytes = count.text_bytes + 3 * root.object.bytes.len();
    DecodedMemory {
        object_bytes: memory_of_values(count.values, count.maps, text_bytes) + count.raw_bytes,
        working_bytes: count.values * FIELD_BYTES,
    }
}

struct Count<'t> {
    types: &'t Types,
    values: usize,
    maps: usize,
    /// The bytes of the names.
    text_bytes: usize,
    /// The memory of raw JSON.
    raw_bytes: usize,
}

impl Count<'_> {
    /// Counts the known fields of a message, up to the first that is not valid.
    fn message(&mut self, id: ObjectId, bytes: &[u8], depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        let table = self.types.object_fields(id);
        let mut reader = Reader(bytes);
        let mut previous = 0;
        let mut map = None;
        while let Ok(Some((number, wire))) = reader.field() {
            let (before, after) = table.split_at(previous);
            let mut candidates = after.iter().chain(before);
            if let Some(distance) = candidates.position(|field| field.number() == Some(number)) {
                previous = (previous + distance) % table.len();
                let field = &table[previous];
                self.text_bytes += field.name().len();
                let node = self.types.node(field.node());
                // The entries of one map.
                if matches!(node, Node::Map { .. }) && map.replace(previous) != Some(previous) {
                    self.maps += 1;
                }
                self.value(node, wire, depth);
            }
        }
    }

    /// Counts one occurrence of a field.
    fn value(&mut self, node: Node, wire: WireValue<'_>, depth: usize) {
        match (node, wire) {
            (Node::Map { value, .. }, WireValue::Bytes(entry)) => match Reader(entry).find(2) {
                Ok(Some(wire)) => self.value(self.types.node(value), wire, depth),
                _ => self.values += 1,
            },
            (Node::List { item, wrapped, .. }, wire) if !wrapped => {
                match (self.types.node(item), wire) {
                    // Packed numbers, of one byte at least.
                    (Node::Scalar(Scalar::Int32 | Scalar::Int64), WireValue::Bytes(packed)) => {
                        self.values += packed.len().max(1);
                    }
                    (item, wire) => self.value(item, wire, depth),
                }
            }
            (Node::List { .. }, WireValue::Bytes(texts)) => {
                self.values += 1;
                let mut reader = Reader(texts);
                while let Ok(Some(_)) = reader.field() {
                    self.values += 1;
                }
            }
            (Node::Object { object: id, .. } | Node::Union(id), WireValue::Bytes(bytes)) => {
                self.values += 1;
                self.maps += 1;
                self.message(id, bytes, depth + 1);
            }
            (Node::Raw, WireValue::Bytes(bytes)) => {
                self.values += 1;
                self.raw_bytes += memory_of_json(bytes);
            }
            _ => self.values += 1,
        }
    }
}

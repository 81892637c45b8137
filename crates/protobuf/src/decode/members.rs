//! Walks the messages of an object member by member, as its JSON has them: in the order of the table, with the members of
//! inline messages in the outer object, and without those that Go's encoder omits. Shared by the writer of JSON and the
//! deserializer.

use watchet_schema::{Field, Node, ObjectId, Scalar, Types};

use super::scalars::{self, ScalarValue, text};
use crate::error::InvalidProtobuf;
use crate::schema::DEPTH_MAX;
use crate::wire::{Reader, WireValue};

/// The members of unions. The first one in this order that is set is used.
const UNION_MEMBERS: [&str; 4] = ["schema", "jSONSchemas", "property", "allows"];

/// An object of a known kind.
#[derive(Debug)]
pub(super) struct Root<'t, 'b> {
    pub(super) types: &'t Types,
    /// The names and values of its apiVersion and kind.
    pub(super) type_meta: [(&'static str, &'b str); 2],
    pub(super) object: Object<'b>,
}

/// The value of a member, of an item or of a map entry.
pub(super) enum Content<'t, 'b> {
    Scalar(ScalarValue<'t, 'b>),
    Object(Object<'b>),
    List(Items<'t, 'b>),
    Map(Entries<'t, 'b>),
}

/// A message that is an object in JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object<'b> {
    pub(super) id: ObjectId,
    pub(super) bytes: &'b [u8],
    /// The depth of the message; 1 is the outermost.
    pub(super) depth: usize,
}

/// The place of a value: a field of a message.
#[derive(Clone, Copy)]
struct Place<'t> {
    /// The type of the message.
    id: ObjectId,
    field: &'t Field,
    /// The depth of the message; 1 is the outermost.
    depth: usize,
}

impl Place<'_> {
    fn wrong_wire_type(self, types: &Types) -> InvalidProtobuf {
        InvalidProtobuf::WireType {
            message: types.object_name(self.id).to_owned(),
            field: self.field.number().unwrap_or_default(),
        }
    }
}

/// The state of the walk: the types, and the fields of the open messages.
pub(super) struct Walk<'t, 'b> {
    types: &'t Types,
    /// Each field as its position in the table of its message, and its value. The fields of an inner message follow those
    /// of the outer one, and are removed when the outer one continues.
    fields: Vec<(usize, WireValue<'b>)>,
}

/// An open message.
struct Message<'t> {
    id: ObjectId,
    table: &'t [Field],
    /// Its fields are `begin..end` in [`Walk::fields`], and those before `next` are read.
    begin: usize,
    next: usize,
    end: usize,
    /// 1 is the outermost.
    depth: usize,
}

/// Finds the fields of a message in its table.
pub(super) struct FieldSearch<'t> {
    table: &'t [Field],
    /// Encoders write fields in about the order of the table, so the next one is near the previous one.
    previous: usize,
}

impl<'t> FieldSearch<'t> {
    pub(super) fn new(table: &'t [Field]) -> Self {
        Self { table, previous: 0 }
    }

    /// Returns the position of the field with this number.
    pub(super) fn find(&mut self, number: u32) -> Option<usize> {
        let (before, after) = self.table.split_at(self.previous);
        let mut candidates = after.iter().chain(before);
        let distance = candidates.position(|field| field.number() == Some(number))?;
        self.previous = (self.previous + distance) % self.table.len();
        Some(self.previous)
    }
}

/// The unread members of an object.
pub(super) struct Members<'t> {
    message: Message<'t>,
    /// The messages that `message` is inlined in, the outermost first.
    outer: Vec<Message<'t>>,
}

/// The unread items of a list.
pub(super) struct Items<'t, 'b> {
    place: Place<'t>,
    item: Node,
    /// The unread occurrences of the field are `next..end` in [`Walk::fields`].
    next: usize,
    end: usize,
    /// The rest of an occurrence with several numbers.
    packed: Reader<'b>,
}

/// The unread entries of a map, sorted by key as in Go's JSON. Of several entries with the same key there is the last one.
pub(super) struct Entries<'t, 'b> {
    place: Place<'t>,
    value: Node,
    unread: std::vec::IntoIter<(&'b str, WireValue<'b>)>,
}

impl<'t, 'b> Walk<'t, 'b> {
    pub(super) fn new(types: &'t Types) -> Self {
        Self {
            types,
            fields: Vec::new(),
        }
    }

    /// Returns the members of an object.
    pub(super) fn members(&mut self, object: Object<'b>) -> Result<Members<'t>, InvalidProtobuf> {
        Ok(Members {
            message: self.open(object.id, object.bytes, object.depth)?,
            outer: Vec::new(),
        })
    }

    /// Appends the known fields of a message to `fields`, in the order of the table.
    fn open(
        &mut self,
        id: ObjectId,
        bytes: &'b [u8],
        depth: usize,
    ) -> Result<Message<'t>, InvalidProtobuf> {
        if depth > DEPTH_MAX {
            return Err(InvalidProtobuf::TooDeep);
        }
        let table = self.types.object_fields(id);
        let begin = self.fields.len();
        let mut reader = Reader(bytes);
        let mut search = FieldSearch::new(table);
        while let Some((number, wire)) = reader.field()? {
            // Unknown fields are dropped, as in kube-apiserver.
            if let Some(slot) = search.find(number) {
                self.fields.push((slot, wire));
            }
        }
        let read = &mut self.fields[begin..];
        if !read.is_sorted_by_key(|(slot, _)| *slot) {
            read.sort_by_key(|(slot, _)| *slot);
        }
        Ok(Message {
            id,
            table,
            begin,
            next: begin,
            end: self.fields.len(),
            depth,
        })
    }

    /// Returns the value of a field that occurs as `fields[from..to]`.
    fn occurrences(
        &mut self,
        place: Place<'t>,
        (from, to): (usize, usize),
    ) -> Result<Content<'t, 'b>, InvalidProtobuf> {
        match self.types.node(place.field.node()) {
            Node::List {
                item,
                wrapped: false,
                ..
            } => Ok(Content::List(Items {
                place,
                item: self.types.node(item),
                next: from,
                end: to,
                packed: Reader(&[]),
            })),
            Node::Map { value, .. } => self.map(place, self.types.node(value), (from, to)),
            node => self.value(place, node, self.fields[to - 1].1),
        }
    }

    /// Returns the entries of a map field.
    fn map(
        &self,
        place: Place<'t>,
        value: Node,
        (from, to): (usize, usize),
    ) -> Result<Content<'t, 'b>, InvalidProtobuf> {
        let mut entries = Vec::with_capacity(to - from);
        for (_, wire) in self.fields[from..to].iter().rev() {
            let entry = wire.bytes();
            let entry = entry.ok_or_else(|| place.wrong_wire_type(self.types))?;
            entries.push(map_entry(place.field, entry)?);
        }
        // The entries are in reverse order and the sort is stable, so of equal keys the last one comes first and is kept.
        entries.sort_by_key(|(key, _)| *key);
        entries.dedup_by_key(|(key, _)| *key);
        Ok(Content::Map(Entries {
            place,
            value,
            unread: entries.into_iter(),
        }))
    }

    /// Returns one value.
    fn value(
        &mut self,
        place: Place<'t>,
        node: Node,
        wire: WireValue<'b>,
    ) -> Result<Content<'t, 'b>, InvalidProtobuf> {
        match (node, wire) {
            (Node::Object { object: id, .. }, WireValue::Bytes(bytes)) => {
                Ok(Content::Object(Object {
                    id,
                    bytes,
                    depth: place.depth + 1,
                }))
            }
            (Node::Union(id), WireValue::Bytes(bytes)) => self.union(id, bytes, place.depth + 1),
            _ => match scalars::read(place.field.name(), node, wire)? {
                Some(value) => Ok(Content::Scalar(value)),
                None => Err(place.wrong_wire_type(self.types)),
            },
        }
    }

    /// Returns the value of the member of a union that is set; null if none is. Its fields stay in `fields`, as a list refers
    /// to them.
    fn union(
        &mut self,
        id: ObjectId,
        bytes: &'b [u8],
        depth: usize,
    ) -> Result<Content<'t, 'b>, InvalidProtobuf> {
        let message = self.open(id, bytes, depth)?;
        let occurs = |name: &&str| {
            let slot = message
                .table
                .iter()
                .position(|field| field.name() == *name)?;
            let of_slot = |(other, _): &(usize, WireValue<'_>)| *other == slot;
            let from = message.begin + self.fields[message.begin..].iter().position(of_slot)?;
            let count = self.fields[from..].iter().take_while(|one| of_slot(one));
            Some((&message.table[slot], (from, from + count.count())))
        };
        match UNION_MEMBERS.iter().find_map(occurs) {
            Some((field, range)) => self.occurrences(message.place(field), range),
            None => Ok(Content::Scalar(ScalarValue::Null)),
        }
    }
}

impl<'t> Message<'t> {
    fn place(&self, field: &'t Field) -> Place<'t> {
        Place {
            id: self.id,
            field,
            depth: self.depth,
        }
    }
}

impl<'t> Members<'t> {
    /// Returns the next member that has a value.
    pub(super) fn next<'b>(
        &mut self,
        walk: &mut Walk<'t, 'b>,
    ) -> Result<Option<(&'t Field, Content<'t, 'b>)>, InvalidProtobuf> {
        loop {
            let message = &mut self.message;
            // The fields of inner messages.
            walk.fields.truncate(message.end);
            let Some(&(slot, _)) = walk.fields.get(message.next) else {
                walk.fields.truncate(message.begin);
                match self.outer.pop() {
                    Some(outer) => self.message = outer,
                    None => return Ok(None),
                }
                continue;
            };
            let from = message.next;
            let others = walk.fields[from + 1..message.end].iter();
            let others = others.take_while(|(other, _)| *other == slot).count();
            message.next = from + 1 + others;
            let place = message.place(&message.table[slot]);
            let field = place.field;
            if field.is_inline()
                && let Node::Object { object: id, .. } = walk.types.node(field.node())
            {
                let bytes = walk.fields[message.next - 1].1.bytes();
                let bytes = bytes.ok_or_else(|| place.wrong_wire_type(walk.types))?;
                let inner = walk.open(id, bytes, message.depth + 1)?;
                self.outer.push(std::mem::replace(message, inner));
                continue;
            }
            let content = walk.occurrences(place, (from, message.next))?;
            let is_omitted = match &content {
                Content::Scalar(value) => {
                    value.is_null() || field.drops_empty() && value.is_empty()
                }
                _ => false,
            };
            if !is_omitted {
                return Ok(Some((field, content)));
            }
        }
    }
}

impl<'t, 'b> Items<'t, 'b> {
    /// Returns the next item.
    pub(super) fn next(
        &mut self,
        walk: &mut Walk<'t, 'b>,
    ) -> Result<Option<Content<'t, 'b>>, InvalidProtobuf> {
        while self.packed.0.is_empty() {
            if self.next == self.end {
                return Ok(None);
            }
            let wire = walk.fields[self.next].1;
            self.next += 1;
            // Numbers may be packed: several in one field.
            if let (Node::Scalar(Scalar::Int32 | Scalar::Int64), WireValue::Bytes(packed)) =
                (self.item, wire)
            {
                self.packed = Reader(packed);
                continue;
            }
            return walk.value(self.place, self.item, wire).map(Some);
        }
        let number = WireValue::Varint(self.packed.varint()?);
        walk.value(self.place, self.item, number).map(Some)
    }
}

impl<'t, 'b> Entries<'t, 'b> {
    /// Returns the next key and its value.
    pub(super) fn next(
        &mut self,
        walk: &mut Walk<'t, 'b>,
    ) -> Result<Option<(&'b str, Content<'t, 'b>)>, InvalidProtobuf> {
        let Some((key, wire)) = self.unread.next() else {
            return Ok(None);
        };
        let value = walk.value(self.place, self.value, wire)?;
        Ok(Some((key, value)))
    }
}

/// Reads a map entry: a message of a key and a value. An absent value is read as an empty one.
fn map_entry<'b>(
    field: &Field,
    entry: &'b [u8],
) -> Result<(&'b str, WireValue<'b>), InvalidProtobuf> {
    let (mut key, mut value) = ("", WireValue::Bytes(&[]));
    let mut reader = Reader(entry);
    while let Some((number, part)) = reader.field()? {
        match number {
            1 => key = text(field.name(), part.bytes().unwrap_or_default())?,
            2 => value = part,
            _ => {}
        }
    }
    Ok((key, value))
}

//! Walks the messages of an object member by member, as its JSON has them: in the order of the table, with the members of
//! inline messages in the outer object, and without those that Go omits. Shared by the writer of JSON and the deserializer.

use watchet_schema::{Field, Node, ObjectId, Scalar, Types};

use super::scalars::{self, ScalarValue, text};
use crate::error::InvalidProtobuf;
use crate::schema::DEPTH_MAX;
use crate::wire::{Reader, WireValue};

/// The members of which a union has one, in the order in which they are looked for.
const UNION_MEMBERS: [&str; 4] = ["schema", "jSONSchemas", "property", "allows"];

/// The value of a member, of an item or of a map entry.
pub(super) enum Content<'t, 'b> {
    Scalar(ScalarValue<'t, 'b>),
    Object(Object<'b>),
    List(Items<'t, 'b>),
    /// Sorted by key, as in Go's JSON.
    Map(Vec<(&'b str, Self)>),
}

/// A message that is an object in JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object<'b> {
    pub(super) message: ObjectId,
    pub(super) bytes: &'b [u8],
    /// The number of messages around it.
    pub(super) depth: usize,
}

/// The place of a value: a field of a message, which has `depth - 1` messages around it.
#[derive(Clone, Copy)]
struct Place<'t> {
    message: ObjectId,
    field: &'t Field,
    depth: usize,
}

impl Place<'_> {
    fn wrong_wire_type(self, types: &Types) -> InvalidProtobuf {
        InvalidProtobuf::WireType {
            message: types.object_name(self.message).to_owned(),
            field: self.field.number().unwrap_or_default(),
        }
    }
}

/// What walking an object needs.
pub(super) struct Walk<'t, 'b> {
    types: &'t Types,
    /// The fields of the messages that are being walked: the position in the table, and the value. Each message uses the
    /// end.
    fields: Vec<(usize, WireValue<'b>)>,
}

/// The fields of one message, of which those before `at` are read.
struct Message<'t> {
    id: ObjectId,
    table: &'t [Field],
    begin: usize,
    at: usize,
    end: usize,
    depth: usize,
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
    /// The unread occurrences of the field.
    at: usize,
    end: usize,
    /// The rest of an occurrence with several numbers.
    packed: Reader<'b>,
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
            message: self.open(object.message, object.bytes, object.depth + 1)?,
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
        // Encoders write fields in about the order of the table, so the next one is near the previous one.
        let mut previous = 0;
        while let Some((number, wire)) = reader.field()? {
            let (before, after) = table.split_at(previous);
            let mut candidates = after.iter().chain(before);
            // Unknown fields are dropped, as in kube-apiserver.
            if let Some(at) = candidates.position(|field| field.number() == Some(number)) {
                previous = (previous + at) % table.len();
                self.fields.push((previous, wire));
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
            at: begin,
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
                at: from,
                end: to,
                packed: Reader(&[]),
            })),
            Node::Map { value, .. } => self.map(place, self.types.node(value), (from, to)),
            node => self.value(place, node, self.fields[to - 1].1),
        }
    }

    /// Returns the entries of a map. The last of equal keys counts.
    fn map(
        &mut self,
        place: Place<'t>,
        value: Node,
        (from, to): (usize, usize),
    ) -> Result<Content<'t, 'b>, InvalidProtobuf> {
        let mut entries = Vec::with_capacity(to - from);
        for at in (from..to).rev() {
            let entry = self.fields[at].1.bytes();
            let entry = entry.ok_or_else(|| place.wrong_wire_type(self.types))?;
            let (key, wire) = map_entry(place.field, entry)?;
            entries.push((key, self.value(place, value, wire)?));
        }
        entries.sort_by_key(|(key, _)| *key);
        entries.dedup_by_key(|(key, _)| *key);
        Ok(Content::Map(entries))
    }

    /// Returns one value.
    fn value(
        &mut self,
        place: Place<'t>,
        node: Node,
        wire: WireValue<'b>,
    ) -> Result<Content<'t, 'b>, InvalidProtobuf> {
        match (node, wire) {
            (Node::Object { object, .. }, WireValue::Bytes(bytes)) => Ok(Content::Object(Object {
                message: object,
                bytes,
                depth: place.depth,
            })),
            (Node::Union(message), WireValue::Bytes(bytes)) => {
                self.union(message, bytes, place.depth)
            }
            _ => match scalars::read(place.field.name(), node, wire)? {
                Some(value) => Ok(Content::Scalar(value)),
                None => Err(place.wrong_wire_type(self.types)),
            },
        }
    }

    /// Returns the value of the member of a union that is set; null if none is. Its fields remain in `fields` until the
    /// outer message continues, as a list refers to them.
    fn union(
        &mut self,
        message: ObjectId,
        bytes: &'b [u8],
        depth: usize,
    ) -> Result<Content<'t, 'b>, InvalidProtobuf> {
        let message = self.open(message, bytes, depth + 1)?;
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
            message: self.id,
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
            // What the previous member has appended.
            walk.fields.truncate(message.end);
            let Some(&(slot, _)) = walk.fields.get(message.at) else {
                walk.fields.truncate(message.begin);
                match self.outer.pop() {
                    Some(outer) => self.message = outer,
                    None => return Ok(None),
                }
                continue;
            };
            let from = message.at;
            let others = walk.fields[from + 1..message.end].iter();
            let others = others.take_while(|(other, _)| *other == slot).count();
            message.at = from + 1 + others;
            let place = message.place(&message.table[slot]);
            let field = place.field;
            if field.is_inline()
                && let Node::Object { object, .. } = walk.types.node(field.node())
            {
                let bytes = walk.fields[message.at - 1].1.bytes();
                let bytes = bytes.ok_or_else(|| place.wrong_wire_type(walk.types))?;
                let inner = walk.open(object, bytes, message.depth + 1)?;
                self.outer.push(std::mem::replace(message, inner));
                continue;
            }
            let content = walk.occurrences(place, (from, message.at))?;
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
            if self.at == self.end {
                return Ok(None);
            }
            let wire = walk.fields[self.at].1;
            self.at += 1;
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

/// Reads a map entry: a message of a key and a value. An absent value is the type's zero value.
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

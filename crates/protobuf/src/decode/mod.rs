//! Converts protobuf to JSON: the `runtime.Unknown` envelope of Go's clients and of stored values, and the messages of
//! built-in types by the tables of `schema`. The JSON is written while the message is read, so that an object takes no
//! memory but its two texts.
//!
//! Members without a value in Go (a zero time, a nil raw value) are omitted, as are empty ones with `omitempty`.

mod scalars;

use watchet_api::write_json_string;
use watchet_schema::{Field, Node, ObjectId, Scalar, Types};

use crate::error::InvalidProtobuf;
use crate::schema::{DEPTH_MAX, MAGIC, Messages};
use crate::wire::{Reader, WireValue};
use scalars::text;

/// The members of which a union has one, in the order in which they are looked for.
const UNION_MEMBERS: [&str; 4] = ["schema", "jSONSchemas", "property", "allows"];

impl Messages {
    /// Returns the object in `body` as JSON, with its apiVersion and kind.
    ///
    /// # Errors
    /// The body is not valid, or the JSON is longer than about `json_bytes_max`: short fields have long names.
    pub fn to_json(&self, body: &[u8], json_bytes_max: usize) -> Result<Vec<u8>, InvalidProtobuf> {
        let envelope = Envelope::read(body)?;
        let (api_version, kind) = (envelope.api_version, envelope.kind);
        let message = self.types.object_of(api_version, kind).ok_or_else(|| {
            InvalidProtobuf::UnknownKind {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            }
        })?;
        let mut converter = Converter {
            types: &self.types,
            out: Vec::with_capacity(2 * body.len()),
            json_bytes_max,
            fields: Vec::new(),
            depth: 0,
        };
        converter.out.extend_from_slice(br#"{"apiVersion":"#);
        write_json_string(api_version, &mut converter.out);
        converter.out.extend_from_slice(br#","kind":"#);
        write_json_string(kind, &mut converter.out);
        converter.members(message, envelope.raw)?;
        converter.out.push(b'}');
        Ok(converter.out)
    }
}

/// The `runtime.Unknown` envelope around an object.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Envelope<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads the envelope of `body`.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, InvalidProtobuf> {
        let body = body
            .strip_prefix(MAGIC)
            .ok_or(InvalidProtobuf::NoEnvelope)?;
        let mut envelope = Self::default();
        // Go writes the `raw` field even if it is empty: without it the body was truncated.
        let mut whole = false;
        let mut reader = Reader(body);
        while let Some((number, wire)) = reader.field()? {
            let bytes = wire.bytes().ok_or(InvalidProtobuf::Malformed)?;
            match number {
                1 => envelope.read_type(bytes)?,
                2 => {
                    envelope.raw = bytes;
                    whole = true;
                }
                // The content encoding and type are ignored, as upstream: the content is a message.
                _ => {}
            }
        }
        whole.then_some(envelope).ok_or(InvalidProtobuf::Malformed)
    }

    fn read_type(&mut self, type_meta: &'a [u8]) -> Result<(), InvalidProtobuf> {
        let mut reader = Reader(type_meta);
        while let Some((number, wire)) = reader.field()? {
            let bytes = wire.bytes().ok_or(InvalidProtobuf::Malformed)?;
            match number {
                1 => self.api_version = text("apiVersion", bytes)?,
                2 => self.kind = text("kind", bytes)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Converts one object.
struct Converter<'t, 'b> {
    types: &'t Types,
    out: Vec<u8>,
    json_bytes_max: usize,
    /// The fields of the messages that are being converted: the position in the table, and the value. Each message uses
    /// the end.
    fields: Vec<(usize, WireValue<'b>)>,
    depth: usize,
}

impl<'b> Converter<'_, 'b> {
    /// Appends a message as an object.
    fn object(&mut self, message: ObjectId, bytes: &'b [u8]) -> Result<(), InvalidProtobuf> {
        let begin = self.out.len();
        self.members(message, bytes)?;
        match self.out.get_mut(begin) {
            // The comma before the first member.
            Some(first) => *first = b'{',
            None => self.out.push(b'{'),
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Appends the members of a message, each after a comma.
    fn members(&mut self, message: ObjectId, bytes: &'b [u8]) -> Result<(), InvalidProtobuf> {
        let begin = self.read_fields(message, bytes)?;
        let fields = self.types.object_fields(message);
        let mut at = begin;
        while let Some(&(slot, _)) = self.fields.get(at) {
            let occurrences = self.fields[at..].iter();
            let count = occurrences.take_while(|(other, _)| *other == slot).count();
            self.member(message, &fields[slot], at, at + count)?;
            at += count;
        }
        self.fields.truncate(begin);
        self.depth -= 1;
        Ok(())
    }

    /// Appends the known fields of a message to `fields`, in the order of the table; returns the position of the first.
    fn read_fields(
        &mut self,
        message: ObjectId,
        bytes: &'b [u8],
    ) -> Result<usize, InvalidProtobuf> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(InvalidProtobuf::TooDeep);
        }
        let table = self.types.object_fields(message);
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
        Ok(begin)
    }

    /// Appends a member after a comma, unless it has no value. Its field occurs as `fields[from..to]`.
    fn member(
        &mut self,
        message: ObjectId,
        field: &Field,
        from: usize,
        to: usize,
    ) -> Result<(), InvalidProtobuf> {
        let last = self.fields[to - 1].1;
        let wrong = |types: &Types| InvalidProtobuf::WireType {
            message: types.object_name(message).to_owned(),
            field: field.number().unwrap_or_default(),
        };
        let node = self.types.node(field.node());
        if let (Node::Object { object, .. }, true) = (node, field.is_inline()) {
            let bytes = last.bytes().ok_or_else(|| wrong(self.types))?;
            return self.members(object, bytes);
        }
        let member = self.out.len();
        self.out.push(b',');
        write_json_string(field.name(), &mut self.out);
        self.out.push(b':');
        let value = self.out.len();
        if !self.occurrences(field, node, from, to)? {
            return Err(wrong(self.types));
        }
        let is_omitted = match &self.out[value..] {
            b"null" => true,
            b"\"\"" | b"false" | b"0" | b"0.0" => field.drops_empty(),
            _ => false,
        };
        if is_omitted {
            self.out.truncate(member);
        }
        match self.out.len() > self.json_bytes_max {
            true => Err(InvalidProtobuf::TooLarge {
                json_bytes_max: self.json_bytes_max,
            }),
            false => Ok(()),
        }
    }

    /// Appends the value of a field that occurs as `fields[from..to]`. Returns false if a wire type does not fit.
    fn occurrences(
        &mut self,
        field: &Field,
        node: Node,
        from: usize,
        to: usize,
    ) -> Result<bool, InvalidProtobuf> {
        match node {
            Node::List {
                item,
                wrapped: false,
                ..
            } => self.list(field, self.types.node(item), from, to),
            Node::Map { value, .. } => self.map(field, self.types.node(value), from, to),
            node => self.value(field, node, self.fields[to - 1].1),
        }
    }

    fn list(
        &mut self,
        field: &Field,
        item: Node,
        from: usize,
        to: usize,
    ) -> Result<bool, InvalidProtobuf> {
        self.out.push(b'[');
        let begin = self.out.len();
        for at in from..to {
            let wire = self.fields[at].1;
            // Numbers may be packed: several in one field.
            if let (Node::Scalar(Scalar::Int32 | Scalar::Int64), WireValue::Bytes(packed)) =
                (item, wire)
            {
                let mut reader = Reader(packed);
                while !reader.0.is_empty() {
                    let number = WireValue::Varint(reader.varint()?);
                    self.value(field, item, number)?;
                    self.out.push(b',');
                }
                continue;
            }
            if !self.value(field, item, wire)? {
                return Ok(false);
            }
            self.out.push(b',');
        }
        if self.out.len() > begin {
            self.out.pop();
        }
        self.out.push(b']');
        Ok(true)
    }

    /// Appends a map. As in Go's JSON, it is sorted by key; the last of equal keys counts.
    fn map(
        &mut self,
        field: &Field,
        value: Node,
        from: usize,
        to: usize,
    ) -> Result<bool, InvalidProtobuf> {
        let mut entries = Vec::with_capacity(to - from);
        for (_, wire) in &self.fields[from..to] {
            let Some(entry) = wire.bytes() else {
                return Ok(false);
            };
            entries.push(map_entry(field, entry)?);
        }
        entries.sort_by_key(|(key, _)| *key);
        self.out.push(b'{');
        for (at, (key, wire)) in entries.iter().enumerate() {
            if entries.get(at + 1).is_some_and(|(next, _)| next == key) {
                continue;
            }
            write_json_string(key, &mut self.out);
            self.out.push(b':');
            if !self.value(field, value, *wire)? {
                return Ok(false);
            }
            self.out.push(b',');
        }
        if !entries.is_empty() {
            self.out.pop();
        }
        self.out.push(b'}');
        Ok(true)
    }

    /// Appends a value; returns false if its wire type does not fit the field.
    fn value(
        &mut self,
        field: &Field,
        node: Node,
        wire: WireValue<'b>,
    ) -> Result<bool, InvalidProtobuf> {
        match (node, wire) {
            (Node::Object { object, .. }, WireValue::Bytes(bytes)) => {
                self.object(object, bytes)?;
                Ok(true)
            }
            (Node::Union(message), WireValue::Bytes(bytes)) => {
                self.union(message, bytes)?;
                Ok(true)
            }
            _ => scalars::push(field.name(), node, wire, &mut self.out),
        }
    }

    /// Appends the member of a union that is set; null if none is.
    fn union(&mut self, message: ObjectId, bytes: &'b [u8]) -> Result<(), InvalidProtobuf> {
        let begin = self.read_fields(message, bytes)?;
        let table = self.types.object_fields(message);
        let occurs = |name: &&str| {
            let slot = table.iter().position(|field| field.name() == *name)?;
            let of_slot = |(other, _): &(usize, WireValue<'_>)| *other == slot;
            let from = begin + self.fields[begin..].iter().position(of_slot)?;
            let count = self.fields[from..].iter().take_while(|one| of_slot(one));
            Some((&table[slot], from, from + count.count()))
        };
        let is_fitting = match UNION_MEMBERS.iter().find_map(occurs) {
            Some((field, from, to)) => {
                let node = self.types.node(field.node());
                self.occurrences(field, node, from, to)?
            }
            None => {
                self.out.extend_from_slice(b"null");
                true
            }
        };
        self.fields.truncate(begin);
        self.depth -= 1;
        is_fitting.then_some(()).ok_or(InvalidProtobuf::Malformed)
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

#[cfg(test)]
mod tests;

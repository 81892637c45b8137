//! Limits the memory of a decoded value: a body of three bytes for each value (`{},`) takes a few hundred times its size
//! once it is decoded.

use std::cell::Cell;

/// The estimated memory of an item in a list: the value, and the spare capacity of the growing list.
const ITEM_BYTES: usize = 48;

/// The estimated memory of a list with one item, less [`ITEM_BYTES`]: it has space for four.
const LIST_BYTES: usize = 96;

/// The estimated memory of a member in a map of many members: nodes of 632 bytes have six members when they are filled in
/// order. The memory of the name is extra.
const MEMBER_BYTES: usize = 104;

/// The estimated memory of a map with one member, less [`MEMBER_BYTES`]: its only node has space for eleven.
const MAP_BYTES: usize = 528;

/// The estimated overhead of the allocation of a name.
const NAME_BYTES: usize = 16;

/// The estimated memory that the text of a value takes beside its bytes: the smallest allocation has 32 bytes, and a text
/// in a set is also the name of a managed field.
const TEXT_BYTES: usize = 32;

/// The estimated memory in bytes that an object may take. It admits what fits into storage (1.5 MiB): config maps of short
/// keys, and lists of 700,000 numbers or of 40,000 small objects. Defaults, validation and managed fields take up to three
/// times as much.
pub const OBJECT_BYTES_MAX: usize = 39 << 20;

/// The estimated memory in bytes that a patch or an applied configuration may take: the present object, the result and the
/// fields of both are in memory at the same time. It admits 130,000 short keys, 300,000 numbers or 18,000 small objects.
pub const PATCH_BYTES_MAX: usize = 16 << 20;

/// The number of values and the estimated memory that decoded values may take together.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: usize,
    used: Cell<usize>,
    values: Cell<usize>,
}

/// A body exceeds its [`MemoryBudget`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the object is too large: its first {values} values already take {used} bytes of memory, and at most {bytes_max} \
     are allowed: use fewer or larger values, or several objects"
)]
pub struct MemoryExceeded {
    /// The number of values decoded before the limit was exceeded.
    pub values: usize,
    /// The estimated memory of these values in bytes.
    pub used: usize,
    /// The limit in bytes.
    pub bytes_max: usize,
}

impl MemoryBudget {
    /// A budget without a limit, for values that are in memory already.
    pub const fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// A budget of `bytes_max` bytes of estimated memory.
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            used: Cell::new(0),
            values: Cell::new(0),
        }
    }

    /// Returns the error if the budget is exceeded.
    ///
    /// # Errors
    /// [`MemoryExceeded`]
    pub fn check(&self) -> Result<(), MemoryExceeded> {
        let used = self.used.get();
        if used <= self.bytes_max {
            return Ok(());
        }
        Err(MemoryExceeded {
            values: self.values.get(),
            used,
            bytes_max: self.bytes_max,
        })
    }

    /// Counts an item of a list; the first item of a list also counts the list.
    ///
    /// # Errors
    /// [`MemoryExceeded`]
    pub fn count_item(&self, is_first: bool) -> Result<(), MemoryExceeded> {
        let list = if is_first { LIST_BYTES } else { 0 };
        self.count_value(ITEM_BYTES + list)
    }

    /// Counts a member of a map that has this name; the first member of a map also counts the map.
    ///
    /// # Errors
    /// [`MemoryExceeded`]
    pub fn count_member(&self, name: &str, is_first: bool) -> Result<(), MemoryExceeded> {
        let map = if is_first { MAP_BYTES } else { 0 };
        self.count_value(MEMBER_BYTES + map + NAME_BYTES + name.len())
    }

    /// Counts an empty map in a list: defaults may add members to it.
    ///
    /// # Errors
    /// [`MemoryExceeded`]
    pub fn count_empty_map(&self) -> Result<(), MemoryExceeded> {
        self.count_bytes(MAP_BYTES + MEMBER_BYTES)
    }

    /// Counts the text of a value.
    ///
    /// # Errors
    /// [`MemoryExceeded`]
    pub fn count_text(&self, text: &str) -> Result<(), MemoryExceeded> {
        match text.len() {
            0 => Ok(()),
            length => self.count_bytes(length + TEXT_BYTES),
        }
    }

    fn count_value(&self, bytes: usize) -> Result<(), MemoryExceeded> {
        self.values.set(self.values.get() + 1);
        self.count_bytes(bytes)
    }

    fn count_bytes(&self, bytes: usize) -> Result<(), MemoryExceeded> {
        self.used.set(self.used.get().saturating_add(bytes));
        self.check()
    }
}

/// Returns the estimated memory in bytes of a value that is in memory, as a [`MemoryBudget`] counts it.
pub fn memory_of(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) if text.is_empty() => 0,
        Value::String(text) => text.len() + TEXT_BYTES,
        Value::Array(items) if items.is_empty() => 0,
        Value::Array(items) => {
            let items = items.iter().map(|item| {
                let empty = item.as_object().is_some_and(serde_json::Map::is_empty);
                let map = if empty { MAP_BYTES + MEMBER_BYTES } else { 0 };
                ITEM_BYTES + map + memory_of(item)
            });
            LIST_BYTES + items.sum::<usize>()
        }
        Value::Object(members) if members.is_empty() => 0,
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, member)| MEMBER_BYTES + NAME_BYTES + name.len() + memory_of(member));
            MAP_BYTES + members.sum::<usize>()
        }
    }
}

/// The values of an object, counted before it is decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueCounts {
    /// Objects and maps.
    pub maps: usize,
    /// The members of all maps.
    pub members: usize,
    /// Lists.
    pub lists: usize,
    /// The items of all lists.
    pub items: usize,
    /// Names of members, and texts.
    pub texts: usize,
    /// The bytes of all names and texts.
    pub text_bytes: usize,
}

impl ValueCounts {
    /// Returns an upper bound of the memory in bytes that the values take.
    pub fn memory(self) -> usize {
        self.maps * (MAP_BYTES + MEMBER_BYTES)
            + self.members * MEMBER_BYTES
            + self.lists * (LIST_BYTES + ITEM_BYTES)
            + self.items * ITEM_BYTES
            + self.texts * TEXT_BYTES
            + self.text_bytes
    }
}

/// Returns an upper bound of the memory in bytes that a JSON text takes once it is decoded, without decoding it. Reads
/// each byte once.
pub fn memory_of_json(text: &[u8]) -> usize {
    let mut counts = ValueCounts {
        text_bytes: text.len(),
        ..ValueCounts::default()
    };
    let mut bytes = text;
    while let Some((byte, rest)) = bytes.split_first() {
        bytes = rest;
        match byte {
            b'{' => counts.maps += 1,
            // A null in a list of objects is decoded as an object without members. Outside of strings only `null` has an `n`.
            b'n' => counts.maps += 1,
            b':' => counts.members += 1,
            b'[' => counts.lists += 1,
            b',' => counts.items += 1,
            b'"' => {
                counts.texts += 1;
                bytes = skip_string(bytes);
            }
            _ => {}
        }
    }
    counts.memory()
}

/// The number of bytes of a string after which memchr is faster than a loop over the bytes. Most strings are shorter, and so is the
/// distance between the escapes of JSON in a string, as in `last-applied-configuration`.
const SHORT_BYTES: usize = 16;

/// Returns the input after the closing quotation mark of a JSON string. The caller has consumed the opening one.
fn skip_string(mut text: &[u8]) -> &[u8] {
    let mut left = SHORT_BYTES;
    while let Some((byte, rest)) = text.split_first() {
        text = rest;
        match byte {
            b'"' => return text,
            b'\\' => {
                // A backslash can be the last byte of invalid JSON.
                text = text.get(1..).unwrap_or_default();
                left = SHORT_BYTES;
            }
            _ if left > 0 => left -= 1,
            _ => {
                let end = memchr::memchr2(b'"', b'\\', text).unwrap_or(text.len());
                text = &text[end..];
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode_untyped;

    fn decoded(value: &Value, bytes_max: usize) -> Result<Value, MemoryExceeded> {
        let budget = MemoryBudget::new(bytes_max);
        let decoded = decode_untyped(value, &budget);
        budget
            .check()
            .map(|()| decoded.expect("a value is valid").value)
    }

    /// The three ways to count agree: while decoding, of a value, and the bound by the text.
    #[test]
    fn estimates_agree() {
        for value in [
            json!(1),
            json!([1, 2, 3]),
            json!({"a": "text", "b": {"c": [true, null]}, "d": {}}),
            json!([{}, {}, {"a": 0}, ""]),
            json!({"say \"{[,:]}\"": "a\\\"{{{{"}),
            json!({"long": "x".repeat(40) + "\"{[,:]}\\" + &"y".repeat(40)}),
        ] {
            let memory = memory_of(&value);
            assert_eq!(decoded(&value, memory), Ok(value.clone()), "{value}");
            if memory > 0 {
                let exceeded = decoded(&value, memory - 1).unwrap_err();
                assert_eq!(exceeded.used, memory, "{value}");
            }
            let bound = memory_of_json(value.to_string().as_bytes());
            assert!(
                bound >= memory && bound <= 3 * memory + 40,
                "{value}: {bound} {memory}"
            );
        }
    }

    /// A million `{}` took 950 MB; decoding ends at the limit, before the list is complete.
    #[test]
    fn decoding_ends_at_the_limit() {
        let text = format!("[{}{{}}]", "{},".repeat(1_000_000));
        let budget = MemoryBudget::new(1 << 20);
        let mut reader = serde_json::Deserializer::from_str(&text);
        let error = decode_untyped(&mut reader, &budget).unwrap_err();
        let exceeded = budget.check().unwrap_err();
        assert!(
            error.to_string().starts_with(&exceeded.to_string()),
            "{error}"
        );
        assert!(exceeded.values < 2_000, "{exceeded}");
        assert!(reader.end().is_err(), "the rest was not read");
    }
}

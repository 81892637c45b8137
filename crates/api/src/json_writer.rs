//! Writes the same JSON as serde_json, but copies strings that need no escaping in a single call.

use serde_json::Value;

/// Appends `value` as JSON, the same bytes as `serde_json::to_vec` returns.
///
/// ```
/// let value = serde_json::json!({"kind": "Pod", "metadata": {"name": "say \"hi\""}});
/// let mut out = Vec::new();
/// watchet_api::write_json(&value, &mut out);
/// assert_eq!(out, br#"{"kind":"Pod","metadata":{"name":"say \"hi\""}}"#);
/// ```
pub fn write_json(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => {
            serde_json::to_writer(out, number).expect("writing a number to a Vec cannot fail");
        }
        Value::String(text) => write_json_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_json(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (at, (name, member)) in members.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_json_string(name, out);
                out.push(b':');
                write_json(member, out);
            }
            out.push(b'}');
        }
    }
}

/// Appends `text` as a JSON string, with its quotation marks.
///
/// ```
/// let mut out = Vec::new();
/// watchet_api::write_json_string("say \"hi\"", &mut out);
/// assert_eq!(out, br#""say \"hi\"""#);
/// ```
pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    if needs_escaping(text.as_bytes()) {
        return serde_json::to_writer(out, text).expect("writing a string to a Vec cannot fail");
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Returns true if a byte of the string is escaped in JSON.
fn needs_escaping(text: &[u8]) -> bool {
    // The last word overlaps the one before, so that no bytes are left. Strings of 4 to 7 bytes are read as two overlapping
    // halves of a word, shorter ones byte by byte.
    if let Some(last) = text.last_chunk::<8>() {
        let (chunks, _) = text.as_chunks::<8>();
        let mut words = chunks.iter().chain([last]);
        return words.any(|word| any_byte_needs_escaping(u64::from_ne_bytes(*word)));
    }
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_ne_bytes(*half)));
        return any_byte_needs_escaping(first << 32 | last);
    }
    text.iter()
        .any(|byte| *byte < b' ' || [b'"', b'\\'].contains(byte))
}

/// Returns true if one of the eight bytes of `word` is escaped in JSON.
fn any_byte_needs_escaping(word: u64) -> bool {
    const fn splat(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    // For a byte b < 0x80, b - n has the highest bit set if and only if b < n; b ^ c is less than 1 only for b = c. `!word`
    // excludes bytes from 0x80. A byte borrows from the next one only if it is a match itself, so the result remains right.
    let control = word.wrapping_sub(splat(b' '));
    let quote = (word ^ splat(b'"')).wrapping_sub(splat(1));
    let backslash = (word ^ splat(b'\\')).wrapping_sub(splat(1));
    (control | quote | backslash) & !word & splat(0x80) != 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        write_json(value, &mut out);
        out
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = prop_oneof!["[ -~]{0,40}", any::<String>()];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, move |inner| {
            let members = prop::collection::btree_map(text.clone(), inner.clone(), 0..8);
            prop_oneof![
                prop::collection::vec(inner, 0..8).prop_map(Value::from),
                members.prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_bytes_are_those_of_serde_json(value in values()) {
            prop_assert_eq!(written(&value), serde_json::to_vec(&value).unwrap());
        }
    }

    /// Each byte at each position of strings of 1 to 19 bytes.
    #[test]
    fn exactly_the_escaped_bytes_are_found() {
        for byte in 0..=u8::MAX {
            let is_escaped = byte < b' ' || byte == b'"' || byte == b'\\';
            for length in 1..20 {
                for at in 0..length {
                    let mut text = vec![b'x'; length];
                    text[at] = byte;
                    assert_eq!(
                        needs_escaping(&text),
                        is_escaped,
                        "{byte} at {at} of {length}"
                    );
                }
            }
        }
        assert!(!needs_escaping(b""));
    }
}

//! Mutations of inputs. An input is a text of one or more parts, separated by lines of `---`. A part that is JSON is mostly
//! changed as a tree, so that the result is JSON again; everything else is changed as bytes.

use serde_json::{Map, Value};

/// The separator of the parts of an input.
const SEPARATOR: &[u8] = b"\n---\n";

/// The maximum number of mutations of one input.
const MUTATIONS_MAX: u32 = 6;

/// Numbers at the limits of types, and texts that are special in several formats.
const TOKENS: &[&str] = &[
    "0",
    "-1",
    "1",
    "127",
    "128",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e-308",
    "1e400",
    "-0.0",
    "0.1",
    "NaN",
    "null",
    "true",
    "false",
    "\"\"",
    "{}",
    "[]",
    "[[",
    "{\"",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "\u{7f}",
    "\u{e9}",
    "\u{1f600}",
    "\u{feff}",
    "\u{2028}",
    "%00",
    "%2F",
    "%",
    "..",
    "/",
    "//",
    "~0",
    "~1",
    "*",
    "$",
    ",",
    ":",
    "=",
    "!=",
    "'",
    "\"",
    "`",
    "\\",
    "\n",
    "\r\n",
    "\t",
    " ",
    "---",
    "- ",
    "&a *a",
    "!!binary",
    "<<: ",
];

/// Makes inputs from others by a random generator.
#[derive(Debug)]
pub struct Mutator {
    random: fastrand::Rng,
    dictionary: &'static [&'static str],
    bytes_max: usize,
}

impl Mutator {
    /// Returns a mutator that inserts words of `dictionary`. Inputs have at most `bytes_max` bytes.
    pub fn new(seed: u64, dictionary: &'static [&'static str], bytes_max: usize) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            dictionary,
            bytes_max,
        }
    }

    /// Returns a random index below `count`, which is not zero. Half of the results are in the last eighth: an input that
    /// was found last is worth more.
    pub fn choose(&mut self, count: usize) -> usize {
        match self.random.bool() {
            true => self.random.usize(count - (count / 8).max(1)..count),
            false => self.random.usize(..count),
        }
    }

    /// Returns an input that was made from `input` and, if they are combined, `other`.
    pub fn mutate(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = split(input).map(<[u8]>::to_vec).collect();
        let others: Vec<&[u8]> = split(other).collect();
        let count = 1 + self
            .random
            .u32(..MUTATIONS_MAX)
            .min(self.random.u32(..MUTATIONS_MAX));
        for _ in 0..count {
            let at = self.random.usize(..parts.len());
            // Most often the part at the same place, which has the same format.
            let from = match self.random.u8(..8) {
                0 => self.random.usize(..others.len()),
                _ => at.min(others.len() - 1),
            };
            let other = others[from];
            match self.random.u8(..32) {
                0 => parts[at] = other.to_vec(),
                1 if parts.len() > 1 => drop(parts.remove(at)),
                2 => parts.insert(at, other.to_vec()),
                _ => self.part(&mut parts[at], other),
            }
        }
        let mut mutated = parts.join(SEPARATOR);
        mutated.truncate(self.bytes_max);
        mutated
    }

    fn part(&mut self, part: &mut Vec<u8>, other: &[u8]) {
        if self.random.u8(..5) > 0
            && let Ok(mut tree) = serde_json::from_slice::<Value>(part)
            && !tree.is_number()
        {
            let other = serde_json::from_slice(other).unwrap_or(Value::Null);
            self.tree(&mut tree, &other);
            // A value that was parsed can be written.
            *part = tree.to_string().into_bytes();
            return;
        }
        self.bytes(part, other);
    }

    fn bytes(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.random.usize(..=bytes.len());
        let length = self.length().min(bytes.len() - at);
        let range = at..at + length;
        match self.random.u8(..12) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.random.u8(..8),
            1 if at < bytes.len() => bytes[at] = self.random.u8(..),
            2 if at < bytes.len() => {
                bytes[at] = *self.random.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap_or(&0)
            }
            3 => drop(bytes.drain(range)),
            4 => {
                let copied = bytes[range].to_vec();
                let times = *self.random.choice(&[1, 1, 1, 2, 16, 200]).unwrap_or(&1);
                let copied = copied.repeat(times);
                bytes.splice(at..at, copied.into_iter().take(self.bytes_max));
            }
            5 | 6 if !other.is_empty() => {
                let from = self.random.usize(..other.len());
                let copied = other[from..].iter().take(self.length()).copied();
                let end = match self.random.bool() {
                    true => at,
                    false => range.end,
                };
                bytes.splice(at..end, copied);
            }
            7 => self.number(bytes),
            8 => bytes.truncate(at),
            9 => drop(bytes.splice(at..at, [self.random.u8(..)])),
            _ => {
                let token = self.token();
                let end = match self.random.bool() {
                    true => at,
                    false => range.end,
                };
                bytes.splice(at..end, token.bytes());
            }
        }
    }

    /// Replaces a decimal number.
    fn number(&mut self, bytes: &mut Vec<u8>) {
        let from = self.random.usize(..=bytes.len());
        let Some(start) = bytes[from..].iter().position(u8::is_ascii_digit) else {
            return;
        };
        let start = from + start;
        let length = bytes[start..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        let number = match self.random.u8(..3) {
            0 => self.random.u8(..).to_string(),
            1 => self.random.u64(..).to_string(),
            _ => TOKENS[self.random.usize(..25)].to_owned(),
        };
        bytes.splice(start..start + length, number.bytes());
    }

    /// A length that is small mostly.
    fn length(&mut self) -> usize {
        let magnitude = self.random.u32(..11);
        1 << self.random.u32(..=magnitude)
    }

    fn token(&mut self) -> &'static str {
        let from = match self.dictionary.is_empty() || self.random.u8(..3) == 0 {
            true => TOKENS,
            false => self.dictionary,
        };
        from[self.random.usize(..from.len())]
    }

    /// Changes a random value of a tree, or its member name.
    fn tree(&mut self, tree: &mut Value, other: &Value) {
        let steps = self.random.usize(..count(tree));
        let donated = match self.random.bool() {
            true => nth(other, self.random.usize(..count(other))).clone(),
            false => nth(tree, self.random.usize(..count(tree))).clone(),
        };
        let value = nth_mut(tree, steps);
        match value {
            Value::Object(members) if self.random.u8(..3) > 0 => self.members(members, donated),
            Value::Array(items) if self.random.u8(..3) > 0 => self.items(items, donated),
            Value::String(text) if self.random.u8(..4) > 0 => {
                let mut bytes = std::mem::take(text).into_bytes();
                let other = donated.as_str().unwrap_or_default().to_owned();
                self.bytes(&mut bytes, other.as_bytes());
                *text = String::from_utf8_lossy(&bytes).into_owned();
            }
            Value::Bool(flag) => *flag = !*flag,
            value => match self.random.u8(..4) {
                0 => {
                    let magnitude = self.random.u32(..8);
                    let levels = self.random.u32(..=magnitude);
                    let mut nested = value.take();
                    for _ in 0..1_u32 << levels {
                        nested = match self.random.bool() {
                            true => Value::Array(vec![nested]),
                            false => Value::Object(Map::from_iter([("a".to_owned(), nested)])),
                        };
                    }
                    *value = nested;
                }
                1 => *value = donated,
                _ => *value = self.scalar(),
            },
        }
    }

    fn members(&mut self, members: &mut Map<String, Value>, donated: Value) {
        let chosen = self.random.usize(..members.len().max(1));
        let name = members.keys().nth(chosen).cloned().unwrap_or_default();
        match self.random.u8(..6) {
            0 | 1 => drop(members.remove(&name)),
            2 => drop(members.insert(name, donated)),
            3 => {
                let value = members.remove(&name).unwrap_or(donated);
                let mut renamed = name.into_bytes();
                self.bytes(&mut renamed, b"metadata");
                members.insert(String::from_utf8_lossy(&renamed).into_owned(), value);
            }
            _ => {
                let name = self.token().trim_matches('"').to_owned();
                members.insert(name, donated);
            }
        }
    }

    fn items(&mut self, items: &mut Vec<Value>, donated: Value) {
        let at = self.random.usize(..=items.len());
        match self.random.u8(..5) {
            0 if at < items.len() => drop(items.remove(at)),
            1 if at < items.len() => items.insert(at, items[at].clone()),
            2 if at < items.len() => {
                let to = self.random.usize(..items.len());
                items.swap(at, to);
            }
            3 => items.insert(at, self.scalar()),
            _ => items.insert(at, donated),
        }
    }

    fn scalar(&mut self) -> Value {
        let token = self.token();
        match self.random.bool() {
            true => Value::from(token),
            false => {
                serde_json::from_str(token).unwrap_or_else(|_| Value::from(self.random.i32(..)))
            }
        }
    }
}

/// Returns the parts of an input; at least one.
pub fn split(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(input);
    std::iter::from_fn(move || {
        let input = rest?;
        let end = input
            .windows(SEPARATOR.len())
            .position(|window| window == SEPARATOR);
        rest = end.map(|end| &input[end + SEPARATOR.len()..]);
        Some(&input[..end.unwrap_or(input.len())])
    })
}

/// Returns the inputs that lack one value of one part that is JSON, or the values of one of its containers.
pub fn without_values(input: &[u8]) -> Vec<Vec<u8>> {
    let parts: Vec<&[u8]> = split(input).collect();
    let mut smaller = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let Ok(tree) = serde_json::from_slice::<Value>(part) else {
            continue;
        };
        for step in 0..count(&tree) {
            let children = match nth(&tree, step) {
                Value::Object(members) => members.len(),
                Value::Array(items) => items.len(),
                _ => 0,
            };
            for child in 0..children {
                let mut tree = tree.clone();
                match nth_mut(&mut tree, step) {
                    Value::Object(members) => {
                        let name = members.keys().nth(child).cloned().unwrap_or_default();
                        members.remove(&name);
                    }
                    Value::Array(items) => drop(items.remove(child)),
                    _ => {}
                }
                let text = tree.to_string();
                let mut parts = parts.clone();
                parts[at] = text.as_bytes();
                smaller.push(parts.join(SEPARATOR));
            }
        }
    }
    smaller
}

/// Returns the number of values in a tree, with itself.
fn count(tree: &Value) -> usize {
    match tree {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// Returns the value at this position of a walk, parents first; the tree itself if there is none.
fn nth(tree: &Value, mut position: usize) -> &Value {
    let children: Vec<&Value> = match tree {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    };
    if position == 0 {
        return tree;
    }
    position -= 1;
    for child in children {
        let size = count(child);
        if position < size {
            return nth(child, position);
        }
        position -= size;
    }
    tree
}

/// As [`nth`].
fn nth_mut(tree: &mut Value, mut position: usize) -> &mut Value {
    let mut current = tree;
    while let Some(below) = position.checked_sub(1) {
        position = below;
        let children: Vec<&mut Value> = match current {
            Value::Array(items) => items.iter_mut().collect(),
            Value::Object(members) => members.values_mut().collect(),
            other => return other,
        };
        let mut found = None;
        for child in children {
            let size = count(child);
            if position < size {
                found = Some(child);
                break;
            }
            position -= size;
        }
        current = found.expect("the position is less than the number of values");
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs() {
        let made = || {
            let mut mutator = Mutator::new(7, &["word"], 64);
            (0..200)
                .map(|_| mutator.mutate(b"{\"a\":[1,2]}\n---\nx=1", b"{\"b\":\"c\"}"))
                .collect::<Vec<_>>()
        };
        let inputs = made();
        assert_eq!(inputs, made());
        assert!(inputs.iter().all(|input| input.len() <= 64));
        let changed = inputs
            .iter()
            .filter(|input| **input != b"{\"a\":[1,2]}\n---\nx=1");
        assert!(changed.count() > 180);
    }

    #[test]
    fn values_are_removed_one_at_a_time() {
        let smaller = without_values(b"{\"a\":[1,{\"b\":2}]}\n---\nx");
        let texts: Vec<_> = smaller
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes))
            .collect();
        let expected = ["{}", "{\"a\":[{\"b\":2}]}", "{\"a\":[1]}", "{\"a\":[1,{}]}"];
        assert_eq!(texts, expected.map(|json| format!("{json}\n---\nx")));
    }
}

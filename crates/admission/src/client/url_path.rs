//! The path of a webhook's URL, as upstream's client posts to it: decoded, cleaned as by Go's `path.Join`, and
//! encoded again as by Go's `url.URL`.

use std::fmt::Write as _;

/// Decodes percent escapes; returns `None` if an escape is invalid.
pub(super) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            byte => byte,
        };
        decoded.push(byte);
    }
    Some(decoded)
}

/// Makes a decoded path absolute, without empty and dot segments and without a slash at its end, and encodes it.
pub(super) fn clean(path: &[u8]) -> String {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut encoded = String::new();
    for segment in &segments {
        encoded.push('/');
        for byte in *segment {
            match byte {
                b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b':' | b';' | b'='
                | b'@' => encoded.push(char::from(*byte)),
                byte if byte.is_ascii_alphanumeric() => encoded.push(char::from(*byte)),
                byte => drop(write!(encoded, "%{byte:02X}")),
            }
        }
    }
    match encoded.is_empty() {
        true => "/".to_owned(),
        false => encoded,
    }
}

//! Percent-encoding of paths and queries.

/// Decodes the `%XX` escapes in `text`; `None` if one is truncated or not hexadecimal.
pub(crate) fn decode_bytes(text: &str, plus_is_space: bool) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                (high * 16 + low) as u8
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    Some(out)
}

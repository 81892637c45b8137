//! Writers of the protobuf wire format.

/// The wire type of integers and booleans.
pub(super) const VARINT: u32 = 0;
/// The wire type of doubles.
pub(super) const FIXED64: u32 = 1;
/// The wire type of strings, bytes and messages.
pub(super) const BYTES: u32 = 2;

/// Appends a field of bytes, a string or an encoded message.
pub(super) fn bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    key(number, BYTES, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Appends a field with a number.
pub(super) fn varint_field(number: u32, value: u64, out: &mut Vec<u8>) {
    key(number, VARINT, out);
    varint(value, out);
}

/// Appends the number and the wire type of a field.
pub(super) fn key(number: u32, wire: u32, out: &mut Vec<u8>) {
    varint(u64::from(number << 3 | wire), out);
}

/// Appends a varint.
pub(super) fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the length of a varint in bytes.
pub(super) fn varint_len(value: u64) -> usize {
    let bits = u64::BITS - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Returns the length of the number and wire type of a field.
pub(super) fn key_len(number: u32) -> usize {
    varint_len(u64::from(number << 3))
}

/// Returns the length of a field of `content` bytes.
pub(super) fn bytes_len(number: u32, content: usize) -> usize {
    key_len(number) + varint_len(content as u64) + content
}

//! HTTP/2 frames written by hand, for clients that do not follow the protocol.

/// What a client sends first: the preface and empty SETTINGS.
pub(super) fn preface() -> Vec<u8> {
    [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &SETTINGS.frame(0, 0, &[]),
    ]
    .concat()
}

/// A type of frame.
#[derive(Clone, Copy)]
pub(super) struct Kind(u8);

pub(super) const DATA: Kind = Kind(0);
pub(super) const HEADERS: Kind = Kind(1);
pub(super) const RST_STREAM: Kind = Kind(3);
pub(super) const SETTINGS: Kind = Kind(4);
pub(super) const PING: Kind = Kind(6);
pub(super) const CONTINUATION: Kind = Kind(9);

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

impl Kind {
    pub(super) fn frame(self, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("less than 16 MiB");
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([self.0, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }
}

/// Encodes a header without compression.
pub(super) fn header(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| {
        assert!(text.len() < 127, "one byte has the length");
        text.len() as u8
    };
    let mut encoded = vec![0, length(name)];
    encoded.extend(name.as_bytes());
    encoded.push(length(value));
    encoded.extend(value.as_bytes());
    encoded
}

/// Encodes the pseudo-headers of a request.
pub(super) fn request(method: &str, path: &str) -> Vec<u8> {
    [
        (":method", method),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
    ]
    .map(|(name, value)| header(name, value))
    .concat()
}

/// Encodes a header of 4,000 bytes and adds it to the table of the connection, where index 62 is the latest one.
pub(super) fn indexed_header() -> Vec<u8> {
    // 4,000 is 127, and the rest in groups of seven bits (RFC 7541, 5.1): 30 * 128 + 33.
    let length = [0x7f, 0x80 + 33, 30];
    [&[0x40, 1, b'x'][..], &length, &[b'x'; 4000]].concat()
}

/// A reference to the latest header of the table.
pub(super) const INDEXED_HEADER: u8 = 0x80 + 62;

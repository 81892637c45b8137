//! Encodes records and index heads: fixed fields, then key and value, under a checksum that also
//! covers the revision or key at which they are stored.

use super::error::Fault;

const CRC_LEN: usize = 4;
const LIVE: u8 = 1;

/// One revision of one key in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// The key.
    pub(super) key: &'a str,
    /// The value; `None` is a tombstone.
    pub(super) value: Option<&'a [u8]>,
    /// The revision that created the key (after its last deletion).
    pub(super) created: u64,
    /// The revision of the key's previous record, value or tombstone; 0 if there is none.
    pub(super) previous: u64,
    /// When the key expires, in milliseconds since the epoch; 0 for never.
    pub(super) expires_ms: u64,
}

/// The length of a record without its key and value.
pub(super) const RECORD_FIXED_LEN: usize = CRC_LEN + 1 + 8 + 8 + 8 + 4;

impl<'a> Record<'a> {
    /// Appends this record, at `revision`, to `bytes`.
    pub(super) fn encode(&self, revision: u64, bytes: &mut Vec<u8>) {
        let value = self.value.unwrap_or_default();
        let start = bytes.len();
        bytes.reserve(RECORD_FIXED_LEN + self.key.len() + value.len());
        bytes.extend([0; CRC_LEN]);
        bytes.push(if self.value.is_some() { LIVE } else { 0 });
        bytes.extend(self.created.to_le_bytes());
        bytes.extend(self.previous.to_le_bytes());
        bytes.extend(self.expires_ms.to_le_bytes());
        // A key comes from a URL or from this program and is far below 4 GiB.
        let key_len = u32::try_from(self.key.len()).expect("a key is shorter than 4 GiB");
        bytes.extend(key_len.to_le_bytes());
        bytes.extend(self.key.as_bytes());
        bytes.extend(value);
        seal(&mut bytes[start..], &revision.to_le_bytes());
    }

    /// Decodes the record stored at `revision`.
    pub(super) fn decode(revision: u64, bytes: &'a [u8]) -> Result<Self, Fault> {
        let damaged = || Fault::Damaged(format!("record of revision {revision} is damaged"));
        let mut rest = unseal(bytes, &revision.to_le_bytes()).ok_or_else(damaged)?;
        let [flags] = take(&mut rest).ok_or_else(damaged)?;
        let created = number(&mut rest).ok_or_else(damaged)?;
        let previous = number(&mut rest).ok_or_else(damaged)?;
        let expires_ms = number(&mut rest).ok_or_else(damaged)?;
        let key_len = u32::from_le_bytes(take(&mut rest).ok_or_else(damaged)?);
        let (key, value) = usize::try_from(key_len)
            .ok()
            .and_then(|key_len| rest.split_at_checked(key_len))
            .ok_or_else(damaged)?;
        // The chain of revisions must decrease, so that a damaged pointer cannot cause an endless
        // loop.
        if previous >= revision || created > revision {
            return Err(damaged());
        }
        Ok(Self {
            key: std::str::from_utf8(key).map_err(|_| damaged())?,
            value: (flags & LIVE != 0).then_some(value),
            created,
            previous,
            expires_ms,
        })
    }

    /// Returns the head of the key, if this record, at `revision`, is its last.
    pub(super) fn head(&self, revision: u64) -> Head {
        Head {
            modified: revision,
            created: self.created,
            expires_ms: self.expires_ms,
            live: self.value.is_some(),
        }
    }

    /// Returns true if this record creates its key.
    pub(super) fn is_create(&self, revision: u64) -> bool {
        self.created == revision
    }
}

/// The current state of a key: the head of its chain of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The revision of its last record.
    pub(super) modified: u64,
    /// The revision that created it (after its last deletion).
    pub(super) created: u64,
    /// When it expires, in milliseconds since the epoch; 0 for never.
    pub(super) expires_ms: u64,
    /// True if the key exists; a deleted key remains until its tombstone is collected.
    pub(super) live: bool,
}

impl Head {
    /// Returns true if the key expires.
    pub(super) fn expires(&self) -> bool {
        self.live && self.expires_ms != 0
    }

    /// Returns the bytes of this head of `key`.
    pub(super) fn encode(&self, key: &str) -> Vec<u8> {
        let mut bytes = vec![0; CRC_LEN];
        bytes.push(if self.live { LIVE } else { 0 });
        bytes.extend(self.modified.to_le_bytes());
        bytes.extend(self.created.to_le_bytes());
        bytes.extend(self.expires_ms.to_le_bytes());
        seal(&mut bytes, key.as_bytes());
        bytes
    }

    /// Decodes the head stored for `key`.
    pub(super) fn decode(key: &str, bytes: &[u8]) -> Result<Self, Fault> {
        let damaged = || Fault::Damaged(format!("index entry of {key} is damaged"));
        let mut rest = unseal(bytes, key.as_bytes()).ok_or_else(damaged)?;
        let [flags] = take(&mut rest).ok_or_else(damaged)?;
        let head = Self {
            modified: number(&mut rest).ok_or_else(damaged)?,
            created: number(&mut rest).ok_or_else(damaged)?,
            expires_ms: number(&mut rest).ok_or_else(damaged)?,
            live: flags & LIVE != 0,
        };
        Ok(head)
    }
}

/// Returns the bytes of the number `name`.
pub(super) fn encode_number(name: &str, value: u64) -> Vec<u8> {
    let mut bytes = vec![0; CRC_LEN];
    bytes.extend(value.to_le_bytes());
    seal(&mut bytes, name.as_bytes());
    bytes
}

/// Decodes the number `name`; returns `None` if it is damaged.
pub(super) fn decode_number(name: &str, bytes: &[u8]) -> Option<u64> {
    let mut rest = unseal(bytes, name.as_bytes())?;
    number(&mut rest).filter(|_| rest.is_empty())
}

/// Writes the checksum of `place` and of the bytes after the checksum.
fn seal(bytes: &mut [u8], place: &[u8]) {
    let crc = checksum(place, &bytes[CRC_LEN..]);
    bytes[..CRC_LEN].copy_from_slice(&crc.to_le_bytes());
}

fn unseal<'a>(bytes: &'a [u8], place: &[u8]) -> Option<&'a [u8]> {
    let (crc, rest) = bytes.split_at_checked(CRC_LEN)?;
    (crc == checksum(place, rest).to_le_bytes()).then_some(rest)
}

fn checksum(place: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(place);
    hasher.update(rest);
    hasher.finalize()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(*head)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        for value in [None, Some(&b""[..]), Some(&b"value"[..])] {
            let record = Record {
                key: "/pods/ns/a",
                value,
                created: 3,
                previous: 6,
                expires_ms: 9,
            };
            let mut bytes = b"before".to_vec();
            record.encode(7, &mut bytes);
            let bytes = bytes.split_off(6);
            assert_eq!(Record::decode(7, &bytes).unwrap(), record);
            assert!(
                Record::decode(8, &bytes).is_err(),
                "stored at another revision"
            );
        }
        let head = Head {
            modified: 7,
            created: 3,
            expires_ms: 9,
            live: true,
        };
        let bytes = head.encode("/pods/ns/a");
        assert_eq!(Head::decode("/pods/ns/a", &bytes).unwrap(), head);
        assert!(Head::decode("/pods/ns/b", &bytes).is_err());
        let bytes = encode_number("revision", 5);
        assert_eq!(decode_number("revision", &bytes), Some(5));
        assert_eq!(decode_number("compacted", &bytes), None);
    }

    #[test]
    fn flipped_bits_and_truncation_are_detected() {
        let record = Record {
            key: "/pods/ns/a",
            value: Some(b"value"),
            created: 3,
            previous: 0,
            expires_ms: 0,
        };
        let mut bytes = Vec::new();
        record.encode(3, &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(3, &flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(
                Record::decode(3, &bytes[..len]).is_err(),
                "truncated at {len}"
            );
        }
    }
}

//! The bytes of a record: fixed fields, then key and value, under a checksum that also covers the
//! place where the record belongs. It knows no table.

use super::error::Fault;

const CRC_LEN: usize = 4;
const LIVE: u8 = 1;

/// One revision of one key, as the log holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Which key.
    pub(super) key: &'a str,
    /// What was written; `None` is a tombstone.
    pub(super) value: Option<&'a [u8]>,
    /// The revision that began the life of the key which this record belongs to.
    pub(super) created: u64,
    /// The key's record before, value or tombstone; 0 when there was none.
    pub(super) previous: u64,
    /// When it expires, in milliseconds since the epoch; 0 for never.
    pub(super) expires_ms: u64,
}

const RECORD_FIXED_LEN: usize = CRC_LEN + 1 + 8 + 8 + 8 + 4;

impl<'a> Record<'a> {
    /// The bytes of this record at `revision`.
    pub(super) fn encode(&self, revision: u64) -> Vec<u8> {
        let value = self.value.unwrap_or_default();
        let mut bytes = Vec::with_capacity(RECORD_FIXED_LEN + self.key.len() + value.len());
        bytes.extend([0; CRC_LEN]);
        bytes.push(if self.value.is_some() { LIVE } else { 0 });
        bytes.extend(self.created.to_le_bytes());
        bytes.extend(self.previous.to_le_bytes());
        bytes.extend(self.expires_ms.to_le_bytes());
        // A key comes from a URL or our own code and is far below 4 GiB.
        let key_len = u32::try_from(self.key.len()).expect("a key is shorter than 4 GiB");
        bytes.extend(key_len.to_le_bytes());
        bytes.extend(self.key.as_bytes());
        bytes.extend(value);
        seal(&mut bytes, &revision.to_le_bytes());
        bytes
    }

    /// Reads the record that should be at `revision`.
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
        // A chain of revisions only leads back: a wrong pointer must not become an endless walk.
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

    /// Whether this record begins a life of its key.
    pub(super) fn is_create(&self, revision: u64) -> bool {
        self.created == revision
    }
}

/// How a key is now: the head of its chain of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The revision of its last record.
    pub(super) modified: u64,
    /// The revision that began its (last) life.
    pub(super) created: u64,
    /// When it expires, in milliseconds since the epoch; 0 for never.
    pub(super) expires_ms: u64,
    /// Whether it exists; a deleted key stays until its tombstone is compacted.
    pub(super) live: bool,
}

impl Head {
    /// The bytes of this head of `key`.
    pub(super) fn encode(&self, key: &str) -> Vec<u8> {
        let mut bytes = vec![0; CRC_LEN];
        bytes.push(if self.live { LIVE } else { 0 });
        bytes.extend(self.modified.to_le_bytes());
        bytes.extend(self.created.to_le_bytes());
        bytes.extend(self.expires_ms.to_le_bytes());
        seal(&mut bytes, key.as_bytes());
        bytes
    }

    /// Reads the head that should be that of `key`.
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

/// The bytes of the number called `name`.
pub(super) fn encode_number(name: &str, value: u64) -> Vec<u8> {
    let mut bytes = vec![0; CRC_LEN];
    bytes.extend(value.to_le_bytes());
    seal(&mut bytes, name.as_bytes());
    bytes
}

/// Reads the number that should be the one called `name`; `None` when it is damaged.
pub(super) fn decode_number(name: &str, bytes: &[u8]) -> Option<u64> {
    let mut rest = unseal(bytes, name.as_bytes())?;
    number(&mut rest).filter(|_| rest.is_empty())
}

/// Writes the checksum of `place` and of what follows the checksum's own bytes.
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
    let (taken, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(*taken)
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
            let bytes = record.encode(7);
            assert_eq!(Record::decode(7, &bytes).unwrap(), record);
            assert!(Record::decode(8, &bytes).is_err(), "it belongs elsewhere");
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
    fn every_flipped_bit_and_every_cut_is_found() {
        let record = Record {
            key: "/pods/ns/a",
            value: Some(b"value"),
            created: 3,
            previous: 0,
            expires_ms: 0,
        };
        let bytes = record.encode(3);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(3, &flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Record::decode(3, &bytes[..len]).is_err(), "cut at {len}");
        }
    }
}

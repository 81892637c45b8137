//! What is stored: records and heads, with the same fields and lengths as those of `watchet_storage::embedded` (`codec`),
//! and the values of the load.

use anyhow::{Result, ensure};
use bytes::Bytes;

/// The length of a value.
pub(crate) const VALUE_BYTES: usize = 1_000;

/// The length of a head.
pub(crate) const HEAD_BYTES: usize = 4 + 1 + 8 + 8 + 8;

/// The length of a record without its key and value.
const RECORD_FIXED_BYTES: usize = 4 + 1 + 8 + 8 + 8 + 4;

/// The prefix of all keys.
pub(crate) const PREFIX: &str = "/configmaps/";

/// Returns the key of an object.
pub(crate) fn key(object: usize) -> String {
    format!("{PREFIX}default/map-{object:06}")
}

/// Returns the object of a key.
pub(crate) fn object(key: &str) -> Option<usize> {
    key.rsplit('-').next()?.parse().ok()
}

/// Returns the value of an object after `version` writes: both numbers and random text, which does not compress well.
pub(crate) fn value(object: usize, version: u64) -> Bytes {
    let mut random = fastrand::Rng::with_seed(((object as u64) << 32) ^ version);
    let mut text = format!("{object} {version} ").into_bytes();
    text.resize_with(VALUE_BYTES, || random.alphanumeric() as u8);
    text.into()
}

/// Returns the version of a value of `object`. Fails if it is not exactly what was written.
pub(crate) fn version(object: usize, found: &[u8]) -> Result<u64> {
    let text = String::from_utf8_lossy(&found[..found.len().min(40)]);
    let number = text
        .split(' ')
        .nth(1)
        .and_then(|number| number.parse().ok());
    let version = number.unwrap_or_default();
    ensure!(
        found == value(object, version),
        "the value of {object} is damaged: {text}"
    );
    Ok(version)
}

/// The current state of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// The revision of the last record.
    pub(crate) modified: u64,
    /// The revision of the first one.
    pub(crate) created: u64,
}

impl Head {
    pub(crate) fn encode(self, key: &str) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[4] = 1;
        bytes[5..13].copy_from_slice(&self.modified.to_le_bytes());
        bytes[13..21].copy_from_slice(&self.created.to_le_bytes());
        let sum = checksum(key.as_bytes(), &bytes[4..]);
        bytes[..4].copy_from_slice(&sum);
        bytes
    }

    pub(crate) fn decode(key: &str, bytes: &[u8]) -> Result<Self> {
        ensure!(
            bytes.len() == HEAD_BYTES && bytes[..4] == checksum(key.as_bytes(), &bytes[4..]),
            "the head of {key} is damaged"
        );
        let number = |at: usize| bytes[at..].first_chunk().map(|n| u64::from_le_bytes(*n));
        Ok(Self {
            modified: number(5).unwrap_or_default(),
            created: number(13).unwrap_or_default(),
        })
    }
}

/// Encodes the record of a write.
pub(crate) fn encode(
    revision: u64,
    key: &str,
    value: &[u8],
    created: u64,
    previous: u64,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_FIXED_BYTES + key.len() + value.len());
    bytes.extend([0; 4]);
    bytes.push(1);
    bytes.extend(created.to_le_bytes());
    bytes.extend(previous.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend((key.len() as u32).to_le_bytes());
    bytes.extend(key.as_bytes());
    bytes.extend(value);
    let sum = checksum(&revision.to_le_bytes(), &bytes[4..]);
    bytes[..4].copy_from_slice(&sum);
    bytes
}

/// Returns the value in the record of a revision of `key`.
pub(crate) fn decode<'a>(revision: u64, key: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    let value_at = RECORD_FIXED_BYTES + key.len();
    ensure!(
        bytes.len() >= value_at
            && bytes[..4] == checksum(&revision.to_le_bytes(), &bytes[4..])
            && bytes[RECORD_FIXED_BYTES..value_at] == *key.as_bytes(),
        "the record of revision {revision} is damaged"
    );
    Ok(&bytes[value_at..])
}

fn checksum(place: &[u8], bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(place);
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

/// Returns the bytes that a store has to store for an object of the load and for `superseded` older records: keys and
/// values of both tables.
pub(crate) fn live_bytes(objects: usize, superseded: usize) -> usize {
    let key = key(0).len();
    let record = 8 + RECORD_FIXED_BYTES + key + VALUE_BYTES;
    objects * (key + HEAD_BYTES + record) + superseded * record
}

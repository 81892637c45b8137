//! The frame: the unit of the write-ahead log. It has the records of one batch of the writer, so
//! that after a crash a batch is complete or missing.
//!
//! # Layout
//!
//! Numbers are little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | [`MAGIC`] |
//! | 4 | CRC-32 of the bytes after this field, up to the length |
//! | 4 | length of the frame in bytes, without padding |
//! | 4 | number of records |
//! | 8 | sequence: one more than that of the frame before |
//! | 8 | revision of the first record; the others follow it without holes |
//! | 8 | compacted revision after the batch |
//! | 4 + n, for each record | length of the record, and the record (see `codec`) |
//! | 0 to 7 | zeros, so that each frame begins at a multiple of [`ALIGNMENT`] |

use std::ops::Range;

/// The first bytes of each frame.
const MAGIC: [u8; 4] = *b"wtf1";
/// Frames begin at multiples of this number of bytes.
pub(super) const ALIGNMENT: usize = 8;
const CRC_AT: usize = 4;
const LEN_AT: usize = 8;
const COUNT_AT: usize = 12;
const SEQUENCE_AT: usize = 16;
const FIRST_AT: usize = 24;
const COMPACTED_AT: usize = 32;
const HEADER_LEN: usize = 40;
const RECORD_LEN_LEN: usize = 4;

/// A frame: the records of consecutive revisions, encoded as in the log file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Frame {
    bytes: Vec<u8>,
    /// The positions of the records in `bytes`.
    records: Vec<Range<usize>>,
    first: u64,
}

impl Frame {
    /// Returns an empty frame, whose first record is that of revision `first`. `capacity` is the
    /// expected length in bytes.
    pub(in super::super) fn begin(first: u64, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_LEN + capacity);
        bytes.resize(HEADER_LEN, 0);
        Self {
            bytes,
            records: Vec::new(),
            first,
        }
    }

    /// Appends the record that `encode` writes.
    pub(in super::super) fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let len_at = self.bytes.len();
        self.bytes.extend([0; RECORD_LEN_LEN]);
        let start = self.bytes.len();
        encode(&mut self.bytes);
        let range = start..self.bytes.len();
        self.bytes[len_at..start].copy_from_slice(&as_u32(range.len()).to_le_bytes());
        self.records.push(range);
    }

    /// Returns the length in bytes.
    pub(in super::super) fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Completes the frame: writes its header and checksum.
    pub(in super::super) fn seal(&mut self, sequence: u64, compacted: u64) {
        let len = as_u32(self.bytes.len());
        let count = as_u32(self.records.len());
        self.bytes[..CRC_AT].copy_from_slice(&MAGIC);
        self.bytes[LEN_AT..COUNT_AT].copy_from_slice(&len.to_le_bytes());
        self.bytes[COUNT_AT..SEQUENCE_AT].copy_from_slice(&count.to_le_bytes());
        self.bytes[SEQUENCE_AT..FIRST_AT].copy_from_slice(&sequence.to_le_bytes());
        self.bytes[FIRST_AT..COMPACTED_AT].copy_from_slice(&self.first.to_le_bytes());
        self.bytes[COMPACTED_AT..HEADER_LEN].copy_from_slice(&compacted.to_le_bytes());
        let crc = crc32fast::hash(&self.bytes[LEN_AT..]);
        self.bytes[CRC_AT..LEN_AT].copy_from_slice(&crc.to_le_bytes());
        let padded = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(padded, 0);
    }

    /// Decodes the frame at the beginning of `bytes`; `None` if there is no valid one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let len = valid_len(bytes)?;
        let (count, first) = (u32_at(bytes, COUNT_AT)?, u64_at(bytes, FIRST_AT)?);
        let (mut records, mut at) = (Vec::new(), HEADER_LEN);
        while at < len {
            let start = at + RECORD_LEN_LEN;
            at = start.checked_add(usize::try_from(u32_at(bytes, at)?).ok()?)?;
            if at > len {
                return None;
            }
            records.push(start..at);
        }
        if records.len() != usize::try_from(count).ok()? {
            return None;
        }
        let padded = len.next_multiple_of(ALIGNMENT).min(bytes.len());
        Some(Self {
            bytes: bytes[..padded].to_vec(),
            records,
            first,
        })
    }

    /// Returns the bytes to write to the file.
    pub(in super::super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the memory use in bytes.
    pub(in super::super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.records.capacity() * size_of::<Range<usize>>()
    }

    /// Returns the sequence of a sealed frame.
    pub(in super::super) fn sequence(&self) -> u64 {
        u64_at(&self.bytes, SEQUENCE_AT).unwrap_or_default()
    }

    /// Returns the compacted revision after a sealed frame.
    pub(in super::super) fn compacted(&self) -> u64 {
        u64_at(&self.bytes, COMPACTED_AT).unwrap_or_default()
    }

    /// Returns the revision of the first record. A frame without records has the next revision.
    pub(in super::super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the record of `revision`.
    pub(in super::super) fn record(&self, revision: u64) -> Option<&[u8]> {
        let index = usize::try_from(revision.checked_sub(self.first)?).ok()?;
        self.records
            .get(index)
            .map(|range| &self.bytes[range.clone()])
    }

    /// Returns the records with their revisions.
    pub(in super::super) fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let records = self.records.iter().map(|range| &self.bytes[range.clone()]);
        (self.first..).zip(records)
    }
}

/// Returns the sequence of the first valid frame in `bytes`, at any aligned offset from `from` on,
/// whose sequence is at least `sequence`.
pub(super) fn find_later(bytes: &[u8], from: usize, sequence: u64) -> Option<u64> {
    let first = from.next_multiple_of(ALIGNMENT);
    let places = (first..bytes.len()).step_by(ALIGNMENT);
    places
        .filter_map(|at| bytes.get(at..))
        .filter(|rest| rest.starts_with(&MAGIC))
        .filter(|rest| u64_at(rest, SEQUENCE_AT).is_some_and(|found| found >= sequence))
        .find(|rest| valid_len(rest).is_some())
        .and_then(|rest| u64_at(rest, SEQUENCE_AT))
}

/// Returns the length of the frame at the beginning of `bytes` if its checksum is correct.
fn valid_len(bytes: &[u8]) -> Option<usize> {
    if !bytes.starts_with(&MAGIC) {
        return None;
    }
    let crc = u32_at(bytes, CRC_AT)?;
    let len = usize::try_from(u32_at(bytes, LEN_AT)?).ok()?;
    if len < HEADER_LEN {
        return None;
    }
    (crc == crc32fast::hash(bytes.get(LEN_AT..len)?)).then_some(len)
}

/// A batch is bounded to some MiB, and so is a record.
fn as_u32(len: usize) -> u32 {
    u32::try_from(len).expect("a frame is shorter than 4 GiB")
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u64, records: &[&[u8]]) -> Frame {
        let mut frame = Frame::begin(7, 0);
        for record in records {
            frame.push(|bytes| bytes.extend(*record));
        }
        frame.seal(sequence, 5);
        frame
    }

    #[test]
    fn frames_round_trip() {
        for records in [&[][..], &[&b"a"[..]], &[b"", b"abc", &[0; 100]]] {
            let frame = frame(3, records);
            assert_eq!(frame.bytes().len() % ALIGNMENT, 0);
            let mut file = frame.bytes().to_vec();
            file.extend(b"the next frame");
            let decoded = Frame::decode(&file).unwrap();
            assert_eq!(decoded, frame);
            assert_eq!((decoded.sequence(), decoded.compacted()), (3, 5));
            let found: Vec<_> = decoded.records().map(|(_, record)| record).collect();
            assert_eq!(found, records);
            for (revision, record) in decoded.records() {
                assert_eq!(decoded.record(revision), Some(record));
            }
            assert_eq!(decoded.record(6), None);
            assert_eq!(decoded.record(7 + records.len() as u64), None);
        }
    }

    #[test]
    fn flipped_bits_and_truncation_are_detected() {
        let frame = frame(3, &[b"abc", b"d"]);
        let len = valid_len(frame.bytes()).unwrap();
        for bit in 0..len * 8 {
            let mut flipped = frame.bytes().to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Frame::decode(&flipped), None, "bit {bit}");
        }
        for cut in 0..len {
            assert_eq!(Frame::decode(&frame.bytes()[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn later_frames_are_found() {
        let mut file = frame(3, &[b"abc"]).bytes().to_vec();
        let end = file.len();
        file.extend([1; 40]);
        file.extend(frame(2, &[b"stale"]).bytes());
        file.extend(frame(4, &[b"d"]).bytes());
        assert_eq!(find_later(&file, end, 4), Some(4));
        assert_eq!(find_later(&file, end, 5), None);
        assert_eq!(find_later(&file, end + 1, 1), Some(2));
        let last = file.len() - 1;
        file[last - ALIGNMENT] ^= 1;
        assert_eq!(find_later(&file, end, 4), None);
    }
}

//! Backups: the objects of a store at one revision, in one file that does not depend on the format of
//! the data file. A running store writes one without a pause, part by part, because it can read an
//! older revision while later ones are written. History is not part of it.
//!
//! # Format
//!
//! `wbackup` and the version of the format, the revision (8 bytes); for each key, in order of the keys,
//! the length of its record (4 bytes), the revision of the record (8 bytes) and the record as in the
//! table `log`, with its own checksum; the length 0, the number of records (8 bytes), and a checksum of
//! everything before it (4 bytes). Numbers are little-endian.

mod file;
mod replacement;
mod restore;

pub use self::file::{BackupError, BackupSummary, verify_backup};
pub(super) use self::replacement::finish_interrupted;
pub use self::replacement::is_restore_interrupted;
#[cfg(test)]
pub(super) use self::replacement::{rename_all, renames, restoring_directory};
pub use self::restore::{ExistingStore, Restored, create_from, restore};

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};

use super::Embedded;
use super::codec::{RECORD_FIXED_LEN, Record};
use super::error::Fault;
use super::snapshot::{Snapshot, missing};
use crate::StorageError;
use watchet_api::ResourceVersion;

/// The first bytes, with the version of the format.
const MAGIC: &[u8; 8] = b"wbackup\x01";

/// The size at which a part of a backup ends: small for the memory of a running server, large
/// enough that a part costs little.
const PART_BYTES: usize = 1 << 20;

/// The length of what precedes a record: its own length and its revision.
const ENTRY_HEAD_LEN: usize = 4 + 8;

/// The state of a backup between two parts.
struct Writer {
    store: Arc<Embedded>,
    /// The revision of the backup; `None` before the first part.
    at: Option<u64>,
    /// The first key of the next part; `None` after the last part.
    next: Option<String>,
    records: u64,
    checksum: crc32fast::Hasher,
}

impl Embedded {
    /// Returns a backup, part by part.
    pub(super) fn backup_parts(
        self: Arc<Self>,
    ) -> impl Stream<Item = Result<Bytes, StorageError>> + Send {
        let writer = Writer {
            store: self,
            at: None,
            next: Some(String::new()),
            records: 0,
            checksum: crc32fast::Hasher::new(),
        };
        futures_util::stream::try_unfold(writer, |mut writer| async move {
            let Some(start) = writer.next.take() else {
                return Ok(None);
            };
            let part = writer.part(start).await?;
            Ok(Some((part, writer)))
        })
    }
}

impl Writer {
    /// Returns the part that begins with the key `start`.
    async fn part(&mut self, start: String) -> Result<Bytes, StorageError> {
        let (data, at) = (self.store.data.clone(), self.at);
        let read = move || data.read(|snapshot| read_part(snapshot, at, &start));
        let read = self.store.tasks.spawn_blocking("backup", read).await;
        let part = read.unwrap_or_else(|error| Err(StorageError::Unavailable(error.to_string())));
        let part = part.map_err(|error| match error {
            StorageError::Compacted { requested, .. } => StorageError::Unavailable(format!(
                "the backup of revision {requested} took longer than history is retained: write it to \
                 a faster place, or increase the compaction interval"
            )),
            error => error,
        })?;
        let mut bytes = Vec::with_capacity(part.bytes.len() + 64);
        if self.at.is_none() {
            bytes.extend(MAGIC);
            bytes.extend(part.at.to_le_bytes());
        }
        bytes.extend(part.bytes);
        self.at = Some(part.at);
        self.records += part.records;
        self.next = part.next;
        if self.next.is_none() {
            bytes.extend(0_u32.to_le_bytes());
            bytes.extend(self.records.to_le_bytes());
        }
        self.checksum.update(&bytes);
        if self.next.is_none() {
            bytes.extend(self.checksum.clone().finalize().to_le_bytes());
        }
        Ok(bytes.into())
    }
}

/// The records of some keys at one revision.
struct Part {
    at: u64,
    bytes: Vec<u8>,
    records: u64,
    /// The first key after this part; `None` if there is none.
    next: Option<String>,
}

/// Reads the records of the keys from `start` on at revision `at`, by default the last one.
fn read_part(snapshot: &Snapshot, at: Option<u64>, start: &str) -> Result<Part, Fault> {
    let at = at.unwrap_or(snapshot.position.revision);
    snapshot.exists(at)?;
    let (mut bytes, mut records) = (Vec::new(), 0);
    for entry in snapshot.heads_from(start)? {
        let (key, head) = entry?;
        if bytes.len() >= PART_BYTES {
            let next = Some(key.as_str().to_owned());
            return Ok(Part {
                at,
                bytes,
                records,
                next,
            });
        }
        let Some(revision) = snapshot.modified_at(key.as_str(), head, at)? else {
            continue;
        };
        let record = snapshot.record(revision)?;
        let record = record.ok_or_else(|| missing(key.as_str(), revision))?;
        // Verifies its checksum, so that a backup has no damaged record.
        Record::decode(revision, record.get())?;
        encode_entry(revision, record.get(), &mut bytes);
        records += 1;
    }
    Ok(Part {
        at,
        bytes,
        records,
        next: None,
    })
}

fn encode_entry(revision: u64, record: &[u8], bytes: &mut Vec<u8>) {
    // A record is bounded to some MiB.
    let len = u32::try_from(record.len()).expect("a record is shorter than 4 GiB");
    bytes.extend(len.to_le_bytes());
    bytes.extend(revision.to_le_bytes());
    bytes.extend(record);
}

/// The number of values that are read together.
const VALUES_MAX: usize = 256;

impl Embedded {
    /// Returns all values, in the order in which they were written.
    ///
    /// # Errors
    /// As a list. The stream fails if a value is overwritten meanwhile, and its history compacted.
    pub async fn values_in_order(
        self: &Arc<Self>,
    ) -> Result<impl Stream<Item = Result<StoredValue, StorageError>> + Send + use<>, StorageError>
    {
        let data = self.data.clone();
        let read = move || data.read(live_revisions);
        let read = self.tasks.spawn_blocking("values", read).await;
        let revisions =
            read.unwrap_or_else(|error| Err(StorageError::Unavailable(error.to_string())))?;
        let store = Arc::clone(self);
        let chunks = futures_util::stream::iter(
            revisions
                .chunks(VALUES_MAX)
                .map(<[u64]>::to_vec)
                .collect::<Vec<_>>(),
        );
        Ok(chunks
            .then(move |chunk| {
                let (data, tasks) = (store.data.clone(), store.tasks.clone());
                async move {
                    let read = move || data.read(|snapshot| stored_values(snapshot, &chunk));
                    let read = tasks.spawn_blocking("values", read).await;
                    let values = read
                        .unwrap_or_else(|error| Err(StorageError::Unavailable(error.to_string())));
                    let values = values.map_or_else(
                        |error| vec![Err(error)],
                        |values| values.into_iter().map(Ok).collect(),
                    );
                    futures_util::stream::iter(values)
                }
            })
            .flatten())
    }
}

/// Returns the revisions of all values, in order.
fn live_revisions(snapshot: &Snapshot) -> Result<Vec<u64>, Fault> {
    let mut revisions = Vec::new();
    for entry in snapshot.heads_from("")? {
        let (_, head) = entry?;
        if head.live {
            revisions.push(head.modified);
        }
    }
    revisions.sort_unstable();
    Ok(revisions)
}

/// Returns the values that were written at `revisions`.
fn stored_values(snapshot: &Snapshot, revisions: &[u64]) -> Result<Vec<StoredValue>, Fault> {
    let value = |revision: &u64| {
        let lost = || Fault::Damaged(format!("record of revision {revision} is missing"));
        let bytes = snapshot.record(*revision)?.ok_or_else(lost)?;
        let record = Record::decode(*revision, bytes.get())?;
        Ok(StoredValue {
            key: record.key.to_owned(),
            value: Bytes::copy_from_slice(record.value.ok_or_else(lost)?),
            create_revision: ResourceVersion::new(record.created),
            mod_revision: ResourceVersion::new(*revision),
            expires_ms: record.expires_ms,
        })
    };
    revisions.iter().map(value).collect()
}

/// A value with everything that the store has of it, for a copy to or from another store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// The revision that created the key (after its last deletion).
    pub create_revision: ResourceVersion,
    /// The revision that wrote this value.
    pub mod_revision: ResourceVersion,
    /// When the key expires, in milliseconds since the epoch; 0 for never.
    pub expires_ms: u64,
}

impl StoredValue {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RECORD_FIXED_LEN + self.key.len() + self.value.len());
        let record = Record {
            key: &self.key,
            value: Some(&self.value),
            created: self.create_revision.get(),
            previous: 0,
            expires_ms: self.expires_ms,
        };
        record.encode(self.mod_revision.get(), &mut bytes);
        bytes
    }
}

//! The data file itself: its size, its damage, its verification and its compaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redb::{ReadableTable as _, ReadableTableMetadata as _, StorageBackend};

use super::super::error::{Fault, catch_damage};
use super::super::open::OpenDatabase;
use super::super::snapshot::Base;
use super::Data;
use crate::StorageError;

/// A smaller data file is never made smaller.
const SPARSE_BYTES_MIN: u64 = 32 << 20;

/// A data file is sparse if it is this many times as large as its content, at least.
const SPARSE_FACTOR: u64 = 4;

/// The number of records from each end of the log from which the size of all is estimated.
const SAMPLE_RECORDS: usize = 64;

/// The approximate size of what the data file has for a record besides its bytes.
const RECORD_OVERHEAD: u64 = 256;

impl Data {
    /// Returns the size of the files in bytes; `None` without files.
    pub(in super::super) fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        let mut size = None;
        for path in &self.paths {
            let metadata = std::fs::metadata(path)
                .map_err(|error| StorageError::Failed(format!("{}: {error}", path.display())))?;
            *size.get_or_insert(0) += metadata.len();
        }
        Ok(size)
    }

    /// Returns an error if a damaged page of the file was found.
    pub(in super::super) fn check_damage(&self) -> Result<(), Fault> {
        self.with(OpenDatabase::check_damage)
    }

    /// Returns true if the file was opened without verifying all of it.
    pub(in super::super) fn is_unverified(&self) -> bool {
        self.with(|db| Ok(!db.is_verified)).unwrap_or(false)
    }

    /// Verifies a part of the file from `offset` on. Returns the offset after it, or `None` at the
    /// end of the file.
    pub(in super::super) fn verify(&self, offset: u64, bytes: usize) -> Result<Option<u64>, Fault> {
        self.with(|db| match &db.file {
            Some(file) => Ok(file.verify(offset, bytes).map_err(redb::StorageError::Io)?),
            None => Ok(None),
        })
    }

    /// Moves the pages of the data file together and truncates it. Reads wait meanwhile.
    pub(in super::super) fn compact_file(&self) -> Result<(), Fault> {
        if !self.availability.pause() {
            return Err(self.closed());
        }
        let compacted = self.compact_paused();
        self.availability.resume();
        compacted
    }

    fn compact_paused(&self) -> Result<(), Fault> {
        let mut guard = self.write_db();
        let db = guard.as_mut().ok_or_else(|| self.closed())?;
        // No reader may be left: the database moves the pages that it reads.
        self.state.write().base = None;
        let compacted = catch_damage(|| db.db.compact().map_err(Fault::from));
        let base = catch_damage(|| Base::open(&db.db));
        match (compacted, base) {
            (Ok(_), Ok(base)) => self.state.write().rebase(base),
            (Err(fault), Ok(base)) => {
                self.state.write().rebase(base)?;
                Err(db.with_root_cause(fault))
            }
            (_, Err(fault)) => Err(db.with_root_cause(fault)),
        }
    }

    /// Returns the length of the data file.
    pub(in super::super) fn file_len(&self) -> Result<u64, Fault> {
        self.with(|db| match &db.file {
            Some(file) => Ok(StorageBackend::len(file).map_err(redb::StorageError::Io)?),
            None => Ok(0),
        })
    }

    /// As [`Self::compact_file`], and logs it.
    pub(in super::super) fn shrink(&self) -> Result<(), Fault> {
        let before = self.file_len()?;
        let started = tokio::time::Instant::now();
        self.compact_file()?;
        let (bytes, elapsed) = (self.file_len()?, started.elapsed());
        self.shrunk_to.store(bytes, Ordering::Relaxed);
        tracing::info!(
            store = self.name,
            before,
            bytes,
            ?elapsed,
            "made the data file smaller"
        );
        Ok(())
    }

    /// Returns true if most of the data file is unused, no compacted record waits to be deleted, and it
    /// has at most `live_max` bytes of content, so that its compaction is short.
    pub(in super::super) fn is_sparse(&self, live_max: u64) -> Result<bool, Fault> {
        let len = self.file_len()?;
        // The estimate may be wrong: a compaction that gained little is not repeated.
        let is_small = len < SPARSE_BYTES_MIN.max(2 * self.shrunk_to.load(Ordering::Relaxed));
        if is_small || self.is_collecting() {
            return Ok(false);
        }
        let base = self.state.read().base.clone();
        let live = match base {
            Some(base) => catch_damage(|| estimate(&base))?,
            None => return Ok(false),
        };
        Ok(live <= live_max && len / SPARSE_FACTOR > live)
    }
}

/// Estimates the size of the content of the tables.
fn estimate(base: &Arc<Base>) -> Result<u64, Fault> {
    let count = base.log.len()?;
    let (mut sampled, mut bytes) = (0, 0);
    for entry in base.log.iter()?.take(SAMPLE_RECORDS) {
        bytes += entry?.1.value().len() as u64;
        sampled += 1;
    }
    for entry in base.log.iter()?.rev().take(SAMPLE_RECORDS) {
        bytes += entry?.1.value().len() as u64;
        sampled += 1;
    }
    let each = bytes / u64::max(sampled, 1) + RECORD_OVERHEAD;
    Ok(count * each)
}

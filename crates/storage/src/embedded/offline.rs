//! Operations on a store that no server has open: check, compaction of the data file, and a higher
//! revision after a restore.

use std::io;
use std::path::Path;

use super::backup::finish_interrupted;
use super::check::{CheckReport, check_snapshot};
use super::data::Data;
use super::error::{Fault, OpenError, catch_damage};
use super::files::DATA_FILE;
use super::wal::Wal;

/// The part of the data file that is verified in one step.
const VERIFY_BYTES: usize = 1 << 20;

/// The size of a data file before and after its compaction, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resized {
    /// The size before.
    pub before: u64,
    /// The size after.
    pub after: u64,
}

/// Checks every page, record and index entry of the store in `directory`, and its log. Calls
/// `progress` with the name of what is checked and how many are, from time to time.
///
/// # Errors
/// Returns [`OpenError`] if the store is damaged, in use, or does not exist.
pub fn check(
    directory: &Path,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<CheckReport, OpenError> {
    let (data, _wal) = open(directory)?;
    let path = directory.join(DATA_FILE);
    let checked = catch_damage(|| {
        let mut next = Some(0);
        while let Some(offset) = next {
            next = data.verify(offset, VERIFY_BYTES)?;
            progress("bytes of the data file", next.unwrap_or(offset));
        }
        data.with_snapshot(|snapshot| check_snapshot(&snapshot, progress))
    });
    let checked = checked.and_then(|report| {
        data.check_damage()?;
        let data_file_bytes = data.file_len()?;
        Ok(CheckReport {
            data_file_bytes,
            ..report
        })
    });
    data.close();
    checked.map_err(|fault| OpenError::from_fault(&path, fault))
}

/// Adds `by` to the last revision of the store in `directory`, and compacts its history, so that no
/// revision that a client has seen is used again. Returns the revision before and after.
///
/// # Errors
/// As [`check`].
pub fn bump_revision(directory: &Path, by: u64) -> Result<(u64, u64), OpenError> {
    change(directory, |data| {
        let before = data.newest().map_err(Fault::Storage)?;
        data.continue_above(before + by, false)?;
        Ok((before, data.newest().map_err(Fault::Storage)?))
    })
}

/// Deletes compacted history from the store in `directory`, and makes its data file as small as
/// possible.
///
/// # Errors
/// As [`check`].
pub fn compact_file(directory: &Path) -> Result<Resized, OpenError> {
    let before = change(directory, |data| {
        let before = data.file_len()?;
        while data.is_collecting() {
            data.write_tables(|tables| tables.collect())?;
        }
        data.compact_file()?;
        Ok(before)
    })?;
    // The database writes some pages when it is closed.
    let path = directory.join(DATA_FILE);
    match std::fs::metadata(&path) {
        Ok(metadata) => Ok(Resized {
            before,
            after: metadata.len(),
        }),
        Err(error) => Err(OpenError::io(&path, error)),
    }
}

/// Opens the store, writes the changes in the log to the data file, runs `change`, and closes it.
fn change<T>(
    directory: &Path,
    change: impl FnOnce(&Data) -> Result<T, Fault>,
) -> Result<T, OpenError> {
    let (data, mut wal) = open(directory)?;
    let changed = catch_damage(|| {
        data.prepare(false)?;
        wal.reset().map_err(Fault::Failed)?;
        let changed = change(&data)?;
        data.record_durable(data.newest().map_err(Fault::Storage)?);
        Ok(changed)
    });
    data.close();
    changed.map_err(|fault| OpenError::from_fault(&directory.join(DATA_FILE), fault))
}

fn open(directory: &Path) -> Result<(Data, Wal), OpenError> {
    finish_interrupted(directory).map_err(|error| OpenError::io(directory, error))?;
    let path = directory.join(DATA_FILE);
    if !path.exists() && !directory.join(super::REVISION_FILE).exists() {
        let none = io::Error::new(io::ErrorKind::NotFound, "there is no store");
        return Err(OpenError::io(directory, none));
    }
    Data::open(directory, None)
}

//! Creates a store from a backup, or from the values of another store.

use std::path::{Path, PathBuf};

use super::super::error::{Fault, OpenError};
use super::super::files::DATA_FILE;
use super::super::open::{OpenDatabase, create, lock, make_directory};
use super::super::tables::{FIRST_REVISION, Tables};
use super::StoredValue;
use super::file::{BackupError, BackupFile, BackupSummary, RECORD_BYTES_MAX};
use super::replacement::{
    finish_interrupted, has_store, remove, rename_all, renames, replaced_directory,
    restoring_directory,
};
use crate::embedded::VALUE_BYTES_MAX;
use crate::private_file::sync_directory;

/// What to do with a store that exists where a new one is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingStore {
    /// Fail.
    Refuse,
    /// Rename it, once the new one is complete.
    Replace,
}

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// What the backup contains.
    pub summary: BackupSummary,
    /// The directory of the store that was replaced; `None` if there was none.
    pub replaced: Option<PathBuf>,
}

/// Creates the store in `directory` from the backup `file`, with `bump` added to its revision. The
/// directory has the new store afterwards or is as before, whatever fails. After a crash it may be missing; then the
/// next open creates it, with the new store.
///
/// # Errors
/// Returns [`BackupError`] if the backup is damaged, if the directory has a store that `existing` refuses or that is in
/// use, or if the store cannot be written.
pub fn restore(
    file: &Path,
    directory: &Path,
    bump: u64,
    existing: ExistingStore,
) -> Result<Restored, BackupError> {
    let backup = BackupFile::open(file)?;
    let (summary, replaced) = create_store(directory, existing, |tables| {
        let summary = backup.read_all(|revision, record| {
            let inserted = tables.insert_value(revision, record);
            inserted.map_err(|fault| OpenError::from_fault(directory, fault).into())
        })?;
        tables.set_revision(summary.revision + bump);
        Ok(summary)
    })?;
    Ok(Restored { summary, replaced })
}

/// Creates the store in `directory` at `revision` with `values`, which are in the order of their
/// revisions. Returns the directory of the store that was replaced, if there was one. If it fails, `directory` is as
/// after a failed [`restore`].
///
/// # Errors
/// Returns [`BackupError`] if the directory has a store that `existing` refuses or that is in use, if a value is too
/// large, or if the store cannot be written.
pub fn create_from(
    values: &[StoredValue],
    revision: u64,
    directory: &Path,
    existing: ExistingStore,
) -> Result<Option<PathBuf>, BackupError> {
    let ((), replaced) = create_store(directory, existing, |tables| {
        for value in values {
            let record = value.encode();
            if value.value.len() > VALUE_BYTES_MAX || record.len() > RECORD_BYTES_MAX {
                return Err(BackupError::TooLarge {
                    key: value.key.clone(),
                    bytes: value.value.len(),
                });
            }
            let inserted = tables.insert_value(value.mod_revision.get(), &record);
            inserted.map_err(|fault| OpenError::from_fault(directory, fault))?;
        }
        tables.set_revision(revision);
        Ok(())
    })?;
    Ok(replaced)
}

/// Creates the store `target` with what `write` writes. Returns its result, and the directory of the store that was
/// replaced.
fn create_store<T>(
    target: &Path,
    existing: ExistingStore,
    write: impl FnOnce(&mut Tables<'_>) -> Result<T, BackupError>,
) -> Result<(T, Option<PathBuf>), BackupError> {
    let io = |path: &Path, error| BackupError::from(OpenError::io(path, error));
    finish_interrupted(target).map_err(|error| io(target, error))?;
    let exists = has_store(target).map_err(|error| io(target, error))?;
    if exists && existing == ExistingStore::Refuse {
        return Err(BackupError::NotEmpty {
            directory: target.to_owned(),
        });
    }
    let _locked = exists.then(|| lock(target)).transpose()?;
    let replaced = exists.then(|| replaced_directory(target));
    let restoring = restoring_directory(target);
    remove(&restoring).map_err(|error| io(&restoring, error))?;
    let written = write_store(&restoring, write).and_then(|written| {
        rename_all(&renames(target, replaced.as_deref())).map_err(|error| io(target, error))?;
        Ok(written)
    });
    if written.is_err() {
        // The error is the one to report; the next restore deletes a leftover.
        let _removed = remove(&restoring);
    }
    Ok((written?, replaced))
}

/// Creates a store in `directory` with what `write` writes. All of it is on disk on return, except the checksums of the
/// pages, without which a start verifies the whole data file.
fn write_store<T>(
    directory: &Path,
    write: impl FnOnce(&mut Tables<'_>) -> Result<T, BackupError>,
) -> Result<T, BackupError> {
    let io = |error| BackupError::from(OpenError::io(directory, error));
    make_directory(directory).map_err(io)?;
    let db = create(directory, &directory.join(DATA_FILE), FIRST_REVISION)?;
    let written = write_tables(&db, directory, write)?;
    // Stores the checksums of the pages.
    drop(db);
    sync_directory(directory).map_err(io)?;
    Ok(written)
}

/// Runs `write` in one transaction and commits it.
fn write_tables<T>(
    db: &OpenDatabase,
    directory: &Path,
    write: impl FnOnce(&mut Tables<'_>) -> Result<T, BackupError>,
) -> Result<T, BackupError> {
    let failed = |fault: Fault| BackupError::from(OpenError::from_fault(directory, fault));
    let begun = db.db.begin_write();
    let mut txn = begun.map_err(|error| failed(error.into()))?;
    txn.set_two_phase_commit(true);
    let mut tables = Tables::open(&txn).map_err(failed)?;
    let written = write(&mut tables)?;
    tables.finish().map_err(failed)?;
    txn.commit().map_err(|error| failed(error.into()))?;
    Ok(written)
}

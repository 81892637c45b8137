//! Creates a store from a backup, or from the values of another store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::super::error::{Fault, OpenError};
use super::super::files::DATA_FILE;
use super::super::open::{OpenDatabase, create, make_directory};
use super::super::private_file::sync_parent;
use super::super::tables::Tables;
use super::StoredValue;
use super::file::{BackupError, BackupFile, BackupSummary};

/// Creates the store in `directory` from the backup `file`, with `bump` added to its revision. The
/// directory has a store afterwards or is as before, whatever fails.
///
/// # Errors
/// Returns [`BackupError`] if the backup is damaged, or if the directory is not empty.
pub fn restore(file: &Path, directory: &Path, bump: u64) -> Result<BackupSummary, BackupError> {
    let backup = BackupFile::open(file)?;
    let new = NewStore::begin(directory)?;
    let summary = new.write(|tables| {
        let summary = backup.read_all(|revision, record| {
            let inserted = tables.insert_value(revision, record);
            inserted.map_err(|fault| OpenError::from_fault(directory, fault).into())
        })?;
        tables.set_revision(summary.revision + bump);
        Ok(summary)
    })?;
    new.finish()?;
    Ok(summary)
}

/// Creates the store in `directory` at `revision` with `values`, which are in the order of their
/// revisions.
///
/// # Errors
/// Returns [`BackupError`] if the directory is not empty, or the store cannot be written.
pub fn create_from(
    values: &[StoredValue],
    revision: u64,
    directory: &Path,
) -> Result<(), BackupError> {
    let new = NewStore::begin(directory)?;
    new.write(|tables| {
        for value in values {
            let inserted = tables.insert_value(value.mod_revision.get(), &value.encode());
            inserted.map_err(|fault| OpenError::from_fault(directory, fault))?;
        }
        tables.set_revision(revision);
        Ok(())
    })?;
    new.finish()
}

/// A store that is being written in a directory of its own, so that it is visible when it is complete.
struct NewStore {
    target: PathBuf,
    temporary: PathBuf,
    db: OpenDatabase,
}

impl NewStore {
    fn begin(target: &Path) -> Result<Self, BackupError> {
        let io = |path: &Path, error| BackupError::from(OpenError::io(path, error));
        match fs::read_dir(target).map(|mut files| files.next().is_none()) {
            Ok(false) => {
                return Err(BackupError::NotEmpty {
                    directory: target.to_owned(),
                });
            }
            Ok(true) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(target, error)),
        }
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".restoring");
        let temporary = target.with_file_name(name);
        match fs::remove_dir_all(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io(&temporary, error));
            }
            _ => {}
        }
        make_directory(&temporary).map_err(|error| io(&temporary, error))?;
        let db = create(&temporary, &temporary.join(DATA_FILE))?;
        Ok(Self {
            target: target.to_owned(),
            temporary,
            db,
        })
    }

    /// Runs `write` in one transaction and commits it.
    fn write<T>(
        &self,
        write: impl FnOnce(&mut Tables<'_>) -> Result<T, BackupError>,
    ) -> Result<T, BackupError> {
        let failed =
            |fault: Fault| BackupError::from(OpenError::from_fault(&self.temporary, fault));
        let mut txn = self
            .db
            .db
            .begin_write()
            .map_err(|error| failed(error.into()))?;
        txn.set_two_phase_commit(true);
        let mut tables = Tables::open(&txn).map_err(failed)?;
        let written = write(&mut tables)?;
        tables.finish().map_err(failed)?;
        txn.commit().map_err(|error| failed(error.into()))?;
        Ok(written)
    }

    /// Gives the store its name.
    fn finish(self) -> Result<(), BackupError> {
        let Self {
            target,
            temporary,
            db,
        } = self;
        // Stores the checksums of the pages.
        drop(db);
        let renamed = match fs::remove_dir(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::rename(&temporary, &target),
        };
        let synced = renamed.and_then(|()| sync_parent(&target));
        synced.map_err(|error| OpenError::io(&target, error).into())
    }
}

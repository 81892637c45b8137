//! The data directory and the output of the commands.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::error::StoreError;
use crate::server::process::files::DataDir;
use crate::server::process::open_storage::STORE_DIRECTORY;
use crate::storage::embedded::BackupError;

/// Returns the directory of the store.
pub(super) fn store_directory(data_dir: &Path) -> PathBuf {
    data_dir.join(STORE_DIRECTORY)
}

/// Locks a data directory, which must have a store.
pub(super) fn lock_existing(data_dir: &Path) -> Result<DataDir, StoreError> {
    let store = store_directory(data_dir);
    if !store.is_dir() {
        return Err(StoreError::Refused(format!(
            "--data-dir {data_dir:?}: there is no store; name the data directory of a server with the \
             embedded store"
        )));
    }
    Ok(DataDir::lock(data_dir)?)
}

/// Prepares `directory` for a new store: if it has one and `force` is set, that is renamed.
///
/// # Errors
/// It has one and `force` is not set, or it cannot be renamed.
pub(super) fn set_aside(directory: &Path, force: bool) -> Result<(), StoreError> {
    let is_empty = match std::fs::read_dir(directory) {
        Ok(mut files) => files.next().is_none(),
        Err(_) => !directory.exists(),
    };
    if is_empty {
        return Ok(());
    }
    if !force {
        let directory = directory.to_owned();
        return Err(BackupError::NotEmpty { directory }.into());
    }
    let now = jiff::Timestamp::now().as_second();
    let aside = directory.with_file_name(format!("{STORE_DIRECTORY}.replaced.{now}"));
    std::fs::rename(directory, &aside).map_err(|source| StoreError::Rename {
        path: directory.to_owned(),
        source,
    })?;
    print(&format!("The replaced store is now {}", aside.display()))
}

/// Prints a line.
pub(super) fn print(line: &str) -> Result<(), StoreError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").map_err(StoreError::Print)
}

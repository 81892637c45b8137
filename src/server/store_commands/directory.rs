//! The data directory and the output of the commands.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use super::error::StoreError;
use crate::server::process::files::DataDir;
use crate::server::process::open_storage::STORE_DIRECTORY;
use crate::storage::embedded::{self, ExistingStore};

/// Returns the directory of the store.
pub(super) fn store_directory(data_dir: &Path) -> PathBuf {
    data_dir.join(STORE_DIRECTORY)
}

/// Locks a data directory, which must have a store.
pub(super) fn lock_existing(data_dir: &Path) -> Result<DataDir, StoreError> {
    let store = store_directory(data_dir);
    if !store.is_dir() && !embedded::is_restore_interrupted(&store) {
        return Err(StoreError::Refused(format!(
            "--data-dir {data_dir:?}: there is no store; name the data directory of a server with the \
             embedded store"
        )));
    }
    Ok(DataDir::lock(data_dir)?)
}

/// Returns what to do with a store that the new one replaces.
pub(super) fn existing_store(matches: &ArgMatches) -> ExistingStore {
    match matches.get_flag("force") {
        true => ExistingStore::Replace,
        false => ExistingStore::Refuse,
    }
}

/// Prints the new name of a store that was replaced.
pub(super) fn print_replaced(replaced: Option<&Path>) -> Result<(), StoreError> {
    match replaced {
        Some(replaced) => print(&format!("The replaced store is now {}", replaced.display())),
        None => Ok(()),
    }
}

/// Prints a line.
pub(super) fn print(line: &str) -> Result<(), StoreError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").map_err(StoreError::Print)
}

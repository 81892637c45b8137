//! The commands for which no server and no etcd may run: check, restore, compact.

use std::path::{Path, PathBuf};

use clap::ArgMatches;

use super::directory::{existing_store, lock_existing, print, print_replaced, store_directory};
use super::error::StoreError;
use super::progress::Progress;
use crate::server::process::files::DataDir;
use crate::storage::embedded;

/// Checks everything in the store.
pub(super) fn check(data_dir: &Path) -> Result<(), StoreError> {
    let _locked = lock_existing(data_dir)?;
    let directory = store_directory(data_dir);
    let mut progress = Progress::new("checked");
    let report = embedded::check(&directory, &mut |what, count| progress.report(what, count))?;
    print(&report.to_string())?;
    print(&format!("The store in {} is sound", directory.display()))
}

/// Makes the data file as small as possible.
pub(super) fn compact(data_dir: &Path) -> Result<(), StoreError> {
    let _locked = lock_existing(data_dir)?;
    let directory = store_directory(data_dir);
    let resized = embedded::compact_file(&directory)?;
    let file = directory.join(embedded::DATA_FILE);
    let (before, after) = (resized.before, resized.after);
    print(&format!(
        "{}: {after} bytes; before, {before} bytes",
        file.display()
    ))
}

/// Creates the store from a backup, or raises the revision of one that was restored in another way.
pub(super) fn restore(matches: &ArgMatches, data_dir: &Path) -> Result<(), StoreError> {
    let bump = matches.get_one::<u64>("bump-revision").copied();
    let directory = store_directory(data_dir);
    let Some(file) = matches.get_one::<PathBuf>("file") else {
        let _locked = lock_existing(data_dir)?;
        let (before, after) = embedded::bump_revision(&directory, bump.unwrap_or_default())?;
        return print(&format!(
            "The store in {} was at revision {before} and continues at {after}, without history",
            directory.display()
        ));
    };
    // Before the data directory is created.
    embedded::verify_backup(file)?;
    let _locked = DataDir::lock(data_dir)?;
    let existing = existing_store(matches);
    let restored = embedded::restore(file, &directory, bump.unwrap_or_default(), existing)?;
    print_replaced(restored.replaced.as_deref())?;
    let (keys, revision) = (restored.summary.keys, restored.summary.revision);
    let continues = match bump {
        Some(bump) => format!(", which continues at revision {}", revision + bump),
        None => String::new(),
    };
    print(&format!(
        "Restored {keys} objects of revision {revision} to {}{continues}",
        directory.display()
    ))
}

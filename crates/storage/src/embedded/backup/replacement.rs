//! Gives a complete new store the name of a store that may exist, so that a start finds one of the two, also after a
//! crash in between.
//!
//! The directories are beside each other:
//!
//! - `store.restoring` is being written. A start ignores it, and the next restore deletes it.
//! - `store.restoring.complete` is complete and on disk.
//! - `store.replaced.<time>` is the store that was replaced, if there was one.
//!
//! Each step is a rename, see [`renames`]. After a crash between the last two there is no `store`, but
//! `store.restoring.complete`: [`finish_interrupted`], which each open calls first, makes the last one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::private_file::sync_parent;

const RESTORING: &str = "restoring";
const COMPLETE: &str = "restoring.complete";

/// A rename of a directory: from, to.
pub(in super::super) type Rename = (PathBuf, PathBuf);

/// Returns the directory in which the store `target` is written.
pub(in super::super) fn restoring_directory(target: &Path) -> PathBuf {
    sibling(target, RESTORING)
}

/// Returns the name that the store in `target` gets when it is replaced now: one that does not exist.
pub(super) fn replaced_directory(target: &Path) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    let names = std::iter::once(format!("replaced.{seconds}"))
        .chain((2_u64..).map(|number| format!("replaced.{seconds}.{number}")));
    let mut free = names.map(|name| sibling(target, &name));
    free.find(|path| !path.exists())
        .expect("the numbers have no end")
}

fn sibling(target: &Path, suffix: &str) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    target.with_file_name(name)
}

/// Returns true if `directory` has any file.
pub(super) fn has_store(directory: &Path) -> io::Result<bool> {
    match fs::read_dir(directory) {
        Ok(mut files) => files.next().transpose().map(|file| file.is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes `directory`, if it exists.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the renames by which the store in [`restoring_directory`] becomes `target`. The store that `target` has
/// becomes `replaced`.
pub(in super::super) fn renames(target: &Path, replaced: Option<&Path>) -> Vec<Rename> {
    let complete = sibling(target, COMPLETE);
    let mut renames = vec![(restoring_directory(target), complete.clone())];
    renames.extend(replaced.map(|replaced| (target.to_owned(), replaced.to_owned())));
    // Replaces an empty directory.
    renames.push((complete, target.to_owned()));
    renames
}

/// Makes `renames`, each on disk before the next one. If one fails, undoes those before it.
pub(in super::super) fn rename_all(renames: &[Rename]) -> io::Result<()> {
    for (index, (from, to)) in renames.iter().enumerate() {
        let mut done = index;
        let renamed = fs::rename(from, to).and_then(|()| {
            done += 1;
            sync_parent(to)
        });
        if let Err(error) = renamed {
            for (from, to) in renames[..done].iter().rev() {
                if let Err(error) = fs::rename(to, from) {
                    tracing::error!(from = %to.display(), to = %from.display(), %error, "cannot undo a rename");
                }
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Returns true if a restore of `target` was interrupted after the store in `target` was renamed, so that
/// `finish_interrupted` creates `target`.
pub fn is_restore_interrupted(target: &Path) -> bool {
    sibling(target, COMPLETE).is_dir() && !has_store(target).unwrap_or(true)
}

/// Finishes a restore of `target` that was interrupted after the old store was renamed. If it was interrupted before,
/// `target` still is the old store, and the new one is abandoned.
pub(in super::super) fn finish_interrupted(target: &Path) -> io::Result<()> {
    let complete = sibling(target, COMPLETE);
    if !complete.try_exists()? {
        return Ok(());
    }
    let store = target.display();
    if !has_store(target)? {
        rename_all(&[(complete, target.to_owned())])?;
        tracing::warn!(%store, "finished a restore of the store that was interrupted");
        return Ok(());
    }
    // Otherwise it would become the store later, if `target` is moved away.
    let restoring = restoring_directory(target);
    match remove(&restoring).and_then(|()| rename_all(&[(complete, restoring)])) {
        Ok(()) => tracing::warn!(
            %store,
            "a restore of the store was interrupted before it replaced the store: restore it again"
        ),
        Err(error) => tracing::warn!(%store, %error, "cannot abandon an interrupted restore"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two restores within a second failed with "Directory not empty".
    #[test]
    fn the_name_of_a_replaced_store_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let names: std::collections::BTreeSet<PathBuf> = (0..20)
            .map(|_| {
                let replaced = replaced_directory(&store);
                fs::create_dir(&replaced).unwrap();
                replaced
            })
            .collect();
        assert_eq!(names.len(), 20);
    }

    /// The store was moved away, and was not moved back when the new one could not get its name.
    #[test]
    fn renames_before_one_that_fails_are_undone() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("store")).unwrap();
        fs::write(path("store").join("file"), "old").unwrap();
        fs::create_dir(path("new")).unwrap();
        let renames = [("new", "new2"), ("store", "replaced"), ("none", "store")]
            .map(|(from, to)| (path(from), path(to)));
        let error = rename_all(&renames).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read(path("store").join("file")).unwrap(), b"old");
        assert!(path("new").exists() && !path("new2").exists() && !path("replaced").exists());
        rename_all(&renames[..2]).unwrap();
        assert!(path("new2").exists() && path("replaced").join("file").exists());
    }
}

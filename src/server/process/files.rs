//! The lock of the data directory, and files with given permissions that are written atomically.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use watchet_storage::lock_with_retries;

/// The mode of a file that only its owner may read.
pub(in crate::server) const PRIVATE: u32 = 0o600;
/// The mode of a file that all users may read.
pub(in crate::server) const PUBLIC: u32 = 0o644;

/// An operation on a file or directory failed.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {path:?}: {source}")]
pub(in crate::server) struct FileError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    /// Returns true if the disk is full.
    pub(in crate::server) fn is_full_disk(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }

    pub(super) fn of(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self {
            doing,
            path,
            source,
        }
    }
}

/// Why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum DataDirError {
    /// Another process uses it.
    #[error(
        "--data-dir {path:?} is in use by another watchet{pid}: stop it, or give this one its own \
         --data-dir"
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// ` (process 123)`, if known.
        pid: String,
    },
    /// It cannot be created or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The locked data directory.
#[derive(Debug)]
pub(in crate::server) struct DataDir {
    /// The absolute path.
    pub path: PathBuf,
    /// Locked; the system releases the lock at any end of the process.
    _lock: File,
}

impl DataDir {
    /// Creates `path`, for its owner only, unless it exists, and locks it.
    ///
    /// # Errors
    /// It is in use, or cannot be created or written.
    pub(in crate::server) fn lock(path: &Path) -> Result<Self, DataDirError> {
        make_private_dir(path)?;
        let path = std::path::absolute(path).map_err(FileError::of("cannot resolve", path))?;
        let lock_path = path.join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE)
            .open(&lock_path)
            .map_err(FileError::of("cannot open", &lock_path))?;
        match lock_with_retries(&lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = io::read_to_string(&lock).unwrap_or_default();
                let pid = match pid.trim() {
                    "" => String::new(),
                    pid => format!(" (process {pid})"),
                };
                return Err(DataDirError::InUse { path, pid });
            }
            Err(TryLockError::Error(error)) => {
                return Err(FileError::of("cannot lock", &lock_path)(error).into());
            }
        }
        let written = lock
            .set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        if let Err(error) = written {
            // Only the message of another process lacks it. On a full disk a server must start.
            tracing::warn!(%error, path = %lock_path.display(), "cannot write the process ID");
        }
        Ok(Self { path, _lock: lock })
    }
}

/// Creates a directory for its owner only, unless it exists.
pub(in crate::server) fn make_private_dir(path: &Path) -> Result<(), FileError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(FileError::of("cannot create directory", path))
}

/// Writes a file atomically: readers see the old or the new content. Not synced, for files that are
/// recreated if damaged.
pub(in crate::server) fn write(path: &Path, contents: &[u8], mode: u32) -> Result<(), FileError> {
    replace(path, contents, mode, false)
}

/// As [`write()`], and synced to disk.
pub(in crate::server) fn write_synced(
    path: &Path,
    contents: &[u8],
    mode: u32,
) -> Result<(), FileError> {
    replace(path, contents, mode, true)
}

fn replace(path: &Path, contents: &[u8], mode: u32, sync: bool) -> Result<(), FileError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let temporary = dir.join(format!(".{name}.{}", std::process::id()));
    let write = || {
        // A leftover of a crashed process with the same ID would retain its mode.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        file.write_all(contents)?;
        if sync {
            file.sync_all()?;
        }
        std::fs::rename(&temporary, path)?;
        if sync {
            File::open(dir)?.sync_all()?;
        }
        Ok(())
    };
    write().map_err(|error| {
        // The first error is the one to report; the next attempt removes a leftover.
        let _leftover = std::fs::remove_file(&temporary);
        FileError::of("cannot write", path)(error)
    })
}

/// Reads a file; `None` if it does not exist.
pub(in crate::server) fn read_if_exists(path: &Path) -> Result<Option<String>, FileError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::of("cannot read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn replaced_files_have_the_given_mode_and_leave_no_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, "old and longer").unwrap();
        for sync in [false, true] {
            replace(&path, b"new", PRIVATE, sync).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"new");
            assert_eq!(mode(&path), 0o600);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        let error = write(&dir.path().join("no/such/file"), b"", PUBLIC).unwrap_err();
        assert!(error.to_string().contains("no/such/file"), "{error}");
    }

    #[test]
    fn a_data_dir_is_locked_by_one_process() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let first = DataDir::lock(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        let error = DataDir::lock(&path).unwrap_err().to_string();
        let expected = format!("in use by another watchet (process {})", std::process::id());
        assert!(error.contains(&expected), "{error}");
        drop(first);
        DataDir::lock(&path).unwrap();
    }
}

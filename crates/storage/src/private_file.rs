//! Files that only their owner can access, their directory, and locks of files.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::Duration;

/// The number of attempts to lock a file, and the pause between them: 0.5 s in total. 5 s in the unit tests of this crate: a child
/// process that another test starts shares the lock until it executes its program, and may wait long for a processor.
const LOCK_ATTEMPTS: usize = if cfg!(test) { 500 } else { 50 };
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Opens a file for reading and writing; creates it with access for its owner only.
pub(crate) fn open_private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Waits until the name of `path` in its directory is on disk.
pub(crate) fn sync_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
        // The parent of a relative path of one component is the empty path, which cannot be opened.
        _ => sync_directory(Path::new(".")),
    }
}

/// Waits until the names of the files in `directory` are on disk.
pub(crate) fn sync_directory(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Locks `file` until all processes that share it have closed it. Retries for up to half a second, which blocks the thread: a
/// child process shares the open files of its parent until it executes its program, so a lock can outlive the process that
/// held it.
///
/// # Errors
/// Another process has the lock, or the file cannot be locked.
pub fn lock_with_retries(file: &File) -> Result<(), TryLockError> {
    let mut tries_left = LOCK_ATTEMPTS;
    loop {
        tries_left -= 1;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if tries_left > 0 => {
                std::thread::sleep(LOCK_RETRY_PAUSE);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parent of `store` was the empty path, so a restore to it failed after it had renamed everything.
    #[test]
    fn the_parent_of_a_single_component_is_the_working_directory() {
        sync_parent(Path::new("store")).unwrap();
        sync_parent(Path::new("/store")).unwrap();
        assert!(sync_parent(Path::new("no/store")).is_err());
    }
}

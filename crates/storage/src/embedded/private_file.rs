//! Files that only their owner can access, and their directory.

use std::fs::{File, OpenOptions};
use std::path::Path;

/// Opens a file for reading and writing; creates it with access for its owner only.
pub(super) fn open_private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Waits until the names of the files in `directory` are on disk.
pub(super) fn sync_directory(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

//! The names of the files in the data directory.

/// The name of the data file in the data directory.
pub const DATA_FILE: &str = "store.redb";
/// The name of the file with the checksums of the pages of the data file, which a clean
/// shutdown stores.
pub const CHECKSUMS_FILE: &str = "store.redb.checksums";
/// The name of the file that stores the last durable revision.
pub const REVISION_FILE: &str = "store.revision_file";
/// The name of the file that stores the last durable revision outside of the directory of the store,
/// so that a replaced directory is detected. See [`Remembered`](super::Remembered).
pub const REMEMBERED_FILE: &str = "store.revision";
/// The name of the file that occupies disk space until the disk is full.
pub const RESERVE_FILE: &str = "store.reserve";
/// The names of the files of the write-ahead log.
pub const WAL_FILES: [&str; 2] = ["store.wal.0", "store.wal.1"];

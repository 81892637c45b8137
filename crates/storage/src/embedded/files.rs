//! The names of the files in the data directory.

/// The name of the data file in the data directory.
pub const DATA_FILE: &str = "store.redb";
/// The name of the file that stores the last durable revision.
pub const REVISION_FILE: &str = "store.revision_file";
/// The names of the files of the write-ahead log.
pub const WAL_FILES: [&str; 2] = ["store.wal.0", "store.wal.1"];

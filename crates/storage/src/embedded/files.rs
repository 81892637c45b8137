//! The names of the files in the data directory.

/// The name of the data file in the data directory.
pub const DATA_FILE: &str = "store.redb";
/// The name of the file with the checksums of the pages of the data file, which a clean
/// shutdown stores.
pub const CHECKSUMS_FILE: &str = "store.redb.checksums";
/// The name of the file that stores the last durable revision beside the data file.
pub const REVISION_FILE: &str = "store.revision_file";
/// The name of the file that stores the last durable revision in the data directory, outside of the directory of the store,
/// so that a replaced directory is detected. See [`LastRevision`](super::LastRevision).
pub const LAST_REVISION_FILE: &str = "last-revision";
/// The name of the file with the times of revisions. See [`RevisionTimes`](crate::RevisionTimes).
pub const TIMES_FILE: &str = "store.times";
/// The name of the file that occupies disk space until the disk is full.
pub const RESERVE_FILE: &str = "store.reserve";
/// The names of the files of the write-ahead log.
pub const WAL_FILES: [&str; 2] = ["store.wal.0", "store.wal.1"];

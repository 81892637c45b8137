//! Errors of the embedded store: [`OpenError`] for opening it, and `Fault` for a read or write,
//! which becomes a `StorageError` with the name of the file.

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{DATA_FILE, WAL_FILES};
use crate::StorageError;

/// The remedy for a damaged store; each message about damage ends with it.
pub(super) const REMEDY: &str = "stop the server and run `watchet store restore FILE --force`, or \
                                 move the directory `store` away to start with an empty store";

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The data directory or a file in it cannot be created, read or written.
    #[error("cannot use {path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process, or another handle of this process, has the store open.
    #[error(
        "data directory {directory} is in use by another process: stop it, or choose another \
         directory"
    )]
    InUse {
        /// The data directory.
        directory: PathBuf,
    },
    /// The data file is damaged, truncated or older than before. It is not served.
    #[error("data file {path} is corrupt ({detail}): {REMEDY}")]
    Corrupt {
        /// The data file.
        path: PathBuf,
        /// What is wrong with the file.
        detail: String,
    },
    /// Another version of the program wrote the data file, with another layout.
    #[error(
        "data file {path} has format {found} but this version reads format {supported}: \
         use the version that wrote it"
    )]
    Format {
        /// The data file.
        path: PathBuf,
        /// The format in the file.
        found: u64,
        /// The format of this version.
        supported: u64,
    },
}

impl OpenError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn corrupt(path: &Path, detail: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            detail: detail.into(),
        }
    }

    /// Returns the error for a write-ahead log in which frame `missing` cannot be read at `offset`
    /// of the file `path`, although frame `later` exists.
    pub(super) fn corrupt_wal(path: &Path, offset: usize, missing: u64, later: u64) -> Self {
        let [a, b] = WAL_FILES;
        Self::corrupt(
            path,
            format!(
                "frame {missing} is missing or damaged at offset {offset}, but frame {later} \
                 exists; if you put an older copy of {DATA_FILE} there on purpose, remove {a} and \
                 {b}"
            ),
        )
    }

    /// Converts a fault that occurred while opening `path`.
    pub(super) fn from_fault(path: &Path, fault: Fault) -> Self {
        match fault {
            Fault::Damaged(detail) => Self::corrupt(path, detail),
            Fault::Failed(detail) => Self::io(path, io::Error::other(detail)),
            Fault::Storage(error) => Self::io(path, io::Error::other(error.to_string())),
        }
    }
}

/// A failed operation on the tables, before the file's name is known.
#[derive(Debug)]
pub(super) enum Fault {
    /// A checksum, pointer or page is wrong.
    Damaged(String),
    /// The operating system reported an error (disk full, I/O error).
    Failed(String),
    /// Returned to the caller unchanged.
    Storage(StorageError),
}

impl Fault {
    /// Converts the fault into the caller's error, with the name of the data file.
    pub(super) fn name_file(self, file: &str) -> StorageError {
        match self {
            Self::Damaged(detail) => StorageError::Corrupt(format!(
                "{file}: {detail}: restart the server, which verifies the whole data file; if it \
                 reports damage again, {REMEDY}"
            )),
            Self::Failed(detail) => StorageError::Failed(format!("{file}: {detail}")),
            Self::Storage(error) => error,
        }
    }

    fn from_redb(error: redb::Error) -> Self {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        match error {
            redb::Error::Corrupted(detail) => Self::Damaged(detail),
            redb::Error::Io(error) if matches!(error.kind(), InvalidData | UnexpectedEof) => {
                Self::Damaged(error.to_string())
            }
            // A valid store has its tables, with their types, from its first commit on.
            error @ (redb::Error::TableDoesNotExist(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_)
            | redb::Error::TypeDefinitionChanged { .. }) => Self::Damaged(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<StorageError> for Fault {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

macro_rules! fault_from {
    ($($error:ty),*) => {
        $(impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Self::from_redb(error.into())
            }
        })*
    };
}

fault_from!(
    redb::StorageError,
    redb::TableError,
    redb::TransactionError,
    redb::CommitError,
    redb::DatabaseError,
    redb::CompactionError,
    redb::SetDurabilityError
);

/// Runs `work` on the database and converts a panic into [`Fault::Damaged`]: a page with a valid
/// checksum but invalid content makes the database panic.
pub(super) fn catch_damage<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // Unwind safety: after a panic inside a write the writer rejects all further writes, and a
    // read's transaction and tables are dropped here.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let detail = format!("invalid page ({})", panic_message(&*panic));
        Err(Fault::Damaged(detail))
    })
}

/// Runs the caller's `work` on values of the store, and converts a panic into [`Fault::Failed`]: the
/// values may be sound.
pub(super) fn catch_failure(work: impl FnOnce()) -> Result<(), Fault> {
    // Unwind safety: `work` borrows nothing from the store that it could change.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|panic| {
        let detail = format!(
            "the decoder of a listed value panicked: {}",
            panic_message(&*panic)
        );
        Fault::Failed(detail)
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_damage_with_the_file_name() {
        for panic in [|| panic!("page 7"), || panic!("page {}", 7)] {
            let panic: fn() -> Result<(), Fault> = panic;
            let error = catch_damage(panic)
                .unwrap_err()
                .name_file("/data/store.redb");
            match error {
                StorageError::Corrupt(text) => {
                    assert!(
                        text.contains("/data/store.redb") && text.contains("page 7"),
                        "{text}"
                    );
                    assert!(text.contains("restore"), "{text}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn io_errors_are_not_damage() {
        let full = redb::StorageError::Io(io::Error::from(io::ErrorKind::StorageFull));
        assert!(matches!(Fault::from(full), Fault::Failed(_)));
        let cut = redb::StorageError::Io(io::Error::from(io::ErrorKind::UnexpectedEof));
        assert!(matches!(Fault::from(cut), Fault::Damaged(_)));
    }
}

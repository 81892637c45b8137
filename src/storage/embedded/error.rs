//! What can go wrong under the embedded store: opening it ([`OpenError`]), and a read or a write
//! inside it (`Fault`, which becomes a `StorageError` that names the file). It decides nothing.

use std::io;
use std::path::{Path, PathBuf};

use crate::storage::StorageError;

/// What to do about a damaged store; the end of every message about one.
pub(super) const REMEDY: &str = "stop the server and restore the data directory from a backup, \
                                 or move it away to start with an empty store";

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory or a file in it cannot be created, read or written.
    #[error("cannot use {path}: {source}")]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Another process (or another handle of this one) has the store open.
    #[error(
        "data directory {directory} is in use by another process: stop it, or choose another \
         directory"
    )]
    InUse {
        /// The data directory.
        directory: PathBuf,
    },
    /// The data file is damaged, truncated or older than it was. Nothing of it is served.
    #[error("data file {path} is corrupt ({detail}): {REMEDY}")]
    Corrupt {
        /// The data file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The data file was written by a version of the program with another layout.
    #[error(
        "data file {path} has format {found} but this version reads format {supported}: \
         use the version that wrote it"
    )]
    Format {
        /// The data file.
        path: PathBuf,
        /// The format that it says it has.
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

    /// What a fault while opening `path` means.
    pub(super) fn from_fault(path: &Path, fault: Fault) -> Self {
        match fault {
            Fault::Damaged(detail) => Self::corrupt(path, detail),
            Fault::Failed(detail) => Self::io(path, io::Error::other(detail)),
            Fault::Told(error) => Self::io(path, io::Error::other(error.to_string())),
        }
    }
}

/// Why an operation on the tables failed, before the file's name is known.
#[derive(Debug)]
pub(super) enum Fault {
    /// A checksum, a pointer or a page is wrong.
    Damaged(String),
    /// The system refused (disk full, I/O error).
    Failed(String),
    /// The caller is told as is.
    Told(StorageError),
}

impl Fault {
    /// The error for the caller of storage, with the name of the data file.
    pub(super) fn name_file(self, file: &str) -> StorageError {
        match self {
            Self::Damaged(detail) => StorageError::Corrupt(format!("{file}: {detail}: {REMEDY}")),
            Self::Failed(detail) => StorageError::Failed(format!("{file}: {detail}")),
            Self::Told(error) => error,
        }
    }

    fn from_redb(error: redb::Error) -> Self {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        match error {
            redb::Error::Corrupted(detail) => Self::Damaged(detail),
            redb::Error::Io(error) if matches!(error.kind(), InvalidData | UnexpectedEof) => {
                Self::Damaged(error.to_string())
            }
            // A store of ours has its tables, with their types, from its first commit on.
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
        Self::Told(error)
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
    redb::SetDurabilityError
);

/// Runs `work` on the database. A page that passed for good but is not makes the database panic;
/// nothing it was about to say is used, and the panic becomes the damage that it is.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // Unwind safety: after a panic inside a write the writer refuses every further write, and a
    // read's transaction and tables are dropped here.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let detail = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Fault::Damaged(format!("a page makes no sense ({detail})")))
    })
}

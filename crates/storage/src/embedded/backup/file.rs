//! `BackupFile`: reads and verifies a backup.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::super::codec::Record;
use super::super::error::{Fault, OpenError};
use super::{ENTRY_HEAD_LEN, MAGIC};
use crate::embedded::VALUE_BYTES_MAX;

/// The maximum length of a record in bytes: the largest value, a key and the fields of fixed size. No store has a longer
/// record, see [`BackupError::TooLarge`].
pub(super) const RECORD_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 16);

/// The error of a backup that cannot be created, read or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The file cannot be read.
    #[error("cannot read the backup {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a backup, is damaged or is incomplete.
    #[error("{path} is not a complete backup ({detail}): use another one")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The directory has a store.
    #[error("{directory} has a store: move it away, or give --force to keep it beside the new one")]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
    },
    /// A value, or its key, is larger than the store accepts, so that no backup could contain it.
    #[error(
        "the value of {key:.300} has {bytes} bytes; the embedded store accepts {VALUE_BYTES_MAX} at most, and a key of \
         some KiB: delete the object or make it smaller, and repeat the command"
    )]
    TooLarge {
        /// The key.
        key: String,
        /// The size of the value.
        bytes: usize,
    },
    /// The new store cannot be created.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// What a backup contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupSummary {
    /// The revision of the backup.
    pub revision: u64,
    /// The number of keys.
    pub keys: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
}

/// Reads the whole backup `path` and verifies each record.
///
/// # Errors
/// Returns [`BackupError`] if it is damaged or incomplete.
pub fn verify_backup(path: &Path) -> Result<BackupSummary, BackupError> {
    BackupFile::open(path)?.read_all(|_, _| Ok(()))
}

/// An open backup.
pub(super) struct BackupFile {
    path: PathBuf,
    reader: BufReader<File>,
    checksum: crc32fast::Hasher,
    bytes: u64,
    revision: u64,
}

impl BackupFile {
    /// Opens a backup and reads its revision.
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let file = File::open(path).map_err(|source| BackupError::Read {
            path: path.to_owned(),
            source,
        })?;
        let mut backup = Self {
            path: path.to_owned(),
            reader: BufReader::with_capacity(1 << 16, file),
            checksum: crc32fast::Hasher::new(),
            bytes: 0,
            revision: 0,
        };
        if backup.read::<8>()? != *MAGIC {
            return Err(backup.damaged("it does not begin as a backup of this version"));
        }
        backup.revision = u64::from_le_bytes(backup.read()?);
        Ok(backup)
    }

    /// Passes each record with its revision to `each`, and checks that the backup is complete.
    pub(super) fn read_all(
        mut self,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), BackupError>,
    ) -> Result<BackupSummary, BackupError> {
        let (mut keys, mut last, mut record) = (0, String::new(), Vec::new());
        loop {
            let len = u32::from_le_bytes(self.read()?) as usize;
            if len == 0 {
                break;
            }
            if len > RECORD_BYTES_MAX {
                return Err(self.damaged(&format!("a record has {len} bytes")));
            }
            let revision = u64::from_le_bytes(self.read()?);
            record.resize(len, 0);
            self.fill(&mut record)?;
            let key = match Record::decode(revision, &record) {
                Ok(record) if record.value.is_some() && revision <= self.revision => record.key,
                Ok(_) => return Err(self.damaged(&format!("an invalid record of {revision}"))),
                Err(Fault::Damaged(detail)) => return Err(self.damaged(&detail)),
                Err(fault) => return Err(OpenError::from_fault(&self.path, fault).into()),
            };
            if *key <= *last {
                return Err(self.damaged(&format!("the key {key} is after {last}")));
            }
            key.clone_into(&mut last);
            keys += 1;
            each(revision, &record)?;
        }
        let expected = u64::from_le_bytes(self.read()?);
        let checksum = self.checksum.clone().finalize();
        if expected != keys || self.read()? != checksum.to_le_bytes() {
            return Err(self.damaged("its checksum does not match"));
        }
        let mut more = [0];
        match self.reader.read(&mut more) {
            Ok(0) => Ok(BackupSummary {
                revision: self.revision,
                keys,
                bytes: self.bytes,
            }),
            Ok(_) => Err(self.damaged("it continues after its last record")),
            Err(source) => Err(self.unreadable(source)),
        }
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        self.reader
            .read_exact(bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => self.damaged("it ends early"),
                _ => self.unreadable(error),
            })?;
        self.checksum.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn unreadable(&self, source: io::Error) -> BackupError {
        BackupError::Read {
            path: self.path.clone(),
            source,
        }
    }

    fn damaged(&self, detail: &str) -> BackupError {
        BackupError::Damaged {
            path: self.path.clone(),
            detail: format!("{detail}, after {} bytes", self.bytes),
        }
    }
}

const _: () = assert!(ENTRY_HEAD_LEN == 12);

//! Opens the files of a store: the directory and its lock, the data file and its checks, and the
//! changes in the log.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use redb::{Builder, Database, DatabaseError, ReadableDatabase as _};

use super::checked_file::CheckedFile;
use super::codec::decode_number;
use super::error::{Fault, OpenError, catch_damage};
use super::files::{CHECKSUMS_FILE, REVISION_FILE};
use super::layer::{FrozenLayer, Layer, Position};
use super::snapshot::Base;
use super::tables::{self, FORMAT, FORMAT_VERSION, META};
use super::wal::Frame;
use crate::private_file::{lock_with_retries, open_private, sync_directory};

const NEW_DATA_FILE: &str = "store.redb.new";
const LOCK_FILE: &str = "store.lock";

/// The database's page cache. It needs to hold only what a transaction writes and the inner pages
/// on the path, since the watch cache holds the objects and the kernel caches the file. The default
/// of 1 GiB would let the process grow by 1 GiB, and writes are no faster with 16 MiB.
pub(super) const PAGE_CACHE_BYTES: usize = 4 << 20;

/// An open database.
pub(super) struct OpenDatabase {
    pub(super) db: Database,
    /// Its file; `None` if it is not in a file.
    pub(super) file: Option<CheckedFile>,
    /// True if the whole file was verified; false if only what is read is verified.
    pub(super) is_verified: bool,
}

impl OpenDatabase {
    /// Returns the damage that was found in the file, if any.
    pub(super) fn damage(&self) -> Option<&str> {
        self.file.as_ref().and_then(CheckedFile::damage)
    }

    /// Returns an error if a damaged page of the file was found.
    pub(super) fn check_damage(&self) -> Result<(), Fault> {
        match self.damage() {
            Some(detail) => Err(Fault::Damaged(detail.to_owned())),
            None => Ok(()),
        }
    }

    /// Returns the cause of `fault`: after the first damaged page, the database only reports that an
    /// earlier access has failed.
    pub(super) fn with_root_cause(&self, fault: Fault) -> Fault {
        match (fault, self.damage()) {
            (Fault::Failed(_), Some(detail)) => Fault::Damaged(detail.to_owned()),
            (fault, _) => fault,
        }
    }
}

impl From<Database> for OpenDatabase {
    fn from(db: Database) -> Self {
        Self {
            db,
            file: None,
            is_verified: true,
        }
    }
}

/// Opens the tables and checks them beyond the checksums of their pages.
pub(super) fn open_tables(db: &Database, path: &Path) -> Result<Base, OpenError> {
    let format = catch_damage(|| {
        let txn = db.begin_read()?;
        let meta = txn.open_table(META)?;
        let bytes = meta.get(FORMAT)?;
        bytes
            .and_then(|bytes| decode_number(FORMAT, bytes.value()))
            .ok_or_else(|| Fault::Damaged("the format is missing".to_owned()))
    });
    let found = format.map_err(|fault| OpenError::from_fault(path, fault))?;
    if found != FORMAT_VERSION {
        return Err(OpenError::Format {
            path: path.to_owned(),
            found,
            supported: FORMAT_VERSION,
        });
    }
    let base = catch_damage(|| {
        let base = Base::open(db)?;
        base.check_newest()?;
        Ok(base)
    });
    base.map_err(|fault| OpenError::from_fault(path, fault))
}

/// Returns the layer of the frames of the log after `position`; `None` if there are none.
pub(super) fn replay(
    frames: Vec<Frame>,
    mut position: Position,
) -> Result<Option<FrozenLayer>, Fault> {
    if frames.is_empty() {
        return Ok(None);
    }
    let mut layer = Layer::default();
    for frame in frames {
        position.revision += frame.records().count() as u64;
        position.compacted = frame.compacted();
        position.sequence = frame.sequence();
        layer.replay(frame)?;
    }
    tracing::info!(
        revision = position.revision,
        bytes = layer.bytes(),
        "replayed the write-ahead log of the store"
    );
    Ok(Some(FrozenLayer {
        layer,
        end: position,
    }))
}

/// Checks that the store is not older than the revision file.
pub(super) fn check_revision(
    path: &Path,
    revision: u64,
    last_revision: Option<u64>,
) -> Result<(), OpenError> {
    match last_revision {
        Some(last_revision) if last_revision > revision => Err(OpenError::corrupt(
            path,
            format!(
                "it is at revision {revision}, but {REVISION_FILE} beside it says that revision \
                 {last_revision} was written; if you put an older copy there on purpose, remove \
                 {REVISION_FILE}"
            ),
        )),
        _ => Ok(()),
    }
}

/// Creates the data directory with access for its owner only, since stored objects include secrets.
/// An existing directory keeps its mode.
pub(super) fn make_directory(directory: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Locks the directory for this process. The database also locks its file, but the directory must
/// be locked before the file exists and while the revision file is read.
pub(super) fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK_FILE);
    let file = open_private(&path).map_err(|error| OpenError::io(&path, error))?;
    match lock_with_retries(&file) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            directory: directory.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(OpenError::io(&path, error)),
    }
}

/// Creates an empty store at `revision` under a temporary name first, so that a killed process leaves no partial
/// file, which a later open would report as corrupt, and no store at a lower revision.
pub(super) fn create(
    directory: &Path,
    path: &Path,
    revision: u64,
) -> Result<OpenDatabase, OpenError> {
    let new = directory.join(NEW_DATA_FILE);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(OpenError::io(&new, error));
        }
        _ => {}
    }
    let checksums = path.with_file_name(CHECKSUMS_FILE);
    let (file, _) =
        CheckedFile::open(&new, &checksums).map_err(|error| OpenError::io(&new, error))?;
    let db = Builder::new()
        .set_cache_size(PAGE_CACHE_BYTES)
        .create_with_backend(file.clone())
        .map_err(|error| OpenError::from_fault(&new, error.into()))?;
    initialize(&db, revision).map_err(|fault| OpenError::from_fault(&new, fault))?;
    file.sync_created()
        .map_err(|error| OpenError::io(&new, error))?;
    file.set_open();
    std::fs::rename(&new, path).map_err(|error| OpenError::io(path, error))?;
    // The rename is durable once the directory is synced.
    sync_directory(directory).map_err(|error| OpenError::io(directory, error))?;
    Ok(OpenDatabase {
        db,
        file: Some(file),
        is_verified: true,
    })
}

/// Creates the tables of an empty store at `revision`.
pub(super) fn initialize(db: &Database, revision: u64) -> Result<(), Fault> {
    let mut txn = db.begin_write()?;
    txn.set_two_phase_commit(true);
    tables::create(&txn, revision)?;
    txn.commit()?;
    Ok(())
}

/// Opens a file. A damaged inner page could hide objects, which the checksums of records do not
/// detect. So each page is verified when it is read, with the checksums that the last clean
/// shutdown stored; without them the whole file is verified now.
pub(super) fn open_file(path: &Path) -> Result<OpenDatabase, OpenError> {
    let opened = catch_damage(|| {
        let (file, has_checksums) = CheckedFile::open(path, &path.with_file_name(CHECKSUMS_FILE))
            .map_err(|error| Fault::Failed(error.to_string()))?;
        let opened = Builder::new()
            .set_cache_size(PAGE_CACHE_BYTES)
            .set_check_integrity_on_open(!has_checksums)
            .create_with_backend(file.clone());
        let db = match opened {
            Err(DatabaseError::DatabaseAlreadyOpen) => return Ok(None),
            Err(DatabaseError::UpgradeRequired(version)) => {
                return Err(Fault::Damaged(format!(
                    "file format version {version} is not supported"
                )));
            }
            opened => opened?,
        };
        file.set_open();
        Ok(Some(OpenDatabase {
            db,
            file: Some(file),
            is_verified: !has_checksums,
        }))
    });
    match opened {
        Ok(Some(opened)) => Ok(opened),
        Ok(None) => Err(OpenError::InUse {
            directory: path.parent().map(PathBuf::from).unwrap_or_default(),
        }),
        Err(fault) => Err(OpenError::from_fault(path, fault)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::codec::encode_number;

    /// A store that was opened again immediately after its end was sometimes in use: another thread was starting a
    /// process, whose copy of the lock file was open until it had executed the program.
    #[test]
    fn the_lock_of_a_closed_store_may_be_open_in_a_starting_process() {
        let directory = tempfile::tempdir().unwrap();
        let closed = lock(directory.path()).unwrap();
        let copy = closed.try_clone().unwrap();
        drop(closed);
        let exec = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(copy);
        });
        let opened = lock(directory.path()).unwrap();
        exec.join().unwrap();
        let error = lock(directory.path()).unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        drop(opened);
    }

    #[test]
    fn a_store_of_a_later_format_is_refused() {
        let backend = redb::backends::InMemoryBackend::new();
        let db = Builder::new().create_with_backend(backend).unwrap();
        let txn = db.begin_write().unwrap();
        tables::create(&txn, 1).unwrap();
        let later = FORMAT_VERSION + 1;
        let mut meta = txn.open_table(META).unwrap();
        meta.insert(FORMAT, &*encode_number(FORMAT, later)).unwrap();
        drop(meta);
        txn.commit().unwrap();
        let Err(error) = open_tables(&db, Path::new("store.redb")) else {
            panic!("it was opened");
        };
        assert_eq!(
            error.to_string(),
            "data file store.redb has format 2 but this version reads format 1: use the version that wrote it"
        );
    }
}

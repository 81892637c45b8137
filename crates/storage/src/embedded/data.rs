//! The data file: opens it (locked and verified), reads it in snapshots, and opens it again after a
//! failure.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use redb::{Builder, Database, DatabaseError, Durability, ReadableDatabase as _, StorageBackend};

use super::codec::decode_number;
use super::error::{Fault, OpenError, catch_damage};
use super::private_file::open_private;
use super::revision_file::RevisionFile;
use super::snapshot::Snapshot;
use super::tables::{self, FORMAT, FORMAT_VERSION, META};
use crate::StorageError;

/// The name of the data file in the data directory.
pub const DATA_FILE: &str = "store.redb";
const NEW_DATA_FILE: &str = "store.redb.new";
/// The name of the file that stores the last durable revision.
pub const REVISION_FILE: &str = "store.revision_file";
const LOCK_FILE: &str = "store.lock";

/// The database's page cache. It needs to hold only what a transaction writes and the inner pages
/// on the path, since the watch cache holds the objects and the kernel caches the file. The default
/// of 1 GiB would let the process grow by 1 GiB, and writes are no faster with 16 MiB.
const PAGE_CACHE_BYTES: usize = 4 << 20;

/// Opens a failed database again.
type Opener = Box<dyn Fn() -> Result<Database, OpenError> + Send + Sync>;

/// The file of an open store.
pub(super) struct Data {
    /// `None` while closed: after a failure until it is open again, and after shutdown.
    db: RwLock<Option<Database>>,
    opener: Option<Opener>,
    /// The name of the file in errors.
    name: String,
    on_disk: bool,
    /// `None` if the database is not in a file.
    path: Option<PathBuf>,
    /// The last revision that a client can have seen: the writer raises it after a commit, and so
    /// does a reader before it returns.
    newest: AtomicU64,
    /// Released after the file is closed.
    lock: Mutex<Option<File>>,
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").field("name", &self.name).finish()
    }
}

impl Data {
    /// Opens the store in `directory`; creates both if needed.
    pub(super) fn open(directory: &Path) -> Result<(Self, Option<RevisionFile>), OpenError> {
        make_directory(directory).map_err(|error| OpenError::io(directory, error))?;
        let lock = lock(directory)?;
        let path = directory.join(DATA_FILE);
        let revision_path = directory.join(REVISION_FILE);
        let (revision_file, last_revision) = RevisionFile::open(&revision_path)
            .map_err(|error| OpenError::io(&revision_path, error))?;
        let len = match std::fs::metadata(&path) {
            Ok(metadata) => Some(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(OpenError::io(&path, error)),
        };
        let db = match (len, last_revision) {
            (None, None) => create(directory, &path)?,
            (None, Some(last_revision)) => {
                let detail = format!(
                    "the file is missing, but {} has revision {last_revision}",
                    revision_path.display()
                );
                return Err(OpenError::corrupt(&path, detail));
            }
            (Some(0), _) => return Err(OpenError::corrupt(&path, "the file is empty")),
            (Some(_), _) => open_file(&path)?,
        };
        let again = path.clone();
        let data = Self {
            db: RwLock::new(Some(db)),
            opener: Some(Box::new(move || open_file(&again))),
            name: path.display().to_string(),
            on_disk: true,
            path: Some(path.clone()),
            newest: AtomicU64::default(),
            lock: Mutex::new(Some(lock)),
        };
        data.check(&path, last_revision)?;
        Ok((data, Some(revision_file)))
    }

    /// Creates a store in `backend`, which is in memory or simulates failures.
    pub(super) fn on(backend: impl StorageBackend) -> Result<Self, OpenError> {
        let path = Path::new("memory");
        let db = Builder::new()
            .set_cache_size(PAGE_CACHE_BYTES)
            .create_with_backend(backend)
            .map_err(|error| OpenError::from_fault(path, error.into()))?;
        initialize(&db).map_err(|fault| OpenError::from_fault(path, fault))?;
        Ok(Self {
            db: RwLock::new(Some(db)),
            opener: None,
            name: "memory".to_owned(),
            on_disk: false,
            path: None,
            newest: AtomicU64::default(),
            lock: Mutex::default(),
        })
    }

    /// Sets the function that opens the database after a failure.
    #[cfg(test)]
    pub(super) fn with_opener(mut self, opener: Opener) -> Self {
        self.opener = Some(opener);
        self.on_disk = true;
        self
    }

    /// Returns the size of the file in bytes.
    pub(super) fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        let metadata = self.path.as_ref().map(std::fs::metadata).transpose();
        let metadata =
            metadata.map_err(|error| StorageError::Failed(format!("{}: {error}", self.name)))?;
        Ok(metadata.map(|file| file.len()))
    }

    /// Closes the file and releases the directory once current reads have ended.
    pub(super) fn close(&self) {
        *self.db.write() = None;
        self.lock.lock().take();
    }

    /// Runs `work` on the database. Fails immediately while the database is being opened again,
    /// which takes as long as verifying the file.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, Fault>) -> Result<T, Fault> {
        let guard = self.db.try_read();
        match guard.as_ref().and_then(|db| db.as_ref()) {
            Some(db) => work(db),
            None => {
                let detail = format!(
                    "{}: the store is closed, or is being opened again after a failure",
                    self.name
                );
                Err(Fault::Storage(StorageError::Unavailable(detail)))
            }
        }
    }

    /// Opens the database again after a failure and returns its revision. The transaction that
    /// failed may be in it or not.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened, now or ever.
    pub(super) fn reopen(&self) -> Result<u64, Fault> {
        let opener = self
            .opener
            .as_ref()
            .ok_or_else(|| Fault::Failed("the store is not in a file".to_owned()))?;
        // Waits for current reads, which are short.
        let mut db = self.db.write();
        catch_damage(|| {
            // The file must be closed first: only one handle may have it open.
            *db = None;
            let opened = opener().map_err(|error| match error {
                OpenError::Corrupt { detail, .. } => Fault::Damaged(detail),
                error => Fault::Failed(error.to_string()),
            })?;
            let snapshot = Snapshot::take(&opened)?;
            snapshot.check_newest()?;
            *db = Some(opened);
            Ok(snapshot.revision)
        })
    }

    /// Runs `read` on a snapshot of the current state.
    ///
    /// # Errors
    /// Returns the error of `read`, or [`StorageError::Corrupt`] if the file is damaged.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Snapshot) -> Result<T, Fault>,
    ) -> Result<T, StorageError> {
        let read = |db: &Database| {
            let snapshot = Snapshot::take(db)?;
            self.raise_newest(snapshot.revision);
            read(&snapshot)
        };
        catch_damage(|| self.with(read)).map_err(|fault| fault.name_file(&self.name))
    }

    /// Returns the last revision without reading the tables.
    ///
    /// # Errors
    /// As [`Self::read`], if the store is closed.
    pub(super) fn newest(&self) -> Result<u64, StorageError> {
        self.with(|_| Ok(self.newest.load(Ordering::Acquire)))
            .map_err(|fault| fault.name_file(&self.name))
    }

    /// Records that clients can see revisions up to this one.
    pub(super) fn raise_newest(&self, revision: u64) {
        self.newest.fetch_max(revision, Ordering::AcqRel);
    }

    /// Begins a write transaction. If `durable`, its commit returns once it is on disk.
    pub(super) fn begin_write(&self, durable: bool) -> Result<redb::WriteTransaction, Fault> {
        let mut txn = self.with(|db| Ok(db.begin_write()?))?;
        if self.on_disk && durable {
            // Two-phase commit flips the flag that chooses the commit only after the commit's pages
            // are on disk. Quick-repair adds a saved allocator state, which saves an open the scan
            // of the file; this store scans it anyway to verify it (see `open_file`).
            txn.set_two_phase_commit(true);
        } else if self.on_disk {
            txn.set_durability(Durability::None)?;
        }
        Ok(txn)
    }

    /// Returns the name of the file in errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Checks an opened file beyond the checksums of its pages.
    fn check(&self, path: &Path, last_revision: Option<u64>) -> Result<(), OpenError> {
        let format = catch_damage(|| {
            let txn = self.with(|db| Ok(db.begin_read()?))?;
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
        let revision = catch_damage(|| {
            self.with(|db| {
                let snapshot = Snapshot::take(db)?;
                snapshot.check_newest()?;
                Ok(snapshot.revision)
            })
        });
        let revision = revision.map_err(|fault| OpenError::from_fault(path, fault))?;
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
}

/// Creates the data directory with access for its owner only, since stored objects include secrets.
/// An existing directory keeps its mode.
fn make_directory(directory: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Locks the directory for this process. The database also locks its file, but the directory must
/// be locked before the file exists and while the revision file is read.
fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK_FILE);
    let file = open_private(&path).map_err(|error| OpenError::io(&path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            directory: directory.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(OpenError::io(&path, error)),
    }
}

/// Creates an empty store under a temporary name first, so that a killed process leaves no partial
/// file, which a later open would report as corrupt.
fn create(directory: &Path, path: &Path) -> Result<Database, OpenError> {
    let new = directory.join(NEW_DATA_FILE);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(OpenError::io(&new, error));
        }
        _ => {}
    }
    // The database accepts an empty file, which is created here so that only its owner can read it.
    open_private(&new).map_err(|error| OpenError::io(&new, error))?;
    let db = Builder::new()
        .set_cache_size(PAGE_CACHE_BYTES)
        .create(&new)
        .map_err(|error| OpenError::from_fault(&new, error.into()))?;
    initialize(&db).map_err(|fault| OpenError::from_fault(&new, fault))?;
    std::fs::rename(&new, path).map_err(|error| OpenError::io(path, error))?;
    // The rename is durable once the directory is synced.
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| OpenError::io(directory, error))?;
    Ok(db)
}

fn initialize(db: &Database) -> Result<(), Fault> {
    let mut txn = db.begin_write()?;
    txn.set_two_phase_commit(true);
    tables::create(&txn)?;
    txn.commit()?;
    Ok(())
}

/// Opens a file and verifies the checksum of each page: a damaged inner page could hide objects,
/// which the checksums of records do not detect.
fn open_file(path: &Path) -> Result<Database, OpenError> {
    let opened = catch_damage(|| {
        let opened = Builder::new()
            .set_cache_size(PAGE_CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .open(path);
        match opened {
            Err(DatabaseError::DatabaseAlreadyOpen) => Ok(None),
            Err(DatabaseError::UpgradeRequired(version)) => Err(Fault::Damaged(format!(
                "file format version {version} is not supported"
            ))),
            opened => Ok(Some(opened?)),
        }
    });
    match opened {
        Ok(Some(db)) => Ok(db),
        Ok(None) => Err(OpenError::InUse {
            directory: path.parent().map(PathBuf::from).unwrap_or_default(),
        }),
        Err(fault) => Err(OpenError::from_fault(path, fault)),
    }
}

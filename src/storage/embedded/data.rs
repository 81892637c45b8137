//! The data file: opening it (once, checked, by one process) and reading it in snapshots. What is
//! in it is the business of `tables` and `snapshot`.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use redb::{Builder, Database, DatabaseError, Durability, ReadableDatabase as _, StorageBackend};

use super::codec::decode_number;
use super::error::{Fault, OpenError, guarded};
use super::snapshot::Snapshot;
use super::tables::{self, FORMAT, FORMAT_VERSION, META};
use super::witness::Witness;
use crate::storage::StorageError;

/// Name of the data file in the data directory.
pub const DATA_FILE: &str = "store.redb";
const NEW_DATA_FILE: &str = "store.redb.new";
/// Name of the file beside it that says how far the store had come.
pub const WITNESS_FILE: &str = "store.witness";
const LOCK_FILE: &str = "store.lock";

/// Of the database's own page cache. It only has to hold what a transaction writes and the inner pages
/// on its way (the watch cache holds the objects, the kernel the file, and a page from there costs a
/// microsecond): the default of 1 GiB would let the process grow by as much. With four times as much a
/// write costs the same.
const PAGE_CACHE_BYTES: usize = 4 << 20;

/// How a database that has failed is opened again.
type Opener = Box<dyn Fn() -> Result<Database, OpenError> + Send + Sync>;

/// An open store's file.
pub(super) struct Data {
    /// `None` after a failure, until it could be opened again, and once closed.
    db: RwLock<Option<Database>>,
    opener: Option<Opener>,
    /// How errors call it.
    name: String,
    on_disk: bool,
    /// `None` when it is not a file.
    path: Option<PathBuf>,
    /// The last revision that anybody can have been told of: the writer raises it when it has
    /// committed, and whoever reads the tables before that.
    newest: AtomicU64,
    /// Given up after the file was closed, never before.
    lock: Mutex<Option<File>>,
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").field("name", &self.name).finish()
    }
}

impl Data {
    /// Opens the store in `directory`, making both when there is none.
    pub(super) fn open(directory: &Path) -> Result<(Self, Option<Witness>), OpenError> {
        make_directory(directory).map_err(|error| OpenError::io(directory, error))?;
        let lock = lock(directory)?;
        let path = directory.join(DATA_FILE);
        let witness_path = directory.join(WITNESS_FILE);
        let (witness, seen) =
            Witness::open(&witness_path).map_err(|error| OpenError::io(&witness_path, error))?;
        let len = match std::fs::metadata(&path) {
            Ok(metadata) => Some(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(OpenError::io(&path, error)),
        };
        let db = match (len, seen) {
            (None, None) => create(directory, &path)?,
            (None, Some(seen)) => {
                let detail = format!(
                    "it is missing, but {} says that it held revision {seen}",
                    witness_path.display()
                );
                return Err(OpenError::corrupt(&path, detail));
            }
            (Some(0), _) => return Err(OpenError::corrupt(&path, "it is empty")),
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
        data.check(&path, seen)?;
        Ok((data, Some(witness)))
    }

    /// A new store that lives in `backend`: in memory, but for tests of its failures.
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

    /// The same as if on a disk, opened again by `opener` after a failure.
    #[cfg(test)]
    pub(super) fn opened_again_by(mut self, opener: Opener) -> Self {
        self.opener = Some(opener);
        self.on_disk = true;
        self
    }

    /// How large the file is.
    pub(super) fn size_bytes(&self) -> Result<Option<u64>, StorageError> {
        let told = self.path.as_ref().map(std::fs::metadata).transpose();
        let told = told.map_err(|error| StorageError::Failed(format!("{}: {error}", self.name)))?;
        Ok(told.map(|file| file.len()))
    }

    /// Closes the file and frees the directory, once the reads under way have ended.
    pub(super) fn close(&self) {
        *self.db.write() = None;
        self.lock.lock().take();
    }

    /// Does `work` on the database. It does not wait while that is opened again, which takes as
    /// long as verifying the file does.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, Fault>) -> Result<T, Fault> {
        let guard = self.db.try_read();
        match guard.as_ref().and_then(|db| db.as_ref()) {
            Some(db) => work(db),
            None => {
                let detail = format!(
                    "{}: it has closed, or is being opened again after a failure",
                    self.name
                );
                Err(Fault::Told(StorageError::Unavailable(detail)))
            }
        }
    }

    /// Opens the database again after a failure, which it does not survive, and says at which
    /// revision it is: what was being written when it failed may be there or not.
    ///
    /// # Errors
    /// It cannot be opened (yet), or not at all.
    pub(super) fn reopen(&self) -> Result<u64, Fault> {
        let opener = self.opener.as_ref().ok_or_else(|| {
            Fault::Failed("it is not in a file that could be opened again".to_owned())
        })?;
        // Waits for the reads under way, which are short.
        let mut db = self.db.write();
        guarded(|| {
            // The file must be closed first: only one handle may have it.
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

    /// Reads from the store as it is now.
    ///
    /// # Errors
    /// What `read` says, and [`StorageError::Corrupt`] when anything on the way is damaged.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Snapshot) -> Result<T, Fault>,
    ) -> Result<T, StorageError> {
        let read = |db: &Database| {
            let snapshot = Snapshot::take(db)?;
            self.raise_newest(snapshot.revision);
            read(&snapshot)
        };
        guarded(|| self.with(read)).map_err(|fault| fault.name_file(&self.name))
    }

    /// The last revision, for a thousandth of what the tables take to say it.
    ///
    /// # Errors
    /// As [`Self::read`], when the store is closed.
    pub(super) fn newest(&self) -> Result<u64, StorageError> {
        self.with(|_| Ok(self.newest.load(Ordering::Acquire)))
            .map_err(|fault| fault.name_file(&self.name))
    }

    /// Revisions up to this one can be told from now on.
    pub(super) fn raise_newest(&self, revision: u64) {
        self.newest.fetch_max(revision, Ordering::AcqRel);
    }

    /// Begins a write transaction; `durable` ones are on disk when their commit returns.
    pub(super) fn begin_write(&self, durable: bool) -> Result<redb::WriteTransaction, Fault> {
        let mut txn = self.with(|db| Ok(db.begin_write()?))?;
        if self.on_disk && durable {
            // The flag that chooses the commit is only flipped after the commit's pages are on
            // disk. Quick-repair is this plus a saved allocator state that lets an open skip its
            // walk of the file; our opens walk it anyway, to check it (see `open_file`).
            txn.set_two_phase_commit(true);
        } else if self.on_disk {
            txn.set_durability(Durability::None)?;
        }
        Ok(txn)
    }

    /// How errors call the file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What an opened file must satisfy beyond the checksums of its pages.
    fn check(&self, path: &Path, seen: Option<u64>) -> Result<(), OpenError> {
        let format = guarded(|| {
            let txn = self.with(|db| Ok(db.begin_read()?))?;
            let meta = txn.open_table(META)?;
            let bytes = meta.get(FORMAT)?;
            bytes
                .and_then(|bytes| decode_number(FORMAT, bytes.value()))
                .ok_or_else(|| Fault::Damaged("its format is missing".to_owned()))
        });
        let found = format.map_err(|fault| OpenError::from_fault(path, fault))?;
        if found != FORMAT_VERSION {
            return Err(OpenError::Format {
                path: path.to_owned(),
                found,
                supported: FORMAT_VERSION,
            });
        }
        let revision = guarded(|| {
            self.with(|db| {
                let snapshot = Snapshot::take(db)?;
                snapshot.check_newest()?;
                Ok(snapshot.revision)
            })
        });
        let revision = revision.map_err(|fault| OpenError::from_fault(path, fault))?;
        match seen {
            Some(seen) if seen > revision => Err(OpenError::corrupt(
                path,
                format!(
                    "it is at revision {revision}, but {WITNESS_FILE} beside it says that revision \
                     {seen} was written; if you put an older copy there on purpose, remove \
                     {WITNESS_FILE}"
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Makes the data directory, for its owner alone: what is stored includes secrets. One that exists
/// keeps the mode that it was given.
fn make_directory(directory: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Opens a file for reading and writing, and makes it, for its owner alone, when there is none.
pub(super) fn open_private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Takes the directory for this process. The database locks its file too, but the directory is ours
/// before there is a file, while it is made, and while the witness is read.
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

/// Makes an empty store under another name first: a process killed meanwhile leaves no half-made
/// file that a later open would have to call corrupt.
fn create(directory: &Path, path: &Path) -> Result<Database, OpenError> {
    let new = directory.join(NEW_DATA_FILE);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(OpenError::io(&new, error));
        }
        _ => {}
    }
    // The database takes an empty file for a new one, and would make it readable by all.
    open_private(&new).map_err(|error| OpenError::io(&new, error))?;
    let db = Builder::new()
        .set_cache_size(PAGE_CACHE_BYTES)
        .create(&new)
        .map_err(|error| OpenError::from_fault(&new, error.into()))?;
    initialize(&db).map_err(|fault| OpenError::from_fault(&new, fault))?;
    std::fs::rename(&new, path).map_err(|error| OpenError::io(path, error))?;
    // The name is durable once the directory is.
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

/// Opens a file and verifies the checksum of each of its pages: a damaged inner page could hide
/// objects without a trace, which no record's own checksum would notice.
fn open_file(path: &Path) -> Result<Database, OpenError> {
    let opened = guarded(|| {
        let opened = Builder::new()
            .set_cache_size(PAGE_CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .open(path);
        match opened {
            Err(DatabaseError::DatabaseAlreadyOpen) => Ok(None),
            Err(DatabaseError::UpgradeRequired(version)) => Err(Fault::Damaged(format!(
                "its file format is version {version}, which this program never wrote"
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

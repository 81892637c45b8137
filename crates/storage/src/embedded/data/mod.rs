//! The data of a store: the tables in the data file, and over them the layers with newer changes.
//! Opens the file (locked and verified), replays the log, makes snapshots, and opens the file again
//! after a failure.

mod access;
mod availability;
mod file;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};
use redb::{Builder, Database, StorageBackend};

use self::availability::Availability;
use super::backup::finish_interrupted;
use super::config::LastRevision;
use super::error::{Fault, OpenError, catch_damage};
use super::files::{DATA_FILE, REVISION_FILE, WAL_FILES};
use super::layer::{FrozenLayer, Layer, Position};
use super::open::{
    OpenDatabase, PAGE_CACHE_BYTES, check_revision, create, initialize, lock, make_directory,
    open_file, open_tables, replay,
};
use super::revision_file::RevisionFiles;
use super::snapshot::Base;
use super::space::{Disk, Space};
use super::state::State;
use super::tables::{FIRST_REVISION, Tables};
use super::visit::{VisitLimits, visit};
use super::wal::{Frame, Wal};
use crate::{ListVisitor, StorageError};
use watchet_api::{ResourceVersion, StorageKey};

/// Opens a failed database again.
type Opener = Box<dyn Fn() -> Result<OpenDatabase, OpenError> + Send + Sync>;

/// The data of an open store.
pub(super) struct Data {
    /// `None` while closed: after a failure until it is open again, and after shutdown. A user of
    /// the database or of a snapshot of it has a read lock.
    db: RwLock<Option<OpenDatabase>>,
    state: RwLock<State>,
    opener: Option<Opener>,
    visit_limits: VisitLimits,
    /// The name of the file in errors.
    name: String,
    on_disk: bool,
    /// The space on its disk, until the writer takes it; `None` if there is no disk.
    space: Mutex<Option<Space>>,
    availability: Availability,
    /// The length of the data file after its last compaction; 0 if there was none.
    shrunk_to: AtomicU64,
    /// The data file and the files of the log; empty if the database is not in a file.
    paths: Vec<PathBuf>,
    revisions: RevisionFiles,
    /// Released after the file is closed.
    lock: Mutex<Option<File>>,
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").field("name", &self.name).finish()
    }
}

impl Data {
    /// Opens the store in `directory`; creates both if needed. Changes that are only in the log are
    /// in the frozen layer.
    pub(super) fn open(
        directory: &Path,
        last_revision: Option<LastRevision<'_>>,
    ) -> Result<(Self, Wal), OpenError> {
        finish_interrupted(directory)
            .and_then(|()| make_directory(directory))
            .map_err(|error| OpenError::io(directory, error))?;
        let lock = lock(directory)?;
        let path = directory.join(DATA_FILE);
        let disk = Disk::of(directory).map_err(|error| OpenError::io(directory, error))?;
        let space = Space::new(Box::new(disk));
        let mut revisions = RevisionFiles::open(directory, last_revision)?;
        let len = match std::fs::metadata(&path) {
            Ok(metadata) => Some(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(OpenError::io(&path, error)),
        };
        let db = match (len, revisions.last()) {
            (None, None) => {
                let first = revisions.first();
                revisions.warn_if_used(directory, first);
                create(directory, &path, first)?
            }
            (None, Some(last_revision)) => {
                let detail = format!(
                    "the file is missing, but {} has revision {last_revision}",
                    directory.join(REVISION_FILE).display()
                );
                return Err(OpenError::corrupt(&path, detail));
            }
            (Some(0), _) => return Err(OpenError::corrupt(&path, "the file is empty")),
            (Some(_), _) => open_file(&path)?,
        };
        let open_wal =
            |position: Position| Wal::open(directory, position.sequence, position.revision + 1);
        let (data, wal) = Self::recover(db, &path, open_wal)?;
        let revision = data.state.read().position.revision;
        check_revision(&path, revision, revisions.last())?;
        revisions.set_opened(revision);
        let again = path.clone();
        let wal_paths = WAL_FILES.map(|name| directory.join(name));
        let data = Self {
            opener: Some(Box::new(move || open_file(&again))),
            paths: [path].into_iter().chain(wal_paths).collect(),
            revisions,
            space: Mutex::new(Some(space)),
            lock: Mutex::new(Some(lock)),
            ..data
        };
        Ok((data, wal))
    }

    /// Checks the tables in `db`, the database of the file `path`, and replays the log, which
    /// `open_wal` opens after a position.
    pub(super) fn recover(
        db: OpenDatabase,
        path: &Path,
        open_wal: impl FnOnce(Position) -> Result<(Wal, Vec<Frame>), OpenError>,
    ) -> Result<(Self, Wal), OpenError> {
        let base = open_tables(&db.db, path)?;
        let position = base.numbers.position();
        let (wal, frames) = open_wal(position)?;
        let frozen =
            replay(frames, position).map_err(|fault| OpenError::from_fault(path, fault))?;
        let data = Self::new(db, path, State::new(base, frozen));
        Ok((
            Self {
                on_disk: true,
                ..data
            },
            wal,
        ))
    }

    fn new(db: OpenDatabase, path: &Path, state: State) -> Self {
        Self {
            db: RwLock::new(Some(db)),
            state: RwLock::new(state),
            opener: None,
            visit_limits: VisitLimits::default(),
            name: path.display().to_string(),
            on_disk: false,
            paths: Vec::new(),
            revisions: RevisionFiles::default(),
            space: Mutex::default(),
            availability: Availability::default(),
            shrunk_to: AtomicU64::new(0),
            lock: Mutex::default(),
        }
    }

    /// Creates a store in `backend`, which is in memory or simulates failures.
    pub(super) fn on(backend: impl StorageBackend) -> Result<Self, OpenError> {
        Self::beginning_at(backend, FIRST_REVISION)
    }

    /// As [`Self::on`], for a store whose first revision is `first`.
    pub(super) fn beginning_at(
        backend: impl StorageBackend,
        first: u64,
    ) -> Result<Self, OpenError> {
        let path = Path::new("memory");
        let db = Builder::new()
            .set_cache_size(PAGE_CACHE_BYTES)
            .create_with_backend(backend)
            .map_err(|error| OpenError::from_fault(path, error.into()))?;
        initialize(&db, first).map_err(|fault| OpenError::from_fault(path, fault))?;
        let base = open_tables(&db, path)?;
        Ok(Self::new(db.into(), path, State::new(base, None)))
    }

    /// Sets the function that opens the database after a failure.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn with_opener(mut self, opener: Opener, space: Space) -> Self {
        self.space = Mutex::new(Some(space));
        self.opener = Some(opener);
        self.on_disk = true;
        self
    }

    /// Closes the file and releases the directory once current reads have ended.
    pub(super) fn close(&self) {
        self.availability.close();
        let mut db = self.write_db();
        self.state.write().base = None;
        *db = None;
        self.lock.lock().take();
    }

    /// Converts a fault of work on a snapshot into the caller's error, with its root cause and the
    /// name of the file.
    pub(super) fn error(&self, fault: Fault) -> StorageError {
        let guard = self.db.try_read();
        let fault = match guard.as_ref().and_then(|db| db.as_ref()) {
            Some(db) => db.with_root_cause(fault),
            None => fault,
        };
        fault.name_file(&self.name)
    }

    /// Opens the database again after a failure. The transaction that failed may be in it or not.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened, now or ever.
    pub(super) fn reopen(&self) -> Result<(), Fault> {
        let opener = self
            .opener
            .as_ref()
            .ok_or_else(|| Fault::Failed("the store is not in a file".to_owned()))?;
        self.availability.close();
        let mut db = self.write_db();
        catch_damage(|| {
            // The file must be closed first: only one handle may have it open.
            self.state.write().base = None;
            *db = None;
            let opened = opener().map_err(|error| match error {
                OpenError::Corrupt { detail, .. } => Fault::Damaged(detail),
                error => Fault::Failed(error.to_string()),
            })?;
            let base = Base::open(&opened.db)?;
            base.check_newest()?;
            self.state.write().rebase(base)?;
            *db = Some(opened);
            Ok(())
        })?;
        drop(db);
        self.availability.open();
        Ok(())
    }

    /// Passes the latest values of `prefix` to `visitor`, and returns their revision.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn visit(
        &self,
        prefix: &StorageKey,
        visitor: &dyn ListVisitor,
    ) -> Result<ResourceVersion, StorageError> {
        self.read(|snapshot| visit(snapshot, &self.visit_limits, prefix, visitor))
    }

    /// Makes a batch visible: `active` is the active layer with its changes, `position` is the
    /// position after it. Only the writer calls it.
    pub(super) fn publish(&self, active: Layer, position: Position) {
        let mut state = self.state.write();
        state.active = active;
        state.position = position;
    }

    /// Returns the memory use of the active layer in bytes.
    pub(super) fn active_bytes(&self) -> usize {
        self.state.read().active.bytes()
    }

    /// Returns true if a layer has changes, which the tables lack.
    pub(super) fn has_changes(&self) -> bool {
        self.state.read().has_changes()
    }

    /// Returns the ceiling on disk.
    pub(super) fn ceiling(&self) -> u64 {
        let state = self.state.read();
        state.base.as_ref().map_or(0, |base| base.numbers.ceiling)
    }

    /// Returns true if compacted records wait to be deleted.
    pub(super) fn is_collecting(&self) -> bool {
        let state = self.state.read();
        let numbers = state.base.as_ref().map(|base| base.numbers);
        numbers.is_some_and(|numbers| numbers.collected < numbers.compacted)
    }

    /// Returns the frozen layer.
    pub(super) fn frozen(&self) -> Option<Arc<FrozenLayer>> {
        self.state.read().frozen.clone()
    }

    /// Returns true if the data is in files.
    pub(super) fn is_on_disk(&self) -> bool {
        self.on_disk
    }

    /// Makes the active layer the frozen one. Only the writer calls it, when there is none.
    pub(super) fn freeze(&self) -> Arc<FrozenLayer> {
        self.state.write().freeze()
    }

    /// Runs `write` in a write transaction of the tables and returns its result. The commit is on
    /// disk on return. Only the checkpointer calls it.
    pub(super) fn write_tables<T>(
        &self,
        write: impl FnOnce(&mut Tables<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let guard = self.db.read();
        let db = guard.as_ref().ok_or_else(|| self.closed())?;
        self.write_to(&db.db, write)
            .map_err(|fault| db.with_root_cause(fault))
    }

    fn write_to<T>(
        &self,
        db: &Database,
        write: impl FnOnce(&mut Tables<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut txn = db.begin_write()?;
        if self.on_disk {
            // Two-phase commit flips the flag that chooses the commit only after the commit's pages
            // are on disk. Quick-repair adds a saved allocator state, which saves an open the scan
            // of the file; after a crash this store scans it anyway to verify it (see `open_file`).
            txn.set_two_phase_commit(true);
        }
        let mut tables = Tables::open(&txn)?;
        let result = write(&mut tables)?;
        if tables.finish()? {
            txn.commit()?;
        } else {
            txn.abort()?;
        }
        let base = Base::open(db)?;
        self.record_durable(base.numbers.revision);
        self.revisions.sync();
        let mut state = self.state.write();
        let old = (state.base.clone(), state.frozen.clone());
        state.rebase(base)?;
        drop(state);
        // Frees the memory of the layer without the lock.
        drop(old);
        Ok(result)
    }

    /// Writes the frozen layer to the tables, continues above the ceiling if revisions were lost, and
    /// raises the ceiling if writes will not wait for the disk. There must be no active layer.
    /// Returns the last revision that was found if it was not the last before.
    pub(super) fn prepare(&self, raise_ceiling: bool) -> Result<Option<u64>, Fault> {
        self.continue_above(self.revisions.seen_max(), raise_ceiling)
    }

    /// As [`Self::prepare`], and continues above the revision `seen_max`.
    pub(super) fn continue_above(
        &self,
        seen_max: u64,
        raise_ceiling: bool,
    ) -> Result<Option<u64>, Fault> {
        if let Some(frozen) = self.frozen() {
            self.write_tables(|tables| tables.apply(&frozen))?;
        }
        let found = self.write_tables(|tables| {
            let found = tables.skip_lost_revisions(seen_max)?;
            if raise_ceiling {
                tables.raise_ceiling();
            }
            Ok(found)
        })?;
        let mut state = self.state.write();
        if let Some(base) = &state.base {
            state.position = base.numbers.position();
        }
        Ok(found)
    }

    /// Takes the space of the disk, for the writer.
    pub(super) fn take_space(&self) -> Option<Space> {
        self.space.lock().take()
    }

    /// Returns the memory use of the layers in bytes: of the changes that the data file lacks.
    pub(super) fn pending_bytes(&self) -> usize {
        let state = self.state.read();
        let frozen = state
            .frozen
            .as_ref()
            .map_or(0, |frozen| frozen.layer.bytes());
        frozen + state.active.bytes()
    }

    /// Returns the revision up to which compacted records are deleted.
    pub(super) fn collected(&self) -> u64 {
        let state = self.state.read();
        state.base.as_ref().map_or(0, |base| base.numbers.collected)
    }

    /// Returns the revisions that are recorded outside of the data file.
    pub(super) fn revisions(&self) -> &RevisionFiles {
        &self.revisions
    }

    /// Records that all revisions up to `revision` are on disk.
    pub(super) fn record_durable(&self, revision: u64) {
        self.revisions.record(revision);
    }

    /// Returns the name of the file in errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

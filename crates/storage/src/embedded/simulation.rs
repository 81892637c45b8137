//! The embedded store in a simulation: on a disk that fails, loses and tears writes on request, with a writer that is a task of
//! the simulation's thread. Everything random is decided by seeds.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

use super::checked_file::CheckedFile;
use super::open::OpenDatabase;
use super::space::{DiskSpace, Space};
use super::threads::Threads;
use super::wal::LogFile;
use super::{Data, Embedded, EmbeddedConfig, OpenError, Sparse, WAL_FILES, Wal};

/// The number of files: the data file, and two of the log.
const FILES: usize = 3;
/// The index of the data file.
const DATA: usize = 0;

/// Which accesses to a simulated disk fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimulatedFault {
    /// None.
    #[default]
    None,
    /// Every write, because the disk is full.
    Full,
    /// The syncs of the log; its writes reach the disk or not.
    LogSync,
    /// The writes of the log, which are cut in the middle.
    LogTorn,
    /// The writes of the data file.
    Data,
}

/// A simulated disk with the files of one store. Clones share it.
///
/// One process uses the disk at a time. [`kill`](Self::kill) ends it: the accesses of the stores that
/// were opened before then fail.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    files: [File; FILES],
    fault: SimulatedFault,
    /// The number of processes that were killed.
    process: u64,
    exists: bool,
}

#[derive(Debug, Default)]
struct File {
    bytes: Sparse,
    /// The changes since the first that a power failure may lose, and their states.
    changes: Vec<(Change, State)>,
}

/// Whether a change is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unsynced,
    Synced,
    /// A sync of it failed. As in Linux it remains readable, but no later sync writes it to disk.
    Failed,
}

/// A change of a file, with what is needed to undo it.
#[derive(Debug)]
enum Change {
    Write {
        offset: u64,
        before: Vec<u8>,
        after: Vec<u8>,
        len_before: u64,
    },
    SetLen {
        len: u64,
        before: u64,
        /// The bytes that were cut.
        cut: Vec<u8>,
    },
}

impl File {
    fn len(&self) -> u64 {
        // `Sparse` never fails.
        self.bytes.len().unwrap_or_default()
    }

    fn read(&self, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        self.bytes.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&mut self, offset: u64, after: &[u8]) -> io::Result<()> {
        let len_before = self.len();
        if after.is_empty() {
            return Ok(());
        }
        let end = offset + after.len() as u64;
        if end > len_before {
            self.bytes.set_len(end)?;
        }
        let before = self.read(offset, after.len() as u64)?;
        self.bytes.write(offset, after)?;
        let after = after.to_vec();
        let change = Change::Write {
            offset,
            before,
            after,
            len_before,
        };
        self.changes.push((change, State::Unsynced));
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let before = self.len();
        let cut = match before.checked_sub(len) {
            Some(cut) => self.read(len, cut)?,
            None => Vec::new(),
        };
        self.bytes.set_len(len)?;
        let change = Change::SetLen { len, before, cut };
        self.changes.push((change, State::Unsynced));
        Ok(())
    }

    /// Gives the changes that were not synced this state.
    fn sync(&mut self, state: State) {
        let unsynced = self.changes.iter_mut();
        for change in unsynced.filter(|change| change.1 == State::Unsynced) {
            change.1 = state;
        }
        let first = self.changes.iter();
        let first = first.take_while(|change| change.1 == State::Synced);
        self.changes.drain(..first.count());
    }

    /// Loses some of the changes that were not synced, and tears others.
    fn lose_power(&mut self, random: &mut fastrand::Rng) -> io::Result<()> {
        let changes = std::mem::take(&mut self.changes);
        for (change, _) in changes.iter().rev() {
            match change {
                Change::Write {
                    offset,
                    before,
                    len_before,
                    ..
                } => {
                    self.bytes.write(*offset, before)?;
                    self.bytes.set_len(*len_before)?;
                }
                Change::SetLen { len, before, cut } => {
                    self.bytes.set_len(*before)?;
                    if !cut.is_empty() {
                        self.bytes.write(*len, cut)?;
                    }
                }
            }
        }
        for (change, state) in changes {
            match change {
                Change::Write { offset, after, .. } => {
                    let part = match state {
                        State::Synced => after.len(),
                        State::Unsynced | State::Failed => after.len() * random.usize(..3) / 2,
                    };
                    self.write(offset, &after[..part])?;
                }
                Change::SetLen { len, .. } => self.set_len(len)?,
            }
        }
        self.changes.clear();
        Ok(())
    }
}

impl Disk {
    fn write(&mut self, file: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match (self.fault, file) {
            (SimulatedFault::Full, _) | (SimulatedFault::Data, DATA) => Err(full()),
            (SimulatedFault::LogTorn, 1..) => {
                self.files[file].write(offset, &bytes[..bytes.len() / 2])?;
                Err(full())
            }
            _ => self.files[file].write(offset, bytes),
        }
    }

    fn set_len(&mut self, file: usize, len: u64) -> io::Result<()> {
        match (self.fault, file) {
            (SimulatedFault::Full, _) | (SimulatedFault::Data, DATA) => Err(full()),
            _ => self.files[file].set_len(len),
        }
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        match (self.fault, file) {
            (SimulatedFault::Full | SimulatedFault::LogSync, 1..) => {
                self.files[file].sync(State::Failed);
                Err(full())
            }
            _ => {
                self.files[file].sync(State::Synced);
                Ok(())
            }
        }
    }
}

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl SimulatedDisk {
    /// Returns an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the accesses of `fault` fail from now on.
    pub fn fail(&self, fault: SimulatedFault) {
        self.0.lock().fault = fault;
    }

    /// Returns the accesses that fail.
    pub fn fault(&self) -> SimulatedFault {
        self.0.lock().fault
    }

    /// Kills the process that uses the disk. The files stay as they are, because the system has all writes.
    pub fn kill(&self) {
        self.0.lock().process += 1;
    }

    /// Ends the process by a power failure. Each write that was not synced is complete, cut or missing, which
    /// `random` decides.
    pub fn lose_power(&self, random: &mut fastrand::Rng) {
        let mut disk = self.0.lock();
        disk.process += 1;
        for file in &mut disk.files {
            let lost = file.lose_power(random);
            lost.expect("a file in memory can be written");
        }
    }

    /// Opens the store on this disk; creates it first if the disk is empty. Must be called in a runtime, whose thread
    /// then runs the writer. `seed` decides the times of the disk.
    ///
    /// # Errors
    /// Returns [`OpenError`] as [`Embedded::open`].
    pub fn open(&self, config: EmbeddedConfig, seed: u64) -> Result<Arc<Embedded>, OpenError> {
        let process = self.0.lock().process;
        let handle = |file| Handle {
            disk: self.clone(),
            process,
            file,
        };
        if !self.0.lock().exists {
            drop(Data::on(handle(DATA))?);
            let mut disk = self.0.lock();
            disk.files[DATA].sync(State::Synced);
            disk.exists = true;
        }
        let files = [0, 1].map(|index| {
            let file: Box<dyn LogFile> = Box::new(handle(1 + index));
            (file, PathBuf::from(WAL_FILES[index]))
        });
        let opened = handle(DATA).database()?;
        let (data, wal) = Data::recover(opened, Path::new("disk"), |position| {
            Wal::recover(files, position.sequence, position.revision + 1)
        })?;
        let again = handle(DATA);
        let space = Space::new(Box::new(SimulatedSpace(self.clone())));
        let data = data.with_opener(Box::new(move || again.database()), space);
        let threads = Threads::Simulated(fastrand::Rng::with_seed(seed));
        let store = Embedded::start("simulated", config, data, Some(wal), threads)?;
        Ok(Arc::new(store))
    }
}

/// The free space of a disk, without a reserve.
struct SimulatedSpace(SimulatedDisk);

impl DiskSpace for SimulatedSpace {
    fn available(&self) -> io::Result<u64> {
        Ok(match self.0.0.lock().fault {
            SimulatedFault::Full => 0,
            _ => u64::MAX,
        })
    }

    fn reserve_bytes(&self) -> u64 {
        0
    }

    fn hold_reserve(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn release_reserve(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file of a disk, as one process has it open.
#[derive(Debug, Clone)]
struct Handle {
    disk: SimulatedDisk,
    process: u64,
    file: usize,
}

impl Handle {
    fn access<T>(&self, access: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.disk.0.lock();
        match disk.process == self.process {
            true => access(&mut disk),
            false => Err(io::Error::other("the process was killed")),
        }
    }

    fn database(&self) -> Result<OpenDatabase, OpenError> {
        let failed = |error| OpenError::io(Path::new("disk"), error);
        let file = CheckedFile::wrap(self.clone()).map_err(failed)?;
        let opened = redb::Builder::new()
            .set_cache_size(super::open::PAGE_CACHE_BYTES)
            .create_with_backend(file.clone());
        let db = opened.map_err(|error| failed(io::Error::other(error)))?;
        Ok(OpenDatabase {
            db,
            file: Some(file),
            is_verified: false,
        })
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        self.access(|disk| Ok(disk.files[self.file].len()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.access(|disk| disk.files[self.file].bytes.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.access(|disk| disk.set_len(self.file, len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.access(|disk| disk.sync(self.file))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.access(|disk| disk.write(self.file, offset, data))
    }
}

impl LogFile for Handle {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.access(|disk| {
            let file = &disk.files[self.file];
            file.read(0, file.len())
        })
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.access(|disk| disk.write(self.file, offset, bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.access(|disk| disk.sync(self.file))
    }

    fn truncate(&mut self) -> io::Result<()> {
        self.access(|disk| {
            disk.set_len(self.file, 0)?;
            disk.sync(self.file)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expect, Outcome, Put, Storage as _};
    use watchet_api::StorageKey;

    async fn put(store: &Embedded, name: u32) -> Result<Outcome, crate::StorageError> {
        let put = Put {
            key: StorageKey::new(&format!("/pods/{name}")).unwrap(),
            value: vec![b'x'; 2000].into(),
            expect: Expect::Absent,
            ttl: None,
        };
        store.put(put).await
    }

    /// Acknowledged writes survive power failures, kills and failed syncs; and the same seed gives the same history.
    #[tokio::test(start_paused = true)]
    async fn acknowledged_writes_survive() {
        watchet_tasks::run_blocking_work_inline();
        for seed in watchet_test_util::seeds::seeds(20) {
            let run = async || {
                let mut random = fastrand::Rng::with_seed(seed);
                let disk = SimulatedDisk::new();
                let mut acknowledged = Vec::new();
                let mut next = 0;
                for round in 0..6 {
                    let store = disk
                        .open(EmbeddedConfig::default(), random.u64(..))
                        .unwrap();
                    for name in &acknowledged {
                        let key = StorageKey::new(&format!("/pods/{name}")).unwrap();
                        let (found, _) = store.get(&key).await.unwrap();
                        assert!(
                            found.is_some(),
                            "seed {seed}, round {round}: {name} is lost"
                        );
                    }
                    for _ in 0..random.u32(..200) {
                        if random.u32(..50) == 0 {
                            disk.fail(SimulatedFault::LogSync);
                        }
                        let count = random.u32(1..9);
                        let names = next..next + count;
                        next += count;
                        let puts = names.clone().map(|name| put(&store, name));
                        let done = futures_util::future::join_all(puts).await;
                        let done = names.zip(done).filter(|(_, done)| done.is_ok());
                        acknowledged.extend(done.map(|(name, _)| name));
                    }
                    disk.fail(SimulatedFault::None);
                    match random.u8(..3) {
                        0 => disk.kill(),
                        1 => disk.lose_power(&mut random),
                        _ => {}
                    }
                }
                acknowledged
            };
            let first = run().await;
            assert!(first.len() > 100, "seed {seed}: {}", first.len());
            assert_eq!(first, run().await, "seed {seed} is not deterministic");
        }
    }
}

//! A simulated disk, whose accesses fail on request and are recorded, so that a crash can be
//! simulated after each of them.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};

use redb::StorageBackend;

use super::super::checked_file::CheckedFile;
use super::super::open::OpenDatabase;
use super::super::space::{DiskSpace, Space};
use super::super::wal::LogFile;
use super::*;

/// No access fails.
pub(super) const NONE: u8 = 0;
/// Every write fails.
pub(super) const FULL: u8 = 1;
/// Writes of the log reach the disk, but its syncs fail.
pub(super) const LOG_SYNC: u8 = 2;
/// Writes of the log are cut in the middle, and fail.
pub(super) const LOG_TORN: u8 = 3;
/// Writes of the data file fail, the log works.
pub(super) const DATA: u8 = 4;
/// Accesses to the data file wait for the next sync of the log, and fail. The sync ends when the fault does.
pub(super) const DATA_DURING_LOG_SYNC: u8 = 5;

/// A simulated disk with a data file and the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    data: Arc<Sparse>,
    logs: [Arc<Mutex<Vec<u8>>>; 2],
    fault: Arc<AtomicU8>,
    /// The accesses in their order.
    journal: Arc<Mutex<Vec<Access>>>,
    blocks: Arc<Mutex<Blocks>>,
    /// The number of accesses until one fails, once; none fails at 0.
    until_failure: Arc<AtomicUsize>,
    /// True once a sync of the log has begun during [`DATA_DURING_LOG_SYNC`].
    is_log_syncing: Arc<AtomicBool>,
}

/// The blocks of the disk that are in use.
#[derive(Debug)]
struct Blocks {
    capacity: u64,
    /// By file and number.
    used: BTreeSet<(usize, u64)>,
    is_reserve_held: bool,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            capacity: u64::MAX / BLOCK_BYTES,
            used: BTreeSet::new(),
            is_reserve_held: false,
        }
    }
}

impl Blocks {
    fn free(&self) -> u64 {
        let reserve = u64::from(self.is_reserve_held) * RESERVE_BLOCKS;
        self.capacity
            .saturating_sub(self.used.len() as u64 + reserve)
    }

    /// Occupies the blocks of a write, or none of them.
    fn occupy(&mut self, file: usize, offset: u64, len: usize) -> io::Result<()> {
        let end = (offset + len as u64).div_ceil(BLOCK_BYTES);
        let blocks = (offset / BLOCK_BYTES..end).map(|block| (file, block));
        let new: Vec<_> = blocks.filter(|block| !self.used.contains(block)).collect();
        if new.len() as u64 > self.free() {
            return Err(full());
        }
        self.used.extend(new);
        Ok(())
    }

    fn truncate(&mut self, file: usize, len: u64) {
        let first = len.div_ceil(BLOCK_BYTES);
        self.used
            .retain(|(of, block)| *of != file || *block < first);
    }
}

/// The size of a block.
const BLOCK_BYTES: u64 = 4096;
/// The size of the reserve: 4 MiB.
const RESERVE_BLOCKS: u64 = 1024;

/// The space of a disk.
struct SimulatedSpace(Disk);

impl DiskSpace for SimulatedSpace {
    fn available(&self) -> io::Result<u64> {
        Ok(self.0.blocks.lock().free() * BLOCK_BYTES)
    }

    fn reserve_bytes(&self) -> u64 {
        RESERVE_BLOCKS * BLOCK_BYTES
    }

    fn hold_reserve(&mut self) -> io::Result<()> {
        let mut blocks = self.0.blocks.lock();
        if !blocks.is_reserve_held && blocks.free() < RESERVE_BLOCKS {
            return Err(full());
        }
        blocks.is_reserve_held = true;
        Ok(())
    }

    fn release_reserve(&mut self) -> io::Result<()> {
        self.0.blocks.lock().is_reserve_held = false;
        Ok(())
    }
}

/// An access to a file: the data file (0), or a file of the log. All succeed but the failed sync.
#[derive(Debug, Clone)]
enum Access {
    Write(usize, u64, Vec<u8>),
    SetLen(usize, u64),
    Sync(usize),
    /// A sync that failed. As in Linux, the bytes written before remain readable, but no later sync
    /// writes them to disk.
    FailedSync(usize),
}

impl Access {
    /// Returns whether a sync of `file` succeeded; `None` if this is no sync of it.
    fn synced(&self, file: usize) -> Option<bool> {
        match self {
            Self::Sync(of) if *of == file => Some(true),
            Self::FailedSync(of) if *of == file => Some(false),
            _ => None,
        }
    }
}

/// The data file on a disk.
#[derive(Debug, Clone)]
struct DataFile(Disk);

/// A file of the log on a disk.
#[derive(Debug, Clone)]
struct SimulatedLog(Disk, usize);

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl Disk {
    pub(super) fn fail(&self, fault: u8) {
        self.fault.store(fault, Ordering::SeqCst);
    }

    /// Lets the access with this number from now on fail once; the first is 1. A write is cut in the middle.
    pub(super) fn fail_once(&self, number: usize) {
        self.until_failure.store(number, Ordering::SeqCst);
    }

    /// Returns true if this access fails.
    fn fails_now(&self) -> bool {
        let next = |left: usize| left.checked_sub(1);
        let before = self
            .until_failure
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        before == Ok(1)
    }

    /// Sets the size of the disk in bytes.
    pub(super) fn set_capacity(&self, bytes: u64) {
        self.blocks.lock().capacity = bytes / BLOCK_BYTES;
    }

    /// Leaves no free space, not even for a reserve.
    pub(super) fn fill(&self) {
        let mut blocks = self.blocks.lock();
        blocks.capacity = blocks.used.len() as u64;
    }

    /// Returns the number of bytes that would be free on a disk of `bytes`.
    pub(super) fn free_of(&self, bytes: u64) -> u64 {
        let blocks = self.blocks.lock();
        let reserve = u64::from(blocks.is_reserve_held) * RESERVE_BLOCKS;
        bytes - (blocks.used.len() as u64 + reserve) * BLOCK_BYTES
    }

    /// Returns the number of free bytes.
    pub(super) fn free(&self) -> u64 {
        self.blocks.lock().free() * BLOCK_BYTES
    }

    fn fault(&self) -> u8 {
        self.fault.load(Ordering::SeqCst)
    }

    /// Returns a copy of the files, as a crash of the process would leave them now.
    pub(super) fn crash(&self) -> Self {
        self.crash_after(self.accesses(), None)
    }

    /// Returns the number of accesses.
    pub(super) fn accesses(&self) -> usize {
        self.journal.lock().len()
    }

    /// Returns the files after the first `accesses`, as a crash of the process leaves them. After a
    /// power failure, each write that was not synced is complete, cut or missing, which `random`
    /// decides.
    pub(super) fn crash_after(&self, accesses: usize, random: Option<&mut fastrand::Rng>) -> Self {
        let copy = Self::default();
        let journal = self.journal.lock();
        let journal = &journal[..accesses];
        let is_durable = |number: usize, file: usize| {
            let mut syncs = journal[number..].iter();
            syncs.find_map(|access| access.synced(file)) == Some(true)
        };
        let mut random = random;
        for (number, access) in journal.iter().enumerate() {
            match (access, &mut random) {
                (Access::Write(file, offset, bytes), Some(random))
                    if !is_durable(number, *file) =>
                {
                    let part = bytes.len() * random.usize(..3) / 2;
                    copy.apply(&Access::Write(*file, *offset, bytes[..part].to_vec()));
                }
                _ => copy.apply(access),
            }
        }
        copy.journal.lock().clear();
        copy
    }

    /// As [`Self::crash_after`] with a crash of the process in the middle of the access that follows; `None` if that is
    /// not a write.
    pub(super) fn crash_in(&self, accesses: usize) -> Option<Self> {
        let copy = self.crash_after(accesses, None);
        let journal = self.journal.lock();
        let Some(Access::Write(file, offset, bytes)) = journal.get(accesses) else {
            return None;
        };
        let cut = bytes[..bytes.len() / 2].to_vec();
        copy.apply(&Access::Write(*file, *offset, cut));
        copy.journal.lock().clear();
        Some(copy)
    }

    /// Makes and records an access.
    fn apply(&self, access: &Access) {
        match access {
            Access::Write(file, offset, bytes) => {
                let occupied = self.blocks.lock().occupy(*file, *offset, bytes.len());
                occupied.unwrap();
            }
            Access::SetLen(file, len) => self.blocks.lock().truncate(*file, *len),
            Access::Sync(_) | Access::FailedSync(_) => {}
        }
        let mut journal = self.journal.lock();
        match access {
            Access::Write(0, offset, bytes) => self.data.write(*offset, bytes).unwrap(),
            Access::SetLen(0, len) => self.data.set_len(*len).unwrap(),
            Access::Write(file, offset, bytes) => {
                let mut log = self.logs[file - 1].lock();
                let start = usize::try_from(*offset).unwrap();
                let end = start + bytes.len();
                let len = log.len().max(end);
                log.resize(len, 0);
                log[start..end].copy_from_slice(bytes);
            }
            Access::SetLen(file, len) => {
                let mut log = self.logs[file - 1].lock();
                log.resize(usize::try_from(*len).unwrap(), 0);
            }
            Access::Sync(_) | Access::FailedSync(_) => {}
        }
        journal.push(access.clone());
    }

    fn database(&self) -> Result<OpenDatabase, OpenError> {
        let failed = |error| OpenError::io(Path::new("disk"), error);
        let file = CheckedFile::wrap(DataFile(self.clone())).map_err(failed)?;
        let opened = redb::Builder::new().create_with_backend(file.clone());
        let db = opened.map_err(|error| failed(io::Error::other(error)))?;
        Ok(OpenDatabase {
            db,
            file: Some(file),
            is_verified: false,
        })
    }

    /// Opens the store on this disk; creates it first if `new`.
    pub(super) fn open(&self, durability: Durability, new: bool) -> Arc<Embedded> {
        if new {
            drop(Data::on(DataFile(self.clone())).unwrap());
        }
        let opener = self.clone();
        let files = [0, 1].map(|index| {
            let file: Box<dyn LogFile> = Box::new(SimulatedLog(self.clone(), index));
            (file, PathBuf::from(WAL_FILES[index]))
        });
        let recovered = Data::recover(self.database().unwrap(), Path::new("disk"), |position| {
            Wal::recover(files, position.sequence, position.revision + 1)
        });
        let (data, wal) = recovered.unwrap();
        let data = data.with_opener(
            Box::new(move || opener.database()),
            Space::new(Box::new(SimulatedSpace(self.clone()))),
        );
        let config = EmbeddedConfig {
            durability,
            compaction_interval: Duration::ZERO,
            retention: None,
        };
        Arc::new(Embedded::start("test", config, data, Some(wal), Threads::Spawned).unwrap())
    }
}

impl StorageBackend for DataFile {
    fn len(&self) -> io::Result<u64> {
        self.0.data.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.data.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.access(Access::SetLen(0, len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.access(Access::Sync(0))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.access(Access::Write(0, offset, data.to_vec()))
    }
}

impl DataFile {
    fn access(&self, access: Access) -> io::Result<()> {
        if self.0.fails_now() {
            match access {
                Access::Write(file, offset, bytes) => {
                    let cut = bytes[..bytes.len() / 2].to_vec();
                    self.0.apply(&Access::Write(file, offset, cut));
                }
                Access::Sync(file) => self.0.apply(&Access::FailedSync(file)),
                Access::SetLen(..) | Access::FailedSync(_) => {}
            }
            return Err(full());
        }
        match self.0.fault() {
            FULL | DATA => Err(full()),
            DATA_DURING_LOG_SYNC => {
                while !self.0.is_log_syncing.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(full())
            }
            _ => {
                if let Access::Write(file, offset, bytes) = &access {
                    self.0.blocks.lock().occupy(*file, *offset, bytes.len())?;
                }
                self.0.apply(&access);
                Ok(())
            }
        }
    }
}

impl LogFile for SimulatedLog {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.0.logs[self.1].lock().clone())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let fault = match self.0.fails_now() {
            true => LOG_TORN,
            false => self.0.fault(),
        };
        let (bytes, result) = match fault {
            FULL => return Err(full()),
            LOG_TORN => (&bytes[..bytes.len() / 2], Err(full())),
            _ => (bytes, Ok(())),
        };
        self.0
            .blocks
            .lock()
            .occupy(self.1 + 1, offset, bytes.len())?;
        let access = Access::Write(self.1 + 1, offset, bytes.to_vec());
        self.0.apply(&access);
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        let fault = match self.0.fails_now() {
            true => LOG_SYNC,
            false => self.0.fault(),
        };
        match fault {
            FULL | LOG_SYNC => {
                self.0.apply(&Access::FailedSync(self.1 + 1));
                Err(full())
            }
            fault => {
                if fault == DATA_DURING_LOG_SYNC {
                    self.0.is_log_syncing.store(true, Ordering::SeqCst);
                    while self.0.fault() == DATA_DURING_LOG_SYNC {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                self.0.apply(&Access::Sync(self.1 + 1));
                Ok(())
            }
        }
    }

    fn truncate(&mut self) -> io::Result<()> {
        if self.0.fails_now() {
            return Err(full());
        }
        match self.0.fault() {
            FULL | LOG_SYNC => return Err(full()),
            _ => self.0.apply(&Access::SetLen(self.1 + 1, 0)),
        }
        self.sync()
    }
}

//! A simulated disk, whose accesses fail on request and are recorded, so that a crash can be
//! simulated after each of them.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU8;

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

/// A simulated disk with a data file and the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    data: Arc<Sparse>,
    logs: [Arc<Mutex<Vec<u8>>>; 2],
    fault: Arc<AtomicU8>,
    /// The accesses in their order.
    journal: Arc<Mutex<Vec<Access>>>,
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

    /// Makes and records an access.
    fn apply(&self, access: &Access) {
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

    fn database(&self) -> Result<redb::Database, OpenError> {
        let opened = redb::Builder::new().create_with_backend(DataFile(self.clone()));
        opened.map_err(|error| OpenError::io(Path::new("disk"), io::Error::other(error)))
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
        let data = data.with_opener(Box::new(move || opener.database()));
        let config = EmbeddedConfig {
            durability,
            compaction_interval: Duration::ZERO,
        };
        Arc::new(Embedded::start("test", config, data, Some(wal)).unwrap())
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
        match self.0.fault() {
            FULL | DATA => Err(full()),
            _ => {
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
        let (bytes, result) = match self.0.fault() {
            FULL => return Err(full()),
            LOG_TORN => (&bytes[..bytes.len() / 2], Err(full())),
            _ => (bytes, Ok(())),
        };
        let access = Access::Write(self.1 + 1, offset, bytes.to_vec());
        self.0.apply(&access);
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.0.fault() {
            FULL | LOG_SYNC => {
                self.0.apply(&Access::FailedSync(self.1 + 1));
                Err(full())
            }
            _ => {
                self.0.apply(&Access::Sync(self.1 + 1));
                Ok(())
            }
        }
    }

    fn truncate(&mut self) -> io::Result<()> {
        match self.0.fault() {
            FULL | LOG_SYNC => return Err(full()),
            _ => self.0.apply(&Access::SetLen(self.1 + 1, 0)),
        }
        self.sync()
    }
}

//! The space on the disk of a store. While enough is free, the store holds a reserve: a file that
//! occupies space for nothing. When the disk is nearly full, it rejects creations and updates that grow an object, before a write to the
//! data file can fail half-way, and releases the reserve, so that deletions, compactions and a restart
//! still succeed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::files::RESERVE_FILE;
use crate::private_file::open_private;

/// The size of the reserve: what the changes in the log need in the data file when the store is
/// opened, several times over.
const RESERVE_BYTES: u64 = 16 << 20;

/// On a small disk the reserve is at most this part of it.
const RESERVE_PART: u64 = 4;

/// The part of the reserve that is free at least while values are accepted.
const MARGIN_PART: u64 = 4;

/// The bytes that the data file may need for each byte of changes that it does not contain yet: a
/// change of a small value writes a page, and the pages on the path to it.
const BYTES_PER_CHANGED_BYTE: u64 = 4;

/// The space that a checkpoint of few changes needs: some pages of each table, and of the database's
/// own.
const CHECKPOINT_BYTES_MIN: u64 = 256 << 10;

/// The size of the zeros that are written together, if the file system cannot allocate space.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// A disk with a reserve, real or simulated.
pub(super) trait DiskSpace: Send {
    /// Returns the free space in bytes.
    fn available(&self) -> io::Result<u64>;

    /// Returns the size of the reserve in bytes.
    fn reserve_bytes(&self) -> u64;

    /// Occupies the reserve, unless that is done.
    fn hold_reserve(&mut self) -> io::Result<()>;

    /// Frees the reserve.
    fn release_reserve(&mut self) -> io::Result<()>;
}

/// The disk of a directory.
#[derive(Debug)]
pub(super) struct Disk {
    directory: PathBuf,
    reserve: PathBuf,
    reserve_bytes: u64,
}

impl Disk {
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let disk = statvfs(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            reserve: directory.join(RESERVE_FILE),
            reserve_bytes: RESERVE_BYTES.min(disk.f_blocks * disk.f_frsize / RESERVE_PART),
        })
    }

    fn occupy(&self, file: &mut File) -> io::Result<()> {
        match fallocate(&*file, FallocateFlags::empty(), 0, self.reserve_bytes) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            allocated => return Ok(allocated?),
        }
        let mut left = self.reserve_bytes;
        while left > 0 {
            let part = left.min(ZEROS.len() as u64);
            file.write_all(&ZEROS[..usize::try_from(part).unwrap_or(ZEROS.len())])?;
            left -= part;
        }
        file.sync_data()
    }
}

impl DiskSpace for Disk {
    fn available(&self) -> io::Result<u64> {
        let disk = statvfs(&self.directory)?;
        Ok(disk.f_bavail * disk.f_frsize)
    }

    fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    fn hold_reserve(&mut self) -> io::Result<()> {
        let held = std::fs::metadata(&self.reserve);
        if held.is_ok_and(|file| file.len() == self.reserve_bytes) {
            return Ok(());
        }
        let occupied = open_private(&self.reserve).and_then(|mut file| self.occupy(&mut file));
        if occupied.is_err() {
            self.release_reserve()?;
        }
        occupied
    }

    fn release_reserve(&mut self) -> io::Result<()> {
        // Truncated first: the space is free even if the directory cannot be written.
        match OpenOptions::new().write(true).open(&self.reserve) {
            Ok(file) => file.set_len(0)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        std::fs::remove_file(&self.reserve)
    }
}

/// The space of an open store.
pub(super) struct Space {
    disk: Box<dyn DiskSpace>,
    /// True while creations and updates that grow an object are rejected, as while etcd has its no-space alarm.
    is_no_space: bool,
}

/// What a store may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllowedWrites {
    /// Everything.
    All,
    /// Deletions, and updates by which an object hardly grows: a deletion of an object with finalizers
    /// begins with one. The number of free bytes is for the error.
    DeletionsAndSmallUpdates(u64),
    /// Deletions.
    Deletions(u64),
}

impl Space {
    /// Holds the reserve, or raises the no-space alarm if that fails.
    pub(super) fn new(mut disk: Box<dyn DiskSpace>) -> Self {
        let is_held = disk.hold_reserve().is_ok();
        let mut space = Self {
            disk,
            is_no_space: false,
        };
        if !is_held || space.is_scarce(0) {
            space.raise_no_space();
        }
        space
    }

    /// Returns true while creations and updates that grow an object are rejected.
    pub(super) fn is_no_space(&self) -> bool {
        self.is_no_space
    }

    fn margin(&self) -> u64 {
        self.disk.reserve_bytes() / MARGIN_PART
    }

    /// Returns the free space; 0 if it is unknown.
    fn available(&self) -> u64 {
        self.disk.available().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the free space of the store's disk");
            0
        })
    }

    /// Returns true if the disk may not have the space that the data file needs for `pending` bytes of
    /// changes.
    pub(super) fn is_scarce(&self, pending: usize) -> bool {
        self.available() < self.margin() + pending as u64 * BYTES_PER_CHANGED_BYTE
    }

    /// Returns false if a checkpoint of `pending` bytes of changes would fail, after which the data file
    /// cannot even be read until it is opened again.
    pub(super) fn can_checkpoint(&self, pending: usize) -> bool {
        !self.is_no_space || self.available() >= CHECKPOINT_BYTES_MIN + 2 * pending as u64
    }

    /// Rejects creations and updates that grow an object from now on, and releases the reserve.
    pub(super) fn raise_no_space(&mut self) {
        let free_bytes = self.available();
        if !self.is_no_space {
            tracing::error!(
                free_bytes,
                "the disk of the store is almost full: creations and updates that grow an object are \
                 rejected; free disk space or delete objects"
            );
        }
        self.is_no_space = true;
        if let Err(error) = self.disk.release_reserve() {
            tracing::warn!(%error, "cannot release the reserve of the store");
        }
    }

    /// Accepts all writes again if the disk has enough space. Returns true if it does.
    pub(super) fn clear_no_space(&mut self) -> bool {
        let enough = self.disk.reserve_bytes() + 2 * self.margin();
        if self.available() < enough || self.disk.hold_reserve().is_err() {
            return false;
        }
        self.is_no_space = false;
        tracing::info!("the disk of the store has free space again: all writes are accepted");
        true
    }

    /// Returns what may be written now.
    pub(super) fn allowed_writes(&self) -> AllowedWrites {
        if !self.is_no_space {
            return AllowedWrites::All;
        }
        match self.available() {
            available if available < self.disk.reserve_bytes() / 2 => {
                AllowedWrites::Deletions(available)
            }
            available => AllowedWrites::DeletionsAndSmallUpdates(available),
        }
    }
}

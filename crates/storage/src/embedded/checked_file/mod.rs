//! `CheckedFile`: the data file with a checksum of each page in memory, so that each read of a page
//! is verified. A clean shutdown stores the checksums beside the data file; the next start reads them
//! and need not read the whole data file before it serves.
//!
//! The database has checksums of its pages too, but compares them only when it verifies the whole
//! file.
//!
//! # Invariants
//!
//! 1. A read of a page that has a checksum returns exactly the bytes that were written, or an error.
//!    The database reads whole pages, except in its first page, the header, which has no checksum
//!    here: the database verifies its commit slots itself.
//! 2. Checksums are stored only if all pages of the last commit have one: this process wrote them, or
//!    read them while the database verified the whole file, or read their stored checksums.
//! 3. Stored checksums are used only for the data file that they were stored with. Its header page
//!    changes with each commit, each open and each clean shutdown.

use std::fmt;
use std::io::{self, Write as _};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use crate::private_file::open_private;

/// The unit of checksums: the page size of the database.
const PAGE_BYTES: usize = 4096;
/// The checksum of a page that was not read or written yet.
const UNKNOWN: u32 = 0;
/// The first bytes of stored checksums, with the version of their format.
const MAGIC: &[u8; 8] = b"wpages\x00\x01";
const CRC_LEN: usize = 4;

/// The data file of the database. Clones share it.
#[derive(Clone)]
pub(super) struct CheckedFile(Arc<Inner>);

struct Inner {
    file: Box<dyn StorageBackend>,
    /// The checksum of each page; the header page has none. Locked for reading during a read of the
    /// file and for writing during a write, so that a page and its checksum match.
    pages: RwLock<Vec<AtomicU32>>,
    /// The file in which the checksums are stored; `None` if they are not.
    checksums_path: Option<PathBuf>,
    /// True once the database is open: then all its pages have a checksum.
    is_open: AtomicBool,
    /// True if syncs do nothing until [`CheckedFile::sync_created`].
    defers_sync: AtomicBool,
    /// True after a failed write or sync: the content of the file is unknown.
    has_failed: AtomicBool,
    /// The first damage that was found.
    damage: OnceLock<String>,
}

impl fmt::Debug for CheckedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckedFile").field(&self.0.file).finish()
    }
}

impl CheckedFile {
    /// Opens the data file at `path`; creates it if needed. Returns it, and true if it has the
    /// checksums that the last clean shutdown stored in the file `checksums_path`.
    ///
    /// # Errors
    /// Returns an error if the data file cannot be opened or read. Checksums that are missing,
    /// damaged, or of another content of the data file are ignored.
    pub(super) fn open(path: &Path, checksums_path: &Path) -> io::Result<(Self, bool)> {
        let file = FileBackend::new(open_private(path)?).map_err(io::Error::other)?;
        let len = file.len()?;
        let stored = match len {
            0 => None,
            _ => match read_checksums(checksums_path, len, &header(&file)?) {
                Ok(stored) => Some(stored),
                Err(reason) => {
                    let path = path.display();
                    tracing::info!(%path, reason, "verifying the whole data file");
                    None
                }
            },
        };
        let has_checksums = stored.is_some();
        let opened = Self::new(Box::new(file), len, stored, Some(checksums_path.to_owned()));
        Ok((opened, has_checksums))
    }

    fn new(
        file: Box<dyn StorageBackend>,
        len: u64,
        stored: Option<Vec<AtomicU32>>,
        checksums_path: Option<PathBuf>,
    ) -> Self {
        Self(Arc::new(Inner {
            file,
            pages: RwLock::new(stored.unwrap_or_else(|| unknown(page_count(len)).collect())),
            checksums_path,
            is_open: AtomicBool::new(false),
            defers_sync: AtomicBool::new(len == 0),
            has_failed: AtomicBool::new(false),
            damage: OnceLock::new(),
        }))
    }

    /// Returns `file` with checksums that are never stored.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn wrap(file: impl StorageBackend) -> io::Result<Self> {
        let len = file.len()?;
        let wrapped = Self::new(Box::new(file), len, None, None);
        wrapped.0.defers_sync.store(false, Ordering::Relaxed);
        Ok(wrapped)
    }

    /// Records that the database is open, with these checksums or after it verified the whole file.
    pub(super) fn set_open(&self) {
        self.0.is_open.store(true, Ordering::Relaxed);
    }

    /// Syncs a new file, whose earlier syncs did nothing: the database syncs it five times while it
    /// creates it, although a crash before the file has its name leaves nothing to read.
    pub(super) fn sync_created(&self) -> io::Result<()> {
        self.0.defers_sync.store(false, Ordering::Relaxed);
        self.sync_data()
    }

    /// Returns the damage that a read has found, if any. It is permanent.
    pub(super) fn damage(&self) -> Option<&str> {
        self.0.damage.get().map(String::as_str)
    }

    /// Verifies up to `bytes` bytes from `offset` on, both multiples of the page size. Returns the
    /// offset after them, or `None` at the end of the file.
    ///
    /// # Errors
    /// Returns an error if a page is damaged or cannot be read.
    pub(super) fn verify(&self, offset: u64, bytes: usize) -> io::Result<Option<u64>> {
        let pages = self.0.pages.read();
        // Under the lock, because the database may shrink the file.
        let left = self.0.file.len()?.saturating_sub(offset);
        let part = bytes.min(usize::try_from(left).unwrap_or(bytes));
        self.read_checked(&pages, offset, &mut vec![0; part])?;
        Ok((part == bytes).then_some(offset + bytes as u64))
    }

    fn read_checked(&self, pages: &[AtomicU32], offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.file.read(offset, out)?;
        for (page, bytes) in whole_pages(offset, out) {
            let checksum = checksum(page, bytes);
            // Without an entry if a write has extended the file.
            let Some(stored) = pages.get(page) else { break };
            let expected = stored.load(Ordering::Relaxed);
            if expected == UNKNOWN {
                stored.store(checksum, Ordering::Relaxed);
            } else if expected != checksum {
                let offset = page * PAGE_BYTES;
                let detail = format!("the page at offset {offset} is damaged");
                self.0.damage.get_or_init(|| {
                    tracing::error!(offset, "a page of the data file is damaged");
                    detail.clone()
                });
                return Err(io::Error::new(io::ErrorKind::InvalidData, detail));
            }
        }
        Ok(())
    }

    /// Returns the result of a change of the file; records a failure.
    fn record_failure<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.0.has_failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn store_checksums(&self, path: &Path) -> io::Result<()> {
        let encoded = encode(&self.0.pages.read(), self.len()?, &header(&*self.0.file)?);
        let file = open_private(path)?;
        file.set_len(0)?;
        // Not synced: checksums that a power failure loses or cuts are ignored.
        (&file).write_all(&encoded)
    }
}

impl StorageBackend for CheckedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        debug_assert!(
            is_whole_pages(offset, out.len()) || offset + out.len() as u64 <= PAGE_BYTES as u64,
            "{} bytes at {offset} would be returned unverified",
            out.len()
        );
        let pages = self.0.pages.read();
        self.read_checked(&pages, offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        debug_assert!(is_whole_pages(0, len as usize), "{len} bytes");
        let mut pages = self.0.pages.write();
        self.record_failure(self.0.file.set_len(len))?;
        let (count, had) = (page_count(len), pages.len());
        pages.truncate(count);
        pages.extend(unknown(count.saturating_sub(had)));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.0.defers_sync.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.record_failure(self.0.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let pages = self.0.pages.write();
        let set = |page: usize, checksum| {
            // A write past the end would extend the file; such a page has no checksum.
            if let Some(page) = pages.get(page) {
                page.store(checksum, Ordering::Relaxed);
            }
        };
        // Before the write: one that fails may have changed some of the pages.
        touched_pages(offset, data.len()).for_each(|page| set(page, UNKNOWN));
        self.record_failure(self.0.file.write(offset, data))?;
        whole_pages(offset, data).for_each(|(page, bytes)| set(page, checksum(page, bytes)));
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        let is_sound = self.0.is_open.load(Ordering::Relaxed)
            && !self.0.has_failed.load(Ordering::Relaxed)
            && self.damage().is_none();
        if is_sound
            && let Some(path) = &self.0.checksums_path
            && let Err(error) = self.store_checksums(path)
        {
            let path = path.display();
            tracing::warn!(%error, %path, "cannot store the checksums of the data file");
        }
        self.0.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.0.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.query_lock_range(start, end)
    }
}

/// Returns the bytes of the header page.
fn header(file: &dyn StorageBackend) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?).unwrap_or(PAGE_BYTES);
    let mut header = vec![0; PAGE_BYTES.min(len)];
    file.read(0, &mut header)?;
    Ok(header)
}

/// Returns true if a read of `len` bytes at `offset` returns whole pages only.
fn is_whole_pages(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(PAGE_BYTES as u64) && len.is_multiple_of(PAGE_BYTES)
}

fn page_count(len: u64) -> usize {
    // A file of more pages than a `usize` counts cannot be indexed; no system has one.
    usize::try_from(len.div_ceil(PAGE_BYTES as u64)).unwrap_or(usize::MAX)
}

fn unknown(count: usize) -> impl Iterator<Item = AtomicU32> {
    (0..count).map(|_| AtomicU32::new(UNKNOWN))
}

/// Returns the numbers of the pages that `len` bytes at `offset` overlap.
fn touched_pages(offset: u64, len: usize) -> std::ops::Range<usize> {
    page_count(offset + 1) - 1..page_count(offset + len as u64)
}

/// Returns the pages that `bytes` at `offset` contain completely, without the header page.
fn whole_pages(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let first = page_count(offset);
    let skipped = first as u64 * PAGE_BYTES as u64 - offset;
    let bytes = usize::try_from(skipped)
        .ok()
        .and_then(|skipped| bytes.get(skipped..));
    let pages = bytes.unwrap_or_default().chunks_exact(PAGE_BYTES);
    pages
        .enumerate()
        .map(move |(number, bytes)| (first + number, bytes))
        .filter(|(page, _)| *page != 0)
}

/// Returns the checksum of a page, which also covers its place; never `UNKNOWN`.
fn checksum(page: usize, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(page as u32);
    hasher.update(bytes);
    hasher.finalize().max(UNKNOWN + 1)
}

/// Returns the length of the encoded checksums of this number of pages.
fn encoded_len(pages: usize) -> u64 {
    (MAGIC.len() + 8 + CRC_LEN * (pages + 2)) as u64
}

/// Encodes checksums: the magic number, the length and the checksum of the header page of the data
/// file, the checksums of its pages, and a checksum of all this.
fn encode(pages: &[AtomicU32], len: u64, header: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    bytes.extend(len.to_le_bytes());
    bytes.extend(crc32fast::hash(header).to_le_bytes());
    for page in pages {
        bytes.extend(page.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// Reads the checksums of a data file of `len` bytes with this header page from the file `path`.
///
/// # Errors
/// Returns the reason why they cannot be used.
fn read_checksums(path: &Path, len: u64, header: &[u8]) -> Result<Vec<AtomicU32>, &'static str> {
    // Checked before it is read: the file may have any size, and opening a pipe would block.
    let read = std::fs::metadata(path).and_then(|metadata| {
        let is_of_len = metadata.is_file() && metadata.len() == encoded_len(page_count(len));
        is_of_len.then(|| std::fs::read(path)).transpose()
    });
    match read {
        Ok(Some(bytes)) => decode(&bytes, len, header),
        Ok(None) => Err("the stored checksums are of another data file, or damaged"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err("no checksums are stored"),
        Err(error) => {
            let path = path.display();
            tracing::warn!(%error, %path, "cannot read the checksums of the data file");
            Err("the stored checksums cannot be read")
        }
    }
}

/// Decodes the checksums of a data file of `len` bytes with this header page.
///
/// # Errors
/// Returns the reason why they cannot be used.
fn decode(bytes: &[u8], len: u64, header: &[u8]) -> Result<Vec<AtomicU32>, &'static str> {
    let damaged = "the stored checksums are damaged";
    let (bytes, crc) = bytes.split_last_chunk::<CRC_LEN>().ok_or(damaged)?;
    if *crc != crc32fast::hash(bytes).to_le_bytes() {
        return Err(damaged);
    }
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or("the stored checksums have another format")?;
    let (expected_len, rest) = rest.split_first_chunk::<8>().ok_or(damaged)?;
    let (expected_header_crc, rest) = rest.split_first_chunk::<CRC_LEN>().ok_or(damaged)?;
    let (pages, remainder) = rest.as_chunks::<CRC_LEN>();
    let is_of_file = *expected_len == len.to_le_bytes()
        && *expected_header_crc == crc32fast::hash(header).to_le_bytes()
        && pages.len() == page_count(len)
        && remainder.is_empty();
    if !is_of_file {
        return Err("the stored checksums are of another state of the data file, as after a crash");
    }
    let pages = pages.iter().map(|page| u32::from_le_bytes(*page).into());
    Ok(pages.collect())
}

#[cfg(test)]
mod tests;

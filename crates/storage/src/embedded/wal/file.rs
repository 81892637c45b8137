//! The files of the write-ahead log.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use crate::private_file::open_private;

/// A file of the log, on disk or simulated.
pub(in super::super) trait LogFile: Send {
    /// Returns the content.
    fn read(&mut self) -> io::Result<Vec<u8>>;

    /// Writes `bytes` at `offset`; extends the file if it is shorter.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Waits until all written bytes are on disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Truncates the file to length 0 and waits until that is on disk.
    fn truncate(&mut self) -> io::Result<()>;
}

/// A file on disk.
#[derive(Debug)]
pub(in super::super) struct DiskFile(File);

impl DiskFile {
    /// Opens or creates the file at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        open_private(path).map(Self)
    }
}

impl LogFile for DiskFile {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.0.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.seek(SeekFrom::Start(offset))?;
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&mut self) -> io::Result<()> {
        self.0.set_len(0)?;
        // Unlike the sync of data, this one includes the length.
        self.0.sync_all()
    }
}

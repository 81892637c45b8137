//! CPU time, bytes written and files of this process, from Linux.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::Instant;

/// A point in time of this process.
pub(crate) struct Mark {
    at: Instant,
    cpu: Duration,
}

/// What this process used since a mark.
pub(crate) struct Usage {
    pub(crate) elapsed: Duration,
    /// User and system time of all threads.
    pub(crate) cpu: Duration,
}

impl Mark {
    pub(crate) fn now() -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            cpu: cpu()?,
        })
    }

    pub(crate) fn elapsed(&self) -> Result<Usage> {
        Ok(Usage {
            elapsed: self.at.elapsed(),
            cpu: cpu()?.saturating_sub(self.cpu),
        })
    }
}

/// Returns the user and system time of this process, in steps of 10 ms.
fn cpu() -> Result<Duration> {
    /// Linux counts in hundredths of a second, whatever its timer.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program, which is the second field and in parentheses, may have spaces.
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |field: usize| -> Result<u32> { Ok(fields[field - 3].parse()?) };
    Ok(TICK * (ticks(14)? + ticks(15)?))
}

/// Returns the bytes that this process has caused to be written to the disk.
pub(crate) fn written_bytes() -> Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let field = |name: &str| -> Result<u64> {
        let line = io.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.context("/proc/self/io")?.trim().parse()?)
    };
    // Cancelled are pages of files that were truncated or deleted before they were written.
    Ok(field("write_bytes:")?.saturating_sub(field("cancelled_write_bytes:")?))
}

/// The file of watchet's store that has no data: space for deletions on a full disk, which the other stores lack.
const RESERVE_FILE: &str = "store.reserve";

/// Returns the bytes on the disk of all files below a directory, without the reserve.
pub(crate) fn disk_bytes(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    const BLOCK_BYTES: u64 = 512;
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(_) if entry.file_name() == RESERVE_FILE => {}
            Ok(found) if found.is_dir() => bytes += disk_bytes(&entry.path())?,
            Ok(found) => bytes += found.blocks() * BLOCK_BYTES,
            // The store has deleted it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

//! `Rotation`: when a log file is rotated, and which rotated files are retained.

/// The size at which a file is rotated, and the limits of rotated files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The maximum size of a file in MiB; 0 is 100.
    pub size_max: u32,
    /// The maximum number of rotated files; 0 is no limit.
    pub backups_max: usize,
    /// The maximum age of rotated files in days; 0 is no limit.
    pub age_max: u32,
    /// Whether rotated files are compressed with gzip.
    pub compress: bool,
}

/// The size at which a file is rotated, in MiB, if none is configured.
const SIZE_MAX: u32 = 100;

impl Rotation {
    /// Returns the maximum size of a file in bytes.
    pub(crate) fn bytes_max(self) -> u64 {
        let size = match self.size_max {
            0 => SIZE_MAX,
            size => size,
        };
        u64::from(size) << 20
    }
}

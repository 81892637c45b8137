//! `LogFile`: a file of lines that is rotated by size. The names of rotated files are those of upstream's log library:
//! `audit-2026-11-23T15-04-05.123.log` for `audit.log`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

/// How many rotated files stay, and when a file is rotated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The maximum size of a file in MiB; 0 is 100.
    pub size_max: u32,
    /// The maximum number of rotated files; 0 is no limit.
    pub backups_max: usize,
    /// The maximum age of rotated files in days; 0 is no limit.
    pub age_max: u32,
}

/// The size at which a file is rotated, in MiB, if none is configured.
const SIZE_MAX: u32 = 100;

impl Rotation {
    fn bytes_max(self) -> u64 {
        let size = match self.size_max {
            0 => SIZE_MAX,
            size => size,
        };
        u64::from(size) << 20
    }
}

/// Where lines are written.
#[derive(Debug)]
pub(crate) enum LogFile {
    Stdout,
    Rotated(RotatedFile),
}

/// An open file and what is known of it.
#[derive(Debug)]
pub(crate) struct RotatedFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
}

impl LogFile {
    /// Opens the file at `path`, to append to it; `-` is stdout.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let file = open(path)?;
        let size = file.metadata()?.len();
        Ok(Self::Rotated(RotatedFile {
            path: path.to_owned(),
            rotation,
            file,
            size,
        }))
    }

    /// Writes complete lines.
    ///
    /// # Errors
    /// The lines could not be written completely; the file then has none of them.
    pub(crate) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()
            }
            Self::Rotated(file) => file.write(lines),
        }
    }
}

impl RotatedFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let added = lines.len() as u64;
        if self.size > 0 && self.size + added > self.rotation.bytes_max() {
            self.rotate()?;
        }
        if let Err(error) = self.file.write_all(lines) {
            // A partial line would be merged with the next one.
            self.file.set_len(self.size)?;
            return Err(error);
        }
        self.size += added;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let mut time = Timestamp::now();
        let mut rotated = self.rotated_path(time);
        while rotated.exists() {
            time += SignedDuration::from_millis(1);
            rotated = self.rotated_path(time);
        }
        std::fs::rename(&self.path, rotated)?;
        self.file = open(&self.path)?;
        self.size = 0;
        self.remove_old()
    }

    fn rotated_path(&self, time: Timestamp) -> PathBuf {
        let (stem, extension) = self.name_parts();
        let name = format!("{stem}{}{extension}", timestamp(time));
        self.path.with_file_name(name)
    }

    /// Returns what is before and after the time in the names of rotated files.
    fn name_parts(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| {
            part.unwrap_or_default().to_string_lossy().into_owned()
        };
        let stem = text(self.path.file_stem());
        let extension = self.path.extension();
        let extension = extension.map(|extension| format!(".{}", extension.to_string_lossy()));
        (format!("{stem}-"), extension.unwrap_or_default())
    }

    fn remove_old(&self) -> io::Result<()> {
        let (stem, extension) = self.name_parts();
        let directory = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let length = stem.len() + timestamp(Timestamp::now()).len() + extension.len();
        let mut rotated = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(&stem) && name.ends_with(&extension) && name.len() == length {
                rotated.push(name);
            }
        }
        // The names order by time.
        rotated.sort_unstable_by(|a, b| b.cmp(a));
        let age = SignedDuration::from_hours(24 * i64::from(self.rotation.age_max));
        let oldest = format!("{stem}{}", timestamp(Timestamp::now() - age));
        for (newer, name) in rotated.iter().enumerate() {
            let is_surplus = self.rotation.backups_max > 0 && newer >= self.rotation.backups_max;
            let is_old = self.rotation.age_max > 0 && *name < oldest;
            if is_surplus || is_old {
                std::fs::remove_file(directory.join(name))?;
            }
        }
        Ok(())
    }
}

fn timestamp(time: Timestamp) -> String {
    let millisecond = time.subsec_millisecond();
    format!("{}.{millisecond:03}", time.strftime("%Y-%m-%dT%H-%M-%S"))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_rotated_by_size_and_old_ones_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let rotation = Rotation {
            size_max: 1,
            backups_max: 2,
            age_max: 1,
        };
        let ancient = directory.path().join("audit-2020-01-02T03-04-05.678.log");
        let foreign = directory.path().join("audit-notes.log");
        std::fs::write(&ancient, "").unwrap();
        std::fs::write(&foreign, "").unwrap();
        let mut log = LogFile::open(&path, rotation).unwrap();
        let half = vec![b'x'; 1 << 19];
        for _ in 0..2 {
            log.write(&half).unwrap();
        }
        assert_eq!(
            names(directory.path()).len(),
            3,
            "exactly the maximum is not rotated"
        );
        for _ in 0..3 {
            log.write(&half).unwrap();
        }
        let rotated = names(directory.path());
        assert!(!ancient.exists() && foreign.exists(), "{rotated:?}");
        for _ in 0..6 {
            log.write(&half).unwrap();
        }
        let rotated = names(directory.path());
        assert_eq!(
            rotated.len(),
            4,
            "the log, two rotated files, the foreign one: {rotated:?}"
        );
        let first = directory.path().join(&rotated[0]);
        assert_eq!(first.metadata().unwrap().len(), 1 << 20, "{rotated:?}");
    }

    #[test]
    fn an_existing_file_is_continued() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        for line in ["a\n", "b\n"] {
            let mut log = LogFile::open(&path, Rotation::default()).unwrap();
            log.write(line.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n");
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut log = LogFile::Rotated(RotatedFile {
            path: PathBuf::from("/dev/full"),
            rotation: Rotation::default(),
            file: open(Path::new("/dev/full")).unwrap(),
            size: 0,
        });
        assert!(log.write(b"line\n").is_err());
    }
}

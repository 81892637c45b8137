//! `LogFile`: a file of lines that is rotated by size.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use crate::log_backups::LogBackups;
use crate::rotation::Rotation;

/// The file or stream to which lines are written.
#[derive(Debug)]
pub(crate) enum LogFile {
    Stdout,
    Regular(OpenLogFile),
}

/// An open file and its size. A device or a pipe, such as `/dev/null`, is only written: it is never renamed, and no
/// file beside it is deleted or compressed.
#[derive(Debug)]
pub(crate) struct OpenLogFile {
    path: PathBuf,
    rotation: Rotation,
    /// `None` after a rotation that failed.
    file: Option<OpenFile>,
    /// The size in bytes of a regular file.
    size: u64,
}

/// A file and whether it is a regular one.
#[derive(Debug)]
struct OpenFile {
    file: File,
    is_regular: bool,
}

/// Whether the rotated files have changed, so that they need [`LogBackups::clean_up`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotated {
    No,
    Yes,
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
        let (file, size) = open(path)?;
        Ok(Self::Regular(OpenLogFile {
            path: path.to_owned(),
            rotation,
            file: Some(file),
            size,
        }))
    }

    /// Returns true if the file can be rotated, because it is a regular file.
    pub(crate) fn is_rotated(&self) -> bool {
        match self {
            Self::Stdout => false,
            Self::Regular(log) => log.file.as_ref().is_some_and(|file| file.is_regular),
        }
    }

    /// Writes complete lines.
    ///
    /// # Errors
    /// The lines could not be written completely; the file then has none of them.
    pub(crate) fn write(&mut self, lines: &[u8]) -> io::Result<Rotated> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()?;
                Ok(Rotated::No)
            }
            Self::Regular(file) => file.write(lines),
        }
    }
}

impl OpenLogFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<Rotated> {
        let added = lines.len() as u64;
        let is_full = self.size > 0 && self.size + added > self.rotation.bytes_max();
        let is_regular = self.file.as_ref().is_some_and(|file| file.is_regular);
        let rotated = match is_full && is_regular {
            true => {
                self.rotate()?;
                Rotated::Yes
            }
            false => Rotated::No,
        };
        let OpenFile { file, is_regular } = match &mut self.file {
            Some(file) => file,
            closed => {
                let (file, size) = open(&self.path)?;
                self.size = size;
                closed.insert(file)
            }
        };
        let written = file.write_all(lines);
        match (written, *is_regular) {
            (Ok(()), true) => self.size += added,
            // A partial line would be merged with the next one.
            (Err(error), true) => {
                file.set_len(self.size)?;
                return Err(error);
            }
            (written, false) => written?,
        }
        Ok(rotated)
    }

    fn rotate(&mut self) -> io::Result<()> {
        let names = LogBackups::new(&self.path, self.rotation);
        let mut time = Timestamp::now();
        while names.exists(time) {
            time += SignedDuration::from_millis(1);
        }
        match std::fs::rename(&self.path, names.path(time)) {
            // Another program has deleted or moved the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        self.file = None;
        self.size = 0;
        Ok(())
    }
}

/// Opens a file to append to it, and returns its size. Appends a line break if the last line is incomplete, because a
/// process ended while it wrote: that event is lost, but the next event has its own line.
fn open(path: &Path) -> io::Result<(OpenFile, u64)> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    let metadata = file.metadata()?;
    let is_regular = metadata.is_file();
    let mut size = if is_regular { metadata.len() } else { 0 };
    if size > 0 && !ends_with_newline(path, size)? {
        file.write_all(b"\n")?;
        size += 1;
    }
    Ok((OpenFile { file, is_regular }, size))
}

fn ends_with_newline(path: &Path, size: u64) -> io::Result<bool> {
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, size - 1)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_incomplete_line_is_not_merged_with_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        std::fs::write(&path, "a\nb").unwrap();
        let mut log = LogFile::open(&path, Rotation::default()).unwrap();
        log.write(b"c\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\nc\n");
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut log = LogFile::open(Path::new("/dev/full"), Rotation::default()).unwrap();
        assert!(log.write(b"line\n").is_err());
    }

    /// A rotation would rename the device for the whole machine.
    #[test]
    fn only_regular_files_are_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe.log");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let source = path.clone();
        let reader = std::thread::spawn(move || {
            let mut pipe = File::open(source).unwrap();
            io::copy(&mut pipe, &mut io::sink()).unwrap()
        });
        let rotation = Rotation {
            size_max: 1,
            ..Rotation::default()
        };
        let mut log = LogFile::open(&path, rotation).unwrap();
        assert!(!log.is_rotated());
        for _ in 0..3 {
            assert_eq!(log.write(&vec![b'x'; 1 << 20]).unwrap(), Rotated::No);
        }
        drop(log);
        assert_eq!(reader.join().unwrap(), 3 << 20);
        let names = std::fs::read_dir(directory.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["pipe.log"]);
    }

    #[test]
    fn exactly_the_maximum_is_not_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let rotation = Rotation {
            size_max: 1,
            ..Rotation::default()
        };
        let path = directory.path().join("audit.log");
        let mut log = LogFile::open(&path, rotation).unwrap();
        let half = vec![b'x'; 1 << 19];
        let rotated: Vec<Rotated> = (0..5).map(|_| log.write(&half).unwrap()).collect();
        let (no, yes) = (Rotated::No, Rotated::Yes);
        assert_eq!(rotated, [no, no, yes, no, yes]);
    }

    #[test]
    fn a_file_that_was_deleted_is_created_again() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("logs");
        std::fs::create_dir(&below).unwrap();
        let rotation = Rotation {
            size_max: 1,
            ..Rotation::default()
        };
        let path = below.join("audit.log");
        let mut log = LogFile::open(&path, rotation).unwrap();
        log.write(&vec![b'x'; 1 << 20]).unwrap();
        std::fs::remove_dir_all(&below).unwrap();
        assert!(log.write(b"lost\n").is_err());
        std::fs::create_dir(&below).unwrap();
        log.write(b"a\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\n");
    }
}

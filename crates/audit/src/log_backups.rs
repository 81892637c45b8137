//! `LogBackups`: the earlier files of a log. Their names are those of upstream's log library:
//! `audit-2026-11-23T15-04-05.123.log` for `audit.log`, with `.gz` after it if the file is compressed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::{SignedDuration, Timestamp};

use crate::rotation::Rotation;

/// The suffix of a compressed file.
const GZIP: &str = ".gz";

/// The suffix of a compressed file that is incomplete; its source still exists.
const INCOMPLETE: &str = ".gz.tmp";

/// The rotated files of one log.
#[derive(Debug)]
pub(crate) struct LogBackups {
    directory: PathBuf,
    /// The part of the names before the time.
    stem: String,
    /// The part of the names after the time.
    extension: String,
    rotation: Rotation,
}

impl LogBackups {
    /// Returns the files of the log at `path`.
    pub(crate) fn new(path: &Path, rotation: Rotation) -> Self {
        let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        Self {
            directory: directory.to_owned(),
            stem: format!("{}-", path.file_stem().map(text).unwrap_or_default()),
            extension: path
                .extension()
                .map_or(String::new(), |extension| format!(".{}", text(extension))),
            rotation,
        }
    }

    /// Returns true if there is a file of this time, compressed or not.
    pub(crate) fn exists(&self, time: Timestamp) -> bool {
        let compressed = self.directory.join(self.name(time) + GZIP);
        self.path(time).exists() || compressed.exists()
    }

    /// Returns the path of the file of this time, before it is compressed.
    pub(crate) fn path(&self, time: Timestamp) -> PathBuf {
        self.directory.join(self.name(time))
    }

    /// Deletes the files that are too many or too old, and compresses the others if that is configured.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be deleted or compressed.
    pub(crate) fn clean_up(&self) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if self.is_rotated(&name) {
                names.push(name);
            }
        }
        // Sorts by time, newest first: the names contain it.
        names.sort_unstable_by(|a, b| b.cmp(a));
        let age = SignedDuration::from_hours(24 * i64::from(self.rotation.age_max));
        let oldest = format!("{}{}", self.stem, timestamp(Timestamp::now() - age));
        for (newer, name) in names.iter().enumerate() {
            let is_surplus = self.rotation.backups_max > 0 && newer >= self.rotation.backups_max;
            let is_old = self.rotation.age_max > 0 && *name < oldest;
            if is_surplus || is_old {
                std::fs::remove_file(self.directory.join(name))?;
            } else if self.rotation.compress && !name.ends_with(GZIP) {
                self.compress(name)?;
            }
        }
        Ok(())
    }

    fn compress(&self, name: &str) -> io::Result<()> {
        let source = self.directory.join(name);
        let incomplete = self.directory.join(format!("{name}{INCOMPLETE}"));
        let mut log = File::open(&source)?;
        let target = File::create(&incomplete)?;
        target.set_permissions(log.metadata()?.permissions())?;
        let mut encoder = GzEncoder::new(target, Compression::default());
        io::copy(&mut log, &mut encoder)?;
        encoder.finish()?.sync_all()?;
        std::fs::rename(incomplete, self.directory.join(format!("{name}{GZIP}")))?;
        std::fs::remove_file(source)
    }

    fn name(&self, time: Timestamp) -> String {
        format!("{}{}{}", self.stem, timestamp(time), self.extension)
    }

    fn is_rotated(&self, name: &str) -> bool {
        let plain = name.strip_suffix(GZIP).unwrap_or(name);
        let time = plain.strip_prefix(&self.stem);
        let time = time.and_then(|rest| rest.strip_suffix(&self.extension));
        let shape = |time: &str| {
            let digits = time.replace(|c: char| c.is_ascii_digit(), "0");
            digits == "0000-00-00T00-00-00.000"
        };
        time.is_some_and(shape)
    }
}

fn timestamp(time: Timestamp) -> String {
    let millisecond = time.subsec_millisecond();
    format!("{}.{millisecond:03}", time.strftime("%Y-%m-%dT%H-%M-%S"))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    /// Makes files for the log `audit.log`, cleans up, and compares the names that remain.
    fn check(rotation: Rotation, files: &[&str], expect: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in files {
            std::fs::write(directory.path().join(name), *name).unwrap();
        }
        let files = LogBackups::new(&directory.path().join("audit.log"), rotation);
        files.clean_up().unwrap();
        let entries = std::fs::read_dir(directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        assert_eq!(names, expect);
        directory
    }

    const OLDEST: &str = "audit-2020-01-02T03-04-05.678.log";
    const OLDER: &str = "audit-2020-01-02T03-04-05.679.log.gz";
    const RECENT: &str = "audit-9999-01-02T03-04-05.678.log";
    const FOREIGN: &str = "audit-notes-of-the-meeting.log";

    #[test]
    fn files_beyond_the_number_are_deleted() {
        let rotation = Rotation {
            backups_max: 2,
            ..Rotation::default()
        };
        let files = ["audit.log", OLDEST, OLDER, RECENT, FOREIGN];
        check(rotation, &files, &[OLDER, RECENT, FOREIGN, "audit.log"]);
    }

    #[test]
    fn files_beyond_the_age_are_deleted() {
        let rotation = Rotation {
            age_max: 1,
            ..Rotation::default()
        };
        let files = [OLDEST, OLDER, RECENT, FOREIGN];
        check(rotation, &files, &[RECENT, FOREIGN]);
    }

    #[test]
    fn files_are_compressed() {
        let rotation = Rotation {
            compress: true,
            ..Rotation::default()
        };
        let (compressed, incomplete) = (format!("{OLDEST}.gz"), format!("{OLDEST}.gz.tmp"));
        let files = [OLDEST, OLDER, &incomplete, FOREIGN, "audit.log"];
        let expect = [&compressed, OLDER, FOREIGN, "audit.log"];
        let directory = check(rotation, &files, &expect);
        let compressed = File::open(directory.path().join(compressed)).unwrap();
        let mut text = String::new();
        GzDecoder::new(compressed)
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, OLDEST);
    }
}

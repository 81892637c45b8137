//! The revision file: a file beside the data file with the last durable revision. It detects a data
//! file that is valid but outdated: emptied, replaced by an older copy, or with a flipped bit that
//! selects the previous commit.
//!
//! A second one is outside of the directory of the store. It detects that the whole directory was
//! replaced by an older copy, or is missing. See `LastRevision`.
//!
//! It is written after each durable batch without a sync: the page cache survives the end of the
//! process, and after a power failure the file may be behind the store, never ahead.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use parking_lot::Mutex;

use super::codec::{decode_number, encode_number};
use super::config::LastRevision;
use super::error::OpenError;
use super::files::REVISION_FILE;
use super::tables::{FIRST_REVISION, LAST_REVISION_AHEAD};
use crate::private_file::open_private;

const NAME: &str = "revision_file";

/// The open revision file.
#[derive(Debug)]
pub(super) struct RevisionFile {
    file: File,
    /// The revision in the file.
    revision: u64,
}

impl RevisionFile {
    /// Opens or creates the file at `path` and reads its revision; `None` if it is new or was
    /// damaged by a power failure.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Option<u64>)> {
        let mut file = open_private(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let revision = decode_number(NAME, &bytes);
        if revision.is_none() && !bytes.is_empty() {
            tracing::warn!(path = %path.display(), "revision file is damaged and will be rewritten");
        }
        let this = Self {
            file,
            revision: revision.unwrap_or_default(),
        };
        Ok((this, revision))
    }

    /// Waits until the file is on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Stores the durable `revision`, unless the file has a later one.
    pub(super) fn record(&mut self, revision: u64) -> io::Result<()> {
        if revision > self.revision {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&encode_number(NAME, revision))?;
            self.revision = revision;
        }
        Ok(())
    }
}

/// The revision files of an open store.
#[derive(Debug, Default)]
pub(super) struct RevisionFiles {
    /// The file beside the data file.
    inside: Mutex<Option<RevisionFile>>,
    /// The file outside of the directory of the store.
    outside: Mutex<Option<RevisionFile>>,
    /// The revision of the file beside the data file when the store was opened.
    last: Option<u64>,
    /// That of the other one.
    seen: Option<u64>,
    was_used: bool,
    seen_max: u64,
}

impl RevisionFiles {
    /// Opens the file in `directory`, and the one of `last_revision`.
    pub(super) fn open(
        directory: &Path,
        last_revision: Option<LastRevision<'_>>,
    ) -> Result<Self, OpenError> {
        let open = |path: &Path| {
            let opened = RevisionFile::open(path);
            opened.map_err(|error| OpenError::io(path, error))
        };
        let (inside, last) = open(&directory.join(REVISION_FILE))?;
        let outside = last_revision.map(|last_revision| open(last_revision.file));
        let (outside, seen) = outside.transpose()?.unzip();
        Ok(Self {
            inside: Mutex::new(Some(inside)),
            outside: Mutex::new(outside),
            last,
            seen: seen.flatten(),
            was_used: last_revision.is_some_and(|last_revision| last_revision.was_used),
            seen_max: 0,
        })
    }

    /// Returns the revision that was recorded beside the data file when the store was opened.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    /// Returns the revision of a new store: one that no client has seen if there was a store before.
    pub(super) fn first(&self) -> u64 {
        match self.seen {
            Some(seen) if seen > FIRST_REVISION => seen + LAST_REVISION_AHEAD,
            None if self.was_used => LAST_REVISION_AHEAD,
            _ => FIRST_REVISION,
        }
    }

    /// Logs that a new store is created at `revision`, if there was one before.
    pub(super) fn warn_if_used(&self, directory: &Path, revision: u64) {
        if !self.was_used && self.seen.is_none() {
            return;
        }
        let store = directory.display();
        tracing::warn!(
            %store,
            seen = self.seen,
            revision,
            "the store is missing or empty, but the data directory was used before: starting with an \
             empty store, at a later revision; if its objects are needed, stop the server and run \
             `watchet store restore FILE --force`"
        );
    }

    /// Sets the revision at which the store was opened.
    pub(super) fn set_opened(&mut self, revision: u64) {
        self.seen_max = match self.seen {
            Some(seen) if seen > revision => seen + LAST_REVISION_AHEAD,
            _ => 0,
        };
    }

    /// Returns the last revision that clients may have seen before the store was opened, if they have
    /// seen later ones than it has; otherwise 0.
    pub(super) fn seen_max(&self) -> u64 {
        self.seen_max
    }

    /// Logs that `store` was at `found` when it was opened, although clients may have seen later
    /// revisions, so that it continues at `revision`.
    pub(super) fn warn_of_lost(&self, store: &str, found: u64, revision: u64) {
        if self.seen_max <= found {
            tracing::warn!(
                store,
                found,
                revision,
                "--durability is not fsync and the last shutdown was not clean: the most recent \
                 acknowledged writes may be lost; continuing at a later revision, so clients list again"
            );
            return;
        }
        tracing::warn!(
            store,
            found,
            seen = self.seen,
            revision,
            "the store is older than the last revision that this data directory has recorded, as after \
             a restore: it continues at a later revision, without history, so that clients list again; \
             changes after the restored revision are lost"
        );
    }

    /// Records that all revisions up to `revision` are on disk. A failure is not fatal, because the
    /// files are only a check.
    pub(super) fn record(&self, revision: u64) {
        for file in [&self.inside, &self.outside] {
            let mut file = file.lock();
            if let Some(Err(error)) = file.as_mut().map(|file| file.record(revision)) {
                tracing::warn!(error = %error, "cannot write the store's revision file");
            }
        }
    }

    /// Syncs the file outside of the directory, so that after a power failure it is only some seconds
    /// old. Only the checkpointer calls it.
    pub(super) fn sync(&self) {
        let file = self.outside.lock();
        if let Some(Err(error)) = file.as_ref().map(RevisionFile::sync) {
            tracing::warn!(error = %error, "cannot sync the store's revision file");
        }
    }
}

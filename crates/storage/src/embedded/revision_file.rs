//! The revision file: a file beside the data file with the last durable revision. It detects a data
//! file that is valid but outdated: emptied, replaced by an older copy, or with a flipped bit that
//! selects the previous commit.
//!
//! It is written after each durable batch without a sync: the page cache survives the end of the
//! process, and after a power failure the file may be behind the store, never ahead.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::codec::{decode_number, encode_number};
use super::private_file::open_private;

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

//! The revision file: a file beside the data file with the last durable revision. It detects a data
//! file that is valid but outdated: emptied, replaced by an older copy, or with a flipped bit that
//! selects the previous commit.
//!
//! It is written after each durable commit without a sync: the page cache survives the end of the
//! process, and after a power failure the file may be behind the store, never ahead.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::codec::{decode_number, encode_number};
use super::private_file::open_private;

const NAME: &str = "revision_file";

/// The open revision file.
#[derive(Debug)]
pub(super) struct RevisionFile(File);

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
        Ok((Self(file), revision))
    }

    /// Stores the durable `revision`.
    pub(super) fn record(&mut self, revision: u64) -> io::Result<()> {
        self.0.seek(SeekFrom::Start(0))?;
        self.0.write_all(&encode_number(NAME, revision))
    }
}
